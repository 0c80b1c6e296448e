"""Named branches with `parallel`: two reviewers at once, one who waits for both, and a person asked in a branch."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypedDict

from graphflow import Graph, MemoryCheckpointer, append


class Review(TypedDict):
    text: str
    notes: Annotated[list[str], append]
    verdict: str


graph = Graph(Review, name="review", result="state.verdict")


@graph.node(next="reviews")
def write(state: Review) -> dict[str, str]:
    return {"text": "Graphs remember."}


graph.parallel(
    "reviews",
    {"style": "read_style", "facts": "check_facts", "editor": "sum_up", "owner": "ask_owner"},
    after={"editor": ["style", "facts"]},
    set={"verdict": "state.text + ' (' + out.owner.out + ')'"},
)


@graph.node
def read_style(state: Review) -> dict[str, list[str]]:
    return {"notes": [f"style: {len(state['text'])} letters, none wasted"]}


@graph.node
def check_facts(state: Review) -> dict[str, list[str]]:
    return {"notes": ["facts: true"]}


@graph.node
def sum_up(state: Review) -> dict[str, list[str]]:
    """It sees what the branches that it waits for wrote, and nothing of the others."""
    return {"notes": [f"editor: {len(state['notes'])} notes read"]}


graph.ask("ask_owner", "Print it?", schema={"type": "string"})


async def main() -> None:
    app = graph.compile(checkpointer=MemoryCheckpointer())
    waiting = await app.run({}, thread_id="t1")
    print(f"{waiting.status}: {waiting.interrupts[0].payload['message']}")
    result = await app.answer("t1", "yes, print it")
    print(*result.state["notes"], sep="\n")
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
