"""Rows of nodes, loops and routes that count to n."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from harness import Case, Place, Timed, growing

from graphflow import Goto, Graph, append
from systems.graphflow.base import UNBOUNDED, Counter, add_one, compiled, consume, options


def counting(build: Any) -> Case:
    @asynccontextmanager
    async def case(place: Place) -> AsyncIterator[Timed]:
        n, chosen = place.params["n"], options(place)
        async with compiled(place, build(n)) as app:

            async def one() -> None:
                result = await app.run({}, **chosen)
                assert result.state["n"] == n, result.error

            async def streamed() -> None:
                assert await consume(app, {}, **chosen) >= 2 * n

            once = streamed if place.has("stream") else one

            async def swarm() -> None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(place.params["threads"]):
                        group.create_task(once())

            yield Timed(swarm if "threads" in place.params else once, growing(place))

    return case


def chain(n: int) -> Graph[Any]:
    graph = Graph(Counter, budget=UNBOUNDED)
    for i in range(n):
        graph.node(add_one, name=f"n{i}", next=f"n{i + 1}" if i + 1 < n else "end")
    return graph


def loop(n: int) -> Graph[Any]:
    graph = Graph(Counter, budget=UNBOUNDED)
    graph.node(add_one, name="work", next=[{"if": f"state.n < {n}", "to": "work"}, {"to": "end"}])
    return graph


def route(n: int) -> Graph[Any]:
    graph = Graph(Counter, budget=UNBOUNDED)
    ways = [
        {"if": f"state.n >= {n}", "to": "end"},
        {"if": "state.n % 3 == 0", "to": "a"},
        {"if": "state.n % 3 == 1", "to": "b"},
        {"to": "c"},
    ]
    for name in ("a", "b", "c"):
        graph.node(add_one, name=name, next=ways)
    return graph


class Nothing(TypedDict):
    messages: Annotated[list[Any], append]


@asynccontextmanager
async def sequential(place: Place) -> AsyncIterator[Timed]:
    """Nodes that write nothing, their events read to the end."""
    n = place.params["n"]

    async def nothing(state: Any) -> None:
        return None

    graph = Graph(Nothing, budget=UNBOUNDED)
    for i in range(n):
        graph.node(nothing, name=f"n{i}", next=f"n{i + 1}" if i + 1 < n else "end")
    async with compiled(place, graph) as app:

        async def run() -> None:
            assert await consume(app, {}) >= 2 * n

        yield Timed(run)


class Wide(TypedDict):
    n: int
    items: list[int]
    """Large, and no condition names it."""


@asynccontextmanager
async def condition(place: Place) -> AsyncIterator[Timed]:
    """A loop whose way on is chosen by Python (`Goto`), or by a condition of the variant's kind."""
    n, size = place.params["n"], place.params["size"]
    conditions = {"plain": f"state.n < {n}", "cel": f"[state.n].exists(i, i < {n})"}
    graph = Graph(Wide, budget=UNBOUNDED)

    async def choose(state: Any) -> Goto:
        value = state["n"] + 1
        return Goto("work" if value < n else "done", {"n": value})

    async def prepare(state: Any) -> dict[str, Any]:
        return {"items": list(range(size))}

    async def done(state: Any) -> None:
        return None

    graph.node(prepare, next="work")
    if place.variant in conditions:
        graph.node(add_one, name="work", next=[{"if": conditions[place.variant], "to": "work"}, {"to": "done"}])
    else:
        graph.node(choose, name="work", next={"choose": ["work", "done"]})
    graph.node(done, next="end")
    async with compiled(place, graph) as app:

        async def run() -> None:
            assert (await app.run({})).state["n"] == n

        yield Timed(run)


@dataclass
class Record:
    n: int = 0
    names: list[str] = field(default_factory=list)
    people: Annotated[list[Any], append] = field(default_factory=list)


def declared_state(kind: str) -> Any:
    """The class of the variant, or a JSON Schema."""
    if kind == "dataclass":
        return Record
    if kind == "pydantic":
        from pydantic import Field, create_model

        return create_model("Model", n=(int, Field(default=0, ge=0)), names=(list[str], []), people=(list[Any], []))
    return {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}


@asynccontextmanager
async def declared(place: Place) -> AsyncIterator[Timed]:
    """The loop over a state that is a mapping, a dataclass or a pydantic model."""
    n, graph = place.params["n"], Graph[Any](declared_state(place.variant), budget=UNBOUNDED)

    async def add(state: Any) -> dict[str, int]:
        return {"n": state.n + 1}

    graph.node(add, name="work", next=[{"if": f"state.n < {n}", "to": "work"}, {"to": "end"}])
    async with compiled(place, graph) as app:

        async def run() -> None:
            assert (await app.run({})).state["n"] == n

        yield Timed(run)


CASES: dict[str, Case] = {
    "chain": counting(chain), "loop": counting(loop), "route": counting(route), "sequential": sequential,
    "condition": condition, "declared": declared,
}  # fmt: skip
