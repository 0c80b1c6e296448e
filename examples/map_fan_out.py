"""Fan-out with `map`: one branch for each item, at most three at once; a failed one is collected, not fatal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

from graphflow import Graph, append
from graphflow.events import NodeStart


@dataclass
class Report:
    """`words` is written by every branch, so it has a reducer; plain keys may have one writer at a time."""

    pages: list[dict[str, Any]] = field(default_factory=list)
    words: Annotated[list[str], append] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


graph = Graph(Report, name="report", result="{'words': state.words, 'failed': state.failed}")


@graph.node(next="fan")
def collect(state: Report) -> dict[str, Any]:
    """What there is to do."""
    texts = ["a map of the world", "", "the longest of all pages here", "one word"]
    return {"pages": [{"title": f"page {number}", "text": text} for number, text in enumerate(texts, 1)]}


graph.map(
    "fan", "state.pages", "count", as_="page", max=3, on_error="collect",
    set={"failed": "out.filter(o, o.status == 'failed').map(o, state.pages[o.index].title)"},
)  # fmt: skip


@graph.function
async def count_words(title: str, text: str) -> str:
    """Later pages are quicker here; their results stand in the order of the pages all the same."""
    await asyncio.sleep(0.03 / (len(text) + 1))
    if not text:
        raise ValueError(f"{title} is empty")
    return f"{title}: {len(text.split())} words"


graph.add(
    "count", use="fn:count_words", with_={"title": "${page.title}", "text": "${page.text}"}, set={"words": "[out]"}
)


async def main() -> None:
    app = graph.compile()
    begun = []
    async for event in app.stream({}):
        if isinstance(event, NodeStart):
            begun.append(event.node)
    print(f"{len(begun)} nodes: {begun.count('count')} branches, opened by {begun[1]!r}")
    result = await app.run({})
    print(*result.output["words"], sep="\n")
    print("failed:", ", ".join(result.output["failed"]))


if __name__ == "__main__":
    asyncio.run(main())
