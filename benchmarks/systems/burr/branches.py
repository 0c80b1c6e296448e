"""Fan-outs, applications in applications, and LangGraph's `wide_state`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import wide as wides
from burr.core import ApplicationContext, State, action, expr
from harness import Case, Place, Timed

from systems.burr.base import add_one, build, finish


@asynccontextmanager
async def fanout(place: Place) -> AsyncIterator[Timed]:
    from burr.core.parallelism import MapStates  # needs the extra `tracking`

    n = place.params["n"]

    @action(reads=["x"], writes=["got"])
    async def branch(state: State) -> State:
        return state.update(got=state["x"])

    class Spread(MapStates):
        @property
        def reads(self) -> list[str]:
            return []

        @property
        def writes(self) -> list[str]:
            return ["total"]

        def is_async(self) -> bool:
            return True

        def action(self, state: State, inputs: dict[str, Any]) -> Any:
            return branch

        async def states(self, state: State, context: ApplicationContext, inputs: dict[str, Any]) -> Any:
            for item in range(n):
                yield state.update(x=item)

        async def reduce(self, state: State, states: Any) -> State:
            return state.update(total=sum([branch["got"] async for branch in states]))

    async def run() -> None:
        app = await build(
            {"spread": Spread(), "finish": finish}, [("spread", "finish")], {"x": 0}, place.thread(), None
        )
        _, _, state = await app.arun(halt_after=["finish"])
        assert state["total"] == n * (n - 1) // 2

    yield Timed(run)


@asynccontextmanager
async def nested(place: Place) -> AsyncIterator[Timed]:
    def level(depth: int) -> Any:
        if depth == 1:
            return add_one()
        inner = level(depth - 1)

        @action(reads=["n"], writes=["n"])
        async def sub(state: State) -> State:
            return state.update(n=await counted(inner, state["n"]))

        return sub

    async def counted(step: Any, n: int) -> int:
        app = await build({"step": step}, [], {"n": n}, place.thread(), None)
        _, _, out = await app.arun(halt_after=["step"])
        return int(out["n"])

    top = level(place.params["depth"])

    async def run() -> None:
        assert await counted(top, 0) == 1

    yield Timed(run)


@asynccontextmanager
async def wide(place: Place) -> AsyncIterator[Timed]:
    """Burr has no parallel edges and no reducers: `three` and `four` take turns, and actions merge by hand."""
    n = place.params["n"]

    def node(name: str) -> Any:
        read, writes = wides.NODES[name]

        @action(reads=[read, *writes], writes=list(writes))
        async def copy(state: State) -> State:
            out = wides.written(state[read], writes, n)
            for key in writes:
                if key in wides.ADDED:
                    out[key] = [*state[key], *out[key]]
                elif key in wides.MERGED:
                    out[key] = state[key] | out[key]
            return state.update(**out)

        return copy

    names = list(wides.NODES)
    actions = {**{name: node(name) for name in names}, "finish": finish}
    ways = [*itertools.pairwise(names), ("six", "finish", expr(f"len(messages) > {n}")), ("six", "one")]
    empty: dict[str, Any] = {
        **{key: [] for key in wides.LISTS}, **{key: {} for key in wides.OBJECTS}, **dict.fromkeys(wides.TEXTS, ""),
        "messages": [wides.start(place.params)],
    }  # fmt: skip

    async def run() -> None:
        app = await build(actions, ways, empty, place.thread(), None)
        _, _, state = await app.arun(halt_after=["finish"])
        assert len(state["messages"]) > n

    yield Timed(run)


CASES: dict[str, Case] = {"fanout": fanout, "nested": nested, "wide": wide}
