"""Small graphs that the runtime's tests run."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

from graphflow import Context, Graph, append


class Counter(TypedDict):
    n: int
    log: Annotated[list[Any], append]


def chain(*names: str) -> tuple[Graph, list[str]]:
    """Nodes in a row, each of which notes that it ran and adds 1."""
    graph, ran = Graph(Counter), list[str]()
    for index, name in enumerate(names):

        async def step(state: Any, name: str = name) -> dict[str, Any]:
            ran.append(name)
            return {"n": state.n + 1, "log": [name]}

        graph.node(step, name=name, next=names[index + 1] if index + 1 < len(names) else "end")  # type: ignore[call-overload]  # the names are bound by defaults
    return graph, ran


def loop(limit: int) -> Graph:
    """One node that counts to `limit`."""
    graph = Graph(Counter, budget={"maxSteps": 10_000})

    @graph.node(next=[{"if": f"state.n < {limit}", "to": "work"}, {"to": "end"}])
    async def work(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    return graph


def asking() -> tuple[Graph, list[str]]:
    """`before` → `ask` (a node that does something once, then asks) → `after`."""
    graph, ran = Graph(Counter), list[str]()

    @graph.node(next="ask")
    async def before(state: Any) -> dict[str, Any]:
        ran.append("before")
        return {"n": 1, "log": ["before"]}

    @graph.node(next="after")
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        async def draw() -> int:
            ran.append("once")
            return 10

        drawn = await ctx.step("draw", draw, effects="read")
        answer = await ctx.ask("how many?", schema={"type": "integer"})
        return {"n": state.n + drawn + answer, "log": ["ask"]}

    @graph.node
    async def after(state: Any) -> dict[str, Any]:
        ran.append("after")
        return {"log": ["after"]}

    return graph, ran


class CutOffWrite:
    """The node `act` of a graph: its first write `pay` is cut off in its midst, the others count.

    Args:
        loses_connection: the first write fails there, and nobody knows what became of it; otherwise it hangs there.
    """

    def __init__(self, *, loses_connection: bool = False) -> None:
        self.graph, self.did, self.inside = Graph(Counter), list[str](), asyncio.Event()

        async def pay() -> str:
            self.did.append("paid")
            if len(self.did) == 1:
                self.inside.set()
                if loses_connection:
                    raise ConnectionResetError
                await asyncio.Event().wait()
            return "done"

        @self.graph.node
        async def act(state: Any, ctx: Context) -> dict[str, Any]:
            return {"n": state.n + 1, "log": [await ctx.step("pay", pay)]}
