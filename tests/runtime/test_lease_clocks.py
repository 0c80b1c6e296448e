"""Leases that do not depend on a server's wall clock, nor on its event loop being free (E2)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from graphflow import Context, Graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import ThreadBusy
from graphflow.runtime.clock_and_ids import SystemClock
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.lease import ThreadLease
from graphflow.runtime.runs.live_runs import registry_of
from graphflow.runtime.runs.store_time import Moment
from tests.conftest import OpenStore
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.graphs import Counter, chain

LEASE_MS = 200
LONG_LEASE_MS = 2_000
"""Long enough for a thread of a loaded machine to have its turn in a third of it."""


class WrongClock(SystemClock):
    """A host's clock that is off by minutes."""

    def __init__(self, minutes: int) -> None:
        self.off_ms = minutes * 60_000

    def now_ms(self) -> int:
        return super().now_ms() + self.off_ms


async def lease_end(store: Checkpointer) -> int:
    row = await store.thread("t")
    assert row is not None
    return row.lease_until


@pytest.mark.parametrize(("a", "b"), [(-10, 10), (10, -10), (0, 10), (-10, 0)])
@pytest.mark.parametrize("open_store", ["postgres"], indirect=True)
async def test_servers_whose_clocks_differ_neither_steal_a_lease_nor_keep_one(
    open_store: OpenStore, a: int, b: int
) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()
    graph = Graph(Counter)

    @graph.node
    async def hold(state: Any) -> dict[str, Any]:
        at_work.set()
        await go_on.wait()
        return {"n": 1}

    first = graph.compile(checkpointer=open_store(), clock=WrongClock(a))
    other = graph.compile(checkpointer=open_store(), clock=WrongClock(b))
    async with asyncio.timeout(PATIENCE_S):
        run = await launch(first, {}, "t")
        await at_work.wait()
        assert run.journal is not None
        await run.journal.flush()
        with pytest.raises(ThreadBusy):
            await other.run({}, "t")
        assert (await other.thread("t").state()).driven
        go_on.set()
        await run.over.wait()
        assert run.executor.error is None
        # Nobody renews this one: it is free as soon as it has lapsed by the database's clock, and not before.
        mine, theirs = first.host.need_runs(), other.host.need_runs()
        mine.registry.lease_ms = LEASE_MS
        left = await mine.take("left")
        assert await mine.store.stopped(left.lease_until - 1) == []
        while True:
            try:
                taken = await theirs.take("left")
            except ThreadBusy:
                continue
            break
        assert taken.fence == left.fence + 1
        assert theirs.time.now_ms() >= left.lease_until


async def test_a_node_that_blocks_its_event_loop_for_longer_than_its_lease_keeps_its_thread(
    open_store: OpenStore,
) -> None:
    refusals: list[int] = []
    acted: list[str] = []

    async def others() -> None:
        store = open_store()
        runs = chain("a")[0].compile(checkpointer=store).host.need_runs()
        first = until = await lease_end(store)
        while until <= first + LONG_LEASE_MS:  # then it was renewed after the first one's end
            await asyncio.sleep(LONG_LEASE_MS / 20_000)  # no busy loop: who renews needs the processor too
            until = await lease_end(store)
            with pytest.raises(ThreadBusy) as refused:
                await runs.take("t")
            refusals.append(refused.value.detail["retryAfterMs"])
        await store.close()

    graph = Graph(Counter)

    @graph.node(next="second")
    async def block(state: Any, ctx: Context) -> dict[str, Any]:
        thread = threading.Thread(target=lambda: asyncio.run(others()))
        thread.start()
        thread.join()
        await ctx.step("act", lambda: acted.append("act"))
        return {"n": 1}

    @graph.node
    async def second(state: Any) -> dict[str, Any]:
        return {"n": 2}

    store = open_store()
    registry_of(store).lease_ms = LONG_LEASE_MS
    app: CompiledGraph = graph.compile(checkpointer=store)
    async with asyncio.timeout(PATIENCE_S):
        result = await app.run({}, "t")
    assert (result.status, result.state.n, acted) == ("completed", 2, ["act"])
    assert refusals and max(refusals) <= 1000


async def test_a_thread_that_nobody_needs_ends_the_guard(open_store: OpenStore) -> None:
    store = open_store()
    registry = registry_of(store)
    await chain("a")[0].compile(checkpointer=store).run({}, "t")
    assert [keeper.kept_now for keeper in registry._keepers()] == [0]
    assert not registry.guard.look()
    assert registry.guard._thread is None


def test_a_wall_clock_that_is_set_back_makes_no_lease_last_longer() -> None:
    now, uptime = 1_700_000_000_000, 100.0

    async def never() -> None:
        raise AssertionError

    lease = ThreadLease(Moment(now + 15_000, uptime + 15), never, lambda _: None, uptime=lambda: uptime)
    assert not lease.is_over(now)
    assert lease.is_over(now + 15_001)
    uptime += 16
    assert lease.is_over(now - 600_000)
