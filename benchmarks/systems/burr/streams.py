"""Streams: at full speed, paced, and to a consumer that is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from burr.core import State  # noqa: TC002 – Burr reads the annotations
from burr.core.action import streaming_action
from harness import Arrivals, Case, Facts, Pace, Place, Timed

from systems.burr.base import build


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    n, runs = place.params["n"], place.params.get("runs", 1)

    @streaming_action(reads=[], writes=["n"])
    async def emit(state: State) -> Any:
        pace = Pace(place.params.get("gap", 0.0))
        for _ in range(n):
            await asyncio.sleep(pace.pause())
            yield {"at": time.perf_counter()}, None
        yield {"n": 1}, state.update(n=1)

    async def one(arrivals: Arrivals) -> None:
        app = await build({"emit": emit}, [], {}, place.thread(), None)
        _, events = await app.astream_result(halt_after=["emit"])
        async for event in events:
            if "at" in event:
                arrivals.seen(event["at"])
        arrivals.ended()

    async def run() -> Facts:
        arrivals = Arrivals()
        await (one(arrivals) if runs == 1 else asyncio.gather(*(one(arrivals) for _ in range(runs))))
        return arrivals.facts(n * runs)

    if runs > 1:
        await one(Arrivals())  # what is loaded once is no cost of a run
    yield Timed(run)


@asynccontextmanager
async def slow(place: Place) -> AsyncIterator[Timed]:
    n, turns = place.params["n"], place.params["turns"]
    sent = 0

    @streaming_action(reads=[], writes=["n"])
    async def emit(state: State) -> Any:
        nonlocal sent
        for number in range(n):
            sent += 1
            yield {"token": f"{number:5d} "}, None
        yield {"n": 1}, state.update(n=1)

    async def run() -> Facts:
        nonlocal sent
        sent = seen = ahead = 0
        app = await build({"emit": emit}, [], {}, place.thread(), None)
        _, events = await app.astream_result(halt_after=["emit"])
        async for event in events:
            if "token" in event:
                seen += 1
                ahead = max(ahead, sent - seen)
                for _ in range(turns):
                    await asyncio.sleep(0)
        assert seen == n
        return {"ahead": ahead}

    yield Timed(run)


CASES: dict[str, Case] = {"stream": stream, "slow": slow}
