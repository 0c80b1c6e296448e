"""Inputs that wait behind an open question cost a server nothing: it asks the store as often for many as for none."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.runtime.recovery import PAGE
from graphflow.runtime.run_request import RunRequest
from graphflow.service.application import Application
from graphflow.service.runs.input_queue import ServerRecovery, add
from graphflow.service.runs.sweep import look
from graphflow.settings import load_settings
from graphflow.testing import FakeClock
from graphflow.testing.checkpointer.suite import Driver, facts


class CountingStore(MemoryCheckpointer):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if callable(found) and not name.startswith("_"):
            self.asked[name] += 1
        return found


async def looked(app: Application) -> None:
    """One look of the sweep, and what follows from it."""
    await look(app, ServerRecovery(app))
    await asyncio.gather(*app.queue.draining.values())


@pytest.mark.parametrize("count", [2, 40])
async def test_what_is_asked_does_not_grow_with_the_inputs_behind_open_questions(folder: Path, count: int) -> None:
    store = CountingStore()
    async with Application(load_settings(folder), checkpointer=store) as app:
        app.queue.serving = True
        for n in range(count):
            await app.graph("ask").run({"query": "hi"}, thread_id=f"t{n}")
            await add(app, RunRequest(input="later", thread_id=f"t{n}", run_id=f"later-{n}", agent_key="ask"))
        await looked(app)
        store.asked.clear()
        await looked(app)
        assert sum(store.asked.values()) <= 4, store.asked
        assert await store.queue_size("input") == count


async def test_a_thread_that_can_not_be_taken_over_is_told_once_and_tried_again_at_longer_and_longer_intervals(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = MemoryCheckpointer(), FakeClock()
    async with Application(load_settings(folder), checkpointer=store, clock=clock) as app:
        app.queue.serving = True
        await app.runs.ready()
        for n in range(PAGE + 20):
            await store.take(f"t{n}", owner="another/process/x", now=clock.now_ms(), lease_ms=1)
            driver = Driver(store, f"t{n}", 1, None)
            driver.begin()
            gone = facts(status="running", agent_key="gone", updated_at=clock.now_ms())
            await driver.commit(driver.record(), facts=gone)
        tried: Counter[str] = Counter()
        graph_of_thread = app.graph_of_thread

        async def counted(thread_id: str) -> Any:
            tried[thread_id] += 1
            return await graph_of_thread(thread_id)

        app.graph_of_thread = counted  # type: ignore[method-assign]
        for _ in range(120):
            clock.advance(1)
            await looked(app)
    assert len(tried) == PAGE + 20, "those that fail do not keep the others from their turn"
    assert set(tried.values()) <= {6, 7}, "after 2, 4, 8, 16, 32 and 60 seconds"
    told = [record.getMessage() for record in caplog.records if record.name == "graphflow.runtime"]
    assert len(told) == PAGE + 20
