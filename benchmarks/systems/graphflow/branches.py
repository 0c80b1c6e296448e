"""Fan-outs and graphs in graphs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

import wide as wides
from harness import Case, Place, Timed
from payloads import text

from graphflow import Context, Graph, append
from systems.graphflow.base import UNBOUNDED, Counter, add_one, compiled, consume, options


class Fan(TypedDict):
    items: list[int]
    got: Annotated[list[int], append]
    total: int


@asynccontextmanager
async def fanout(place: Place) -> AsyncIterator[Timed]:
    n, chosen = place.params["n"], options(place)
    graph = Graph(Fan, budget=UNBOUNDED)

    async def source(state: Any) -> dict[str, Any]:
        return {"items": list(range(n))}

    async def join(state: Any) -> dict[str, Any]:
        return {"total": sum(state["got"])}

    @graph.function
    async def branch(x: int) -> int:
        return x

    graph.node(source, next="spread")
    graph.map("spread", "state.items", "branch", as_="x", next="join")
    graph.add("branch", use="fn:branch", with_={"x": "${x}"}, set={"got": "[out]"}, next="end")
    graph.node(join, next="end")
    async with compiled(place, graph) as app:

        async def run() -> None:
            result = await app.run({}, **chosen)
            assert result.state["total"] == n * (n - 1) // 2

        async def streamed() -> None:
            assert await consume(app, {}, **chosen) >= 2 * n

        yield Timed(streamed if place.has("stream") else run)


@asynccontextmanager
async def nested(place: Place) -> AsyncIterator[Timed]:
    graph: Graph[Any] = Graph(Counter)
    graph.node(add_one, name="leaf", next="end")
    for _ in range(place.params["depth"] - 1):
        outer: Graph[Any] = Graph(Counter)
        outer.subgraph("sub", graph, set={"n": "out.n"}, next="end")
        graph = outer
    async with compiled(place, graph) as app:

        async def run() -> None:
            assert (await app.run({}, **options(place))).state["n"] == 1

        yield Timed(run)


class Joke(TypedDict):
    subject: str
    joke: str


class Jokes(TypedDict):
    jokes: list[str]


def joke() -> Graph[Any]:
    """Twelve node runs: edit, generate, and ten times bump."""
    graph = Graph(Joke, budget=UNBOUNDED, result="state.joke")

    async def edit(state: Any, ctx: Context) -> dict[str, str]:
        return {"subject": ctx.input["subject"] + " - hohoho"}

    async def generate(state: Any) -> dict[str, str]:
        return {"joke": f"Joke about {state['subject']}"}

    async def bump(state: Any) -> dict[str, str]:
        return {"joke": state["joke"] + " a"}

    graph.node(edit, next="generate")
    graph.node(generate, next="bump")
    graph.node(bump, next=[{"if": f"state.joke.endsWith('{' a' * 10}')", "to": "end"}, {"to": "bump"}])
    return graph


@asynccontextmanager
async def subfan(place: Place) -> AsyncIterator[Timed]:
    """LangGraph's `fanout_to_subgraph`: events are read to the end."""
    graph = Graph(Jokes, budget=UNBOUNDED, result="state.jokes")
    graph.map(
        "spread", "input.subjects", joke(), as_="subject", with_={"subject": "${subject}"},
        set={"jokes": "out.map(o, o.out)"}, next="end",
    )  # fmt: skip
    subjects = [text(1000, seed) for seed in range(place.params["n"])]
    async with compiled(place, graph) as app:
        assert all(
            made == f"Joke about {subject} - hohoho" + " a" * 10
            for made, subject in zip((await app.run({"subjects": subjects})).output, subjects, strict=True)
        )

        async def run() -> None:
            assert await consume(app, {"subjects": subjects}) >= 24 * len(subjects)

        yield Timed(run)


def wide_schema() -> dict[str, Any]:
    def key(name: str) -> dict[str, Any]:
        if name in wides.LISTS:
            return {"type": "array", "default": [], **({"x-reducer": "append"} if name in wides.ADDED else {})}
        if name in wides.OBJECTS:
            return {"type": "object", "default": {}, **({"x-reducer": "merge"} if name in wides.MERGED else {})}
        return {"type": "string", "default": ""}

    names = (*wides.LISTS, *wides.OBJECTS, *wides.TEXTS)
    return {"type": "object", "properties": {name: key(name) for name in names}}


@asynccontextmanager
async def wide(place: Place) -> AsyncIterator[Timed]:
    n, graph = place.params["n"], Graph(wide_schema(), budget=UNBOUNDED)
    begin = wides.start(place.params)

    def node(name: str) -> Any:
        reads, writes = wides.NODES[name]

        async def copy(state: Any) -> dict[str, Any]:
            return wides.written(state[reads], writes, n)

        return copy

    async def first(state: Any) -> dict[str, Any]:
        return {"messages": [begin]}

    following = {
        "one": "two", "two": "both", "three": "end", "four": "end", "five": "six",
        "six": [{"if": f"size(state.messages) > {n}", "to": "end"}, {"to": "one"}],
    }  # fmt: skip
    graph.node(first, next="one")
    graph.parallel("both", {"three": "three", "four": "four"}, next="five")
    for name in wides.NODES:
        graph.node(node(name), name=name, next=following[name])
    async with compiled(place, graph) as app:
        assert len((await app.run({})).state["messages"]) > n

        async def run() -> None:
            await consume(app, {})

        yield Timed(run)


CASES: dict[str, Case] = {"fanout": fanout, "nested": nested, "subfan": subfan, "wide": wide}
