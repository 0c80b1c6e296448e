"""Fan-outs by `Send`, and graphs in graphs."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field, make_dataclass
from typing import Annotated, Any

import wide as wides
from harness import Case, Place, Timed
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from payloads import text
from typing_extensions import TypedDict

from systems.langgraph.base import Counter, add_one, compiled, config, drained, durability


class Fan(TypedDict):
    items: list[int]
    got: Annotated[list[int], operator.add]
    total: int


@asynccontextmanager
async def fanout(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]

    async def source(state: Fan) -> dict[str, Any]:
        return {"items": list(range(n))}

    async def spread(state: Fan) -> list[Send]:
        return [Send("branch", {"x": item}) for item in state["items"]]

    async def branch(state: Any) -> dict[str, Any]:
        return {"got": [state["x"]]}

    async def join(state: Fan) -> dict[str, Any]:
        return {"total": sum(state["got"])}

    spread.__annotations__ = branch.__annotations__ = {}
    graph = StateGraph(Fan)
    for node in (source, branch, join):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "source")
    graph.add_conditional_edges("source", spread, ["branch"])
    graph.add_edge("branch", "join")
    async with compiled(place, graph) as app:

        async def run() -> None:
            out = await app.ainvoke({"items": []}, config(place.thread()), **durability(place))
            assert out["total"] == n * (n - 1) // 2

        yield Timed(run)


@asynccontextmanager
async def nested(place: Place) -> AsyncIterator[Timed]:
    graph = StateGraph(Counter)
    graph.add_node("leaf", add_one)
    graph.add_edge(START, "leaf")
    for _ in range(place.params["depth"] - 1):
        inner, graph = graph.compile(), StateGraph(Counter)
        graph.add_node("sub", inner)
        graph.add_edge(START, "sub")
    async with compiled(place, graph) as app:

        async def run() -> None:
            assert (await app.ainvoke({"n": 0}, config(place.thread()), **durability(place)))["n"] == 1

        yield Timed(run)


class Joke(TypedDict):
    subject: str
    jokes: list[str]


class Subject(TypedDict):
    subject: str


class Said(TypedDict):
    jokes: list[str]


class Jokes(TypedDict):
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]


def joke() -> Any:
    """Twelve node runs: edit, generate, and ten times bump."""

    async def edit(state: Joke) -> dict[str, Any]:
        return {"subject": state["subject"] + " - hohoho"}

    async def generate(state: Joke) -> dict[str, Any]:
        return {"jokes": [f"Joke about {state['subject']}"]}

    async def bump(state: Joke) -> dict[str, Any]:
        return {"jokes": [state["jokes"][0] + " a"]}

    async def again(state: Joke) -> str:
        return END if state["jokes"][0].endswith(" a" * 10) else "bump"

    graph = StateGraph(Joke, input_schema=Subject, output_schema=Said)
    for node in (edit, generate, bump):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "edit")
    graph.add_edge("edit", "generate")
    graph.add_edge("generate", "bump")
    graph.add_conditional_edges("bump", again, ["bump", END])
    return graph.compile()


@asynccontextmanager
async def subfan(place: Place) -> AsyncIterator[Timed]:
    async def spread(state: Jokes) -> list[Send]:
        return [Send("joke", {"subject": subject}) for subject in state["subjects"]]

    graph = StateGraph(Jokes)
    graph.add_node("joke", joke())
    graph.add_conditional_edges(START, spread, ["joke"])
    graph.add_edge("joke", END)
    subjects = [text(1000, seed) for seed in range(place.params["n"])]
    async with compiled(place, graph) as app:

        async def run() -> None:
            assert await drained(app, {"subjects": subjects}, place) == len(subjects)

        yield Timed(run)


def wide_state() -> Any:
    """A dataclass with a reducer where writes are added or merged."""

    def kind(name: str) -> tuple[str, Any, Any]:
        base: Any = list if name in wides.LISTS else dict if name in wides.OBJECTS else str
        reduce = operator.add if name in wides.ADDED else operator.or_ if name in wides.MERGED else None
        return name, Annotated[base, reduce] if reduce else base, field(default_factory=base)

    return make_dataclass("Wide", [kind(name) for name in (*wides.LISTS, *wides.OBJECTS, *wides.TEXTS)], kw_only=True)


@asynccontextmanager
async def wide(place: Place) -> AsyncIterator[Timed]:
    n, state = place.params["n"], wide_state()
    graph = StateGraph(state)

    def node(name: str) -> Any:
        reads, writes = wides.NODES[name]

        async def copy(state: Any) -> dict[str, Any]:
            return wides.written(getattr(state, reads), writes, n)

        copy.__annotations__ = {}
        return copy

    async def again(state: Any) -> str:
        return END if len(state.messages) > n else "one"

    again.__annotations__ = {}
    for name in wides.NODES:
        graph.add_node(name, node(name), input_schema=state)
    for before, after in ((START, "one"), ("one", "two"), ("two", "three"), ("two", "four"), ("five", "six")):
        graph.add_edge(before, after)
    graph.add_edge(["three", "four"], "five")
    graph.add_conditional_edges("six", again, ["one", END])
    async with compiled(place, graph) as app:

        async def run() -> None:
            await drained(app, {"messages": [wides.start(place.params)]}, place)

        yield Timed(run)


CASES: dict[str, Case] = {"fanout": fanout, "nested": nested, "subfan": subfan, "wide": wide}
