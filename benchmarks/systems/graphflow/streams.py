"""Streams: at full speed, through a model node, paced, and to a consumer that is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Arrivals, Case, Facts, Pace, Place, Timed

from graphflow import Context, Graph
from graphflow.models.chat_model import Capabilities
from graphflow.models.deltas import Finish, TextDelta
from systems.graphflow.base import Counter, compiled


def emitter(params: dict[str, Any]) -> Graph[Any]:
    graph = Graph(Counter)

    async def emit(state: Any, ctx: Context) -> dict[str, int]:
        pace = Pace(params.get("gap", 0.0))
        for _ in range(params["n"]):
            await asyncio.sleep(pace.pause())
            await ctx.emit(time.perf_counter())
        return {"n": 1}

    graph.node(emit, next="end")
    return graph


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    n, runs = place.params["n"], place.params.get("runs", 1)
    async with compiled(place, emitter(place.params)) as app:

        async def one(arrivals: Arrivals) -> None:
            async for event in app.stream({}):
                if event.type == "node.progress":
                    arrivals.seen(event.data)  # type: ignore[attr-defined]
            arrivals.ended()

        async def run() -> Facts:
            arrivals = Arrivals()
            if runs == 1:
                await one(arrivals)
            else:
                async with asyncio.TaskGroup() as group:
                    for _ in range(runs):
                        group.create_task(one(arrivals))
            return arrivals.facts(n * runs)

        if runs > 1:
            await one(Arrivals())  # what is loaded once is no cost of a run
        yield Timed(run)


class Talkative:
    """A `ChatModel` whose chunks tell when they were sent."""

    provider, model, capabilities = "bench", "talkative", Capabilities()

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks

    async def stream(self, messages: Any, tools: Any = (), options: Any = None) -> AsyncIterator[Any]:
        for _ in range(self._chunks):
            await asyncio.sleep(0)
            yield TextDelta(repr(time.perf_counter()))
        yield Finish("stop")

    def count_tokens(self, messages: Any) -> int:
        return 1

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def model_stream(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]
    graph: Graph[Any] = Graph(Counter)
    graph.add("call", use="model", with_={"prompt": "${input.query}"}, next="end")
    async with compiled(place, graph, model=Talkative(n)) as app:

        async def run() -> Facts:
            arrivals = Arrivals()
            async for event in app.stream("hi"):
                if event.type == "content.delta":
                    arrivals.seen(float(event.delta))  # type: ignore[attr-defined]
            arrivals.ended()
            return arrivals.facts(n)

        yield Timed(run)


@asynccontextmanager
async def slow(place: Place) -> AsyncIterator[Timed]:
    """Short tokens to a consumer that lets the event loop go round many times before it takes the next."""
    n, turns = place.params["n"], place.params["turns"]
    sent = 0
    graph = Graph(Counter)

    async def emit(state: Any, ctx: Context) -> dict[str, int]:
        nonlocal sent
        for number in range(n):
            sent += 1
            await ctx.content(f"{number:5d} ")
        return {"n": 1}

    graph.node(emit, next="end")
    async with compiled(place, graph) as app:

        async def run() -> Facts:
            nonlocal sent
            sent = seen = ahead = 0
            async for event in app.stream({}):
                if event.type == "content.delta":
                    seen += 1
                    ahead = max(ahead, sent - seen)
                    for _ in range(turns):
                        await asyncio.sleep(0)
            assert seen == n
            return {"ahead": ahead}

        yield Timed(run)


CASES: dict[str, Case] = {"stream": stream, "model_stream": model_stream, "slow": slow}
