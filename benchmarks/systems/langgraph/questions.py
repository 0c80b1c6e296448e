"""A question: until it, and from its answer on; warm, and in a new process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Case, Facts, Place, Timed
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from systems.langgraph.base import Counter, add_one, compiled, config


def question() -> StateGraph:
    async def ask(state: Counter) -> dict[str, int]:
        return {"n": state["n"] + interrupt({"question": "how many?"})}

    graph = StateGraph(Counter)
    graph.add_node("before", add_one)
    graph.add_node("ask", ask)
    graph.add_edge(START, "before")
    graph.add_edge("before", "ask")
    return graph


async def until_question(graph: Any, thread_id: str) -> None:
    assert "__interrupt__" in await graph.ainvoke({"n": 0}, config(thread_id))


async def answer(graph: Any, thread_id: str) -> None:
    assert (await graph.ainvoke(Command(resume=41), config(thread_id)))["n"] == 42


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as graph:

        async def run() -> Facts:
            thread_id, start = place.thread(), time.perf_counter()
            await until_question(graph, thread_id)
            paused = time.perf_counter()
            await answer(graph, thread_id)
            return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

        yield Timed(run)


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as graph:
        yield Timed(lambda: until_question(graph, "cold") if place.phase == "pause" else answer(graph, "cold"))


CASES: dict[str, Case] = {"pause": pause, "cold": cold}
