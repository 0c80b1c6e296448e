"""A question: until it, and from its answer on; warm, and in a new process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from burr.core import State, action
from harness import Case, Facts, Place, Timed

from systems.burr.base import add_one, load, persister


@action(reads=["n"], writes=["n"])
async def ask(state: State, answer: int) -> State:
    return state.update(n=state["n"] + answer)


async def until_question(store: Any, name: str) -> None:
    app = await load({"before": add_one(), "ask": ask}, [("before", "ask")], {"n": 0}, name, store)
    await app.arun(halt_before=["ask"])


async def answered(store: Any, name: str) -> None:
    app = await load({"before": add_one(), "ask": ask}, [("before", "ask")], {"n": 0}, name, store)
    _, _, state = await app.arun(halt_after=["ask"], inputs={"answer": 41})
    assert state["n"] == 42


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    async with persister(place) as store:

        async def run() -> Facts:
            name, start = place.thread(), time.perf_counter()
            await until_question(store, name)
            paused = time.perf_counter()
            await answered(store, name)
            return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

        yield Timed(run)


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    async with persister(place) as store:
        yield Timed(lambda: until_question(store, "cold") if place.phase == "pause" else answered(store, "cold"))


CASES: dict[str, Case] = {"pause": pause, "cold": cold}
