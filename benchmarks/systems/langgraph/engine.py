"""Rows of nodes, loops and routes that count to n."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Case, Place, Timed, growing
from langgraph.graph import END, START, MessagesState, StateGraph

from systems.langgraph.base import Counter, add_one, compiled, config, drained, durability


def counting(build: Any) -> Case:
    @asynccontextmanager
    async def case(place: Place) -> AsyncIterator[Timed]:
        n = place.params["n"]
        async with compiled(place, build(n)) as graph:

            async def one() -> None:
                out = await graph.ainvoke({"n": 0}, config(place.thread()), **durability(place))
                assert out["n"] == n, out

            async def swarm() -> None:
                await asyncio.gather(*(one() for _ in range(place.params["threads"])))

            yield Timed(swarm if "threads" in place.params else one, growing(place))

    return case


def row(graph: StateGraph, names: list[str], node: Any) -> StateGraph:
    for before, name in zip([START, *names], names, strict=False):
        graph.add_node(name, node)
        graph.add_edge(before, name)
    graph.add_edge(names[-1], END)
    return graph


def chain(n: int) -> StateGraph:
    return row(StateGraph(Counter), [f"n{i}" for i in range(n)], add_one)


def loop(n: int) -> StateGraph:
    async def again(state: Counter) -> str:
        return "work" if state["n"] < n else END

    graph = StateGraph(Counter)
    graph.add_node("work", add_one)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", again, ["work", END])
    return graph


def route(n: int) -> StateGraph:
    names = ["a", "b", "c"]

    async def choose(state: Counter) -> str:
        return names[state["n"] % 3] if state["n"] < n else END

    graph = StateGraph(Counter)
    for name in names:
        graph.add_node(name, add_one)
        graph.add_conditional_edges(name, choose, [*names, END])
    graph.add_edge(START, "a")
    return graph


@asynccontextmanager
async def sequential(place: Place) -> AsyncIterator[Timed]:
    async def nothing(state: MessagesState) -> None:
        return None

    n = place.params["n"]
    async with compiled(place, row(StateGraph(MessagesState), [f"n{i}" for i in range(n)], nothing)) as graph:

        async def run() -> None:
            assert await drained(graph, {"messages": []}, place) == n

        yield Timed(run)


CASES: dict[str, Case] = {
    "chain": counting(chain), "loop": counting(loop), "route": counting(route), "sequential": sequential,
}  # fmt: skip
