"""History is a tree: look at any checkpoint, compare two, fork, edit, rewind. History is immutable."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from graphflow import Graph, MemoryCheckpointer


@dataclass
class Recipe:
    dish: str = ""
    cooked: str = ""


graph = Graph(Recipe, name="kitchen", result="state.cooked")


@graph.node(next="cook")
def choose(state: Any) -> dict[str, Any]:
    return {"dish": "noodles"}


@graph.node(next="end")
def cook(state: Any) -> dict[str, Any]:
    return {"cooked": f"a plate of {state.dish}"}


async def main() -> None:
    app = graph.compile(checkpointer=MemoryCheckpointer())
    result = await app.run({}, thread_id="lunch")
    print("lunch: ", result.output)

    lunch = app.thread("lunch")
    history = await lunch.history()
    for row in reversed(history):
        print(f"  step {row.step}  {row.node or row.source:<7} next: {', '.join(row.next) or '-'}")

    chosen = next(row for row in history if row.node == "choose")
    print("diff:  ", await lunch.diff(chosen.id, history[0].id))

    dinner = await lunch.fork(chosen.id, thread_id="dinner")
    await dinner.edit({"dish": "dumplings"}, as_node="choose")
    print("dinner:", (await app.resume("dinner")).output)
    print("lunch: ", (await lunch.state()).values["cooked"])

    await lunch.rewind(chosen.id)
    print("again: ", (await app.resume("lunch")).output, f"({len(await lunch.tree())} checkpoints in the tree)")


if __name__ == "__main__":
    asyncio.run(main())
