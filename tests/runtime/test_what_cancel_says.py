"""`Thread.cancel` is true if and only if the store records a run that this call has cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs import live_runs
from tests.conftest import OpenStore
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.graphs import Counter, asking


class Gated:
    """A graph whose one node waits for a gate."""

    def __init__(self) -> None:
        self.graph, self.inside, self.gate = Graph(Counter), asyncio.Event(), asyncio.Event()

        @self.graph.node
        async def work(state: Any) -> dict[str, Any]:
            self.inside.set()
            await self.gate.wait()
            return {"n": 1}

    def over(self, store: Checkpointer) -> CompiledGraph:
        return self.graph.compile(checkpointer=store)


async def status_of(app: CompiledGraph, run_id: str) -> str:
    return next(run.status for run in await app.runs(thread_id="t") if run.run_id == run_id)


async def has_recorded(store: Checkpointer, run_id: str) -> None:
    while (row := await store.thread("t")) is None or row.facts.run_id != run_id:
        await asyncio.sleep(0)


async def is_asked_to_stop(store: Checkpointer) -> None:
    while not await store.queue("t", kind="stop"):
        await asyncio.sleep(0)


async def test_a_run_of_another_process_that_completes_first_was_not_cancelled(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_runs, "WATCH_S", PATIENCE_S)  # the process looks too late
    gated, store = Gated(), open_store()
    here, there = gated.over(store), gated.over(open_store())
    async with asyncio.timeout(PATIENCE_S):
        live = await launch(there, {}, "t")
        await gated.inside.wait()
        cancelling = asyncio.ensure_future(here.thread("t").cancel())  # noqa: TID251 - awaited below
        await is_asked_to_stop(store)
        gated.gate.set()
        assert await cancelling is False
    assert await status_of(here, live.run_id) == "completed"


async def test_nor_was_it_when_another_run_has_begun_by_then(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_runs, "WATCH_S", PATIENCE_S)
    gated, store = Gated(), open_store()
    here, there = gated.over(store), gated.over(open_store())
    async with asyncio.timeout(PATIENCE_S):
        first = await launch(there, {}, "t")
        await gated.inside.wait()
        cancelling = asyncio.ensure_future(here.thread("t").cancel())  # noqa: TID251 - awaited below
        await is_asked_to_stop(store)
        gated.gate.set()
        await first.over.wait()
        gated.gate.clear()
        gated.inside.clear()
        second = await launch(there, {}, "t")
        await gated.inside.wait()
        assert await cancelling is False
        gated.gate.set()
        await second.over.wait()
    assert [await status_of(here, run.run_id) for run in (first, second)] == ["completed", "completed"]


async def test_a_run_whose_process_hears_of_it_in_time_is_cancelled(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_runs, "WATCH_S", 0.02)
    gated = Gated()
    here, there = gated.over(open_store()), gated.over(open_store())
    async with asyncio.timeout(PATIENCE_S):
        live = await launch(there, {}, "t")
        await gated.inside.wait()
        assert await here.thread("t").cancel() is True
    assert await status_of(here, live.run_id) == "cancelled"


async def test_a_run_of_this_process_that_has_completed_was_not_cancelled(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated, held, let_go = Gated(), asyncio.Event(), asyncio.Event()
    app = gated.over(store)

    async def slow() -> None:
        held.set()
        await let_go.wait()
        await acknowledged()

    async with asyncio.timeout(PATIENCE_S):
        live = await launch(app, {}, "t")
        await gated.inside.wait()
        acknowledged = live.executor.commits.acknowledged
        monkeypatch.setattr(live.executor.commits, "acknowledged", slow)
        gated.gate.set()
        await held.wait()
        # The last commit is on its way: the run still holds the thread, and nothing of it can be cancelled any more.
        cancelling = asyncio.ensure_future(app.thread("t").cancel())  # noqa: TID251 - awaited below
        while not live.executor.left:
            await asyncio.sleep(0)
        let_go.set()
        assert await cancelling is False
    assert await status_of(app, live.run_id) == "completed"


async def test_a_run_is_cancelled_also_before_its_first_tick(store: Checkpointer) -> None:
    gated = Gated()
    app = gated.over(store)
    runs = await app.host.open_runs()
    async with asyncio.timeout(PATIENCE_S):
        live = await launch(app, {}, "t")
        await runs.preempt("t")
    assert await status_of(app, live.run_id) == "cancelled"
    assert not gated.inside.is_set()


async def test_a_waiting_run_is_cancelled_once(store: Checkpointer) -> None:
    app = asking()[0].compile(checkpointer=store)
    waiting = await app.run({}, "t")
    assert await app.thread("t").cancel() is True
    assert await app.thread("t").cancel() is False
    assert await status_of(app, waiting.run_id) == "cancelled"
