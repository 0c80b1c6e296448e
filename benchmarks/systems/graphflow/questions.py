"""A question: until it, and from its answer on; warm, and in a new process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Case, Facts, Place, Timed

from graphflow import CompiledGraph, Context, Graph
from systems.graphflow.base import Counter, add_one, compiled


def question() -> Graph[Any]:
    graph = Graph(Counter)

    async def ask(state: Any, ctx: Context) -> dict[str, int]:
        return {"n": state["n"] + await ctx.ask("how many?", schema={"type": "integer"})}

    graph.node(add_one, name="before", next="ask")
    graph.node(ask, next="end")
    return graph


async def until_question(app: CompiledGraph, thread_id: str) -> None:
    assert (await app.run({}, thread_id)).status == "waiting"


async def answer(app: CompiledGraph, thread_id: str) -> None:
    assert (await app.answer(thread_id, 41)).state["n"] == 42


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as app:

        async def run() -> Facts:
            thread_id, start = place.thread(), time.perf_counter()
            await until_question(app, thread_id)
            paused = time.perf_counter()
            await answer(app, thread_id)
            return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

        yield Timed(run)


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as app:
        yield Timed(lambda: until_question(app, "cold") if place.phase == "pause" else answer(app, "cold"))


CASES: dict[str, Case] = {"pause": pause, "cold": cold}
