"""A process that stood still for longer than its lease asks before it acts (E2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Context, Graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import Fenced, ThreadBusy
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.lease_keeper import LEASE_MS
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.testing import FakeClock
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.graphs import Counter, chain


class Paused:
    """A run that stands still in its first of two nodes, between two pieces of text."""

    def __init__(self, store: Checkpointer, clock: FakeClock | None = None) -> None:
        self.clock, self.gate, self.inside = clock or FakeClock(), asyncio.Event(), asyncio.Event()
        self.acted: list[str] = []
        graph = Graph(Counter)

        @graph.node(next="second")
        async def first(state: Any, ctx: Context) -> dict[str, Any]:
            await ctx.content("before ")
            self.inside.set()
            await self.gate.wait()
            await ctx.content("after")
            await ctx.step("read", lambda: self.acted.append("read"), effects="read")
            await ctx.step("write", lambda: self.acted.append("write"))
            return {"n": 1}

        @graph.node
        async def second(state: Any) -> dict[str, Any]:
            self.acted.append("second")
            return {"n": 2}

        self.app: CompiledGraph = graph.compile(checkpointer=store, clock=self.clock)

    async def stand_still(self) -> LiveRun:
        run = await launch(self.app, {}, "t")
        await self.inside.wait()
        assert run.journal is not None
        await run.journal.flush()
        self.clock.advance(LEASE_MS / 1000 + 1)
        return run


@pytest.fixture
def paused(store: Checkpointer) -> Paused:
    return Paused(store)


async def test_who_still_has_the_thread_goes_on_and_says_all_in_order(paused: Paused) -> None:
    run = await paused.stand_still()
    paused.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await run.over.wait()
    assert run.log is not None and run.executor.error is None
    assert paused.acted == ["read", "write", "second"]
    said = list(run.log.ring)
    assert [event.seq for event in said] == list(range(1, len(said) + 1))
    assert "".join(event.delta for event in said if event.type == "content.delta") == "before after"  # type: ignore[attr-defined]
    assert said[-1].type == "run.complete"


async def test_who_has_lost_the_thread_does_nothing_and_says_nothing(paused: Paused, store: Checkpointer) -> None:
    run = await paused.stand_still()
    row = await store.take("t", owner="another/process/x", now=paused.clock.now_ms(), lease_ms=LEASE_MS)
    assert run.log is not None
    said = [event.type for event in run.log.ring]
    paused.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await run.over.wait()
    assert isinstance(run.executor.error, Fenced)
    assert paused.acted == [] and [event.type for event in run.log.ring] == said
    after = await store.thread("t")
    assert after is not None and (after.fence, after.owner, after.head) == (row.fence, row.owner, row.head)


async def test_a_renewal_in_which_the_process_stood_still_renews_nothing(
    paused: Paused, store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await launch(paused.app, {}, "t")
    await paused.inside.wait()
    assert run.journal is not None and run.log is not None
    await run.journal.flush()
    said = [event.type for event in run.log.ring]
    renew = store.renew

    async def while_stopped(owner: str, *, lease_until: int) -> None:
        paused.clock.advance(0.6 * LEASE_MS / 1000)
        await store.take("t", owner="another/process/x", now=paused.clock.now_ms(), lease_ms=LEASE_MS)
        await renew(owner, lease_until=lease_until)

    paused.clock.advance(0.6 * LEASE_MS / 1000)
    monkeypatch.setattr(store, "renew", while_stopped)
    assert run.lease is not None
    await paused.app.host.need_runs().leases.renew([run.lease])
    monkeypatch.setattr(store, "renew", renew)
    paused.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await run.over.wait()
    assert paused.acted == [] and [event.type for event in run.log.ring] == said
    assert isinstance(run.executor.error, Fenced)


async def test_the_caller_of_a_run_that_has_lost_its_thread_gets_thread_busy(
    paused: Paused, store: Checkpointer
) -> None:
    types: list[str] = []

    async def consume() -> None:
        async for event in paused.app.stream({}, "t"):
            types.append(event.type)

    task = asyncio.ensure_future(consume())  # noqa: TID251 - awaited below
    await paused.inside.wait()
    await store.flush()
    paused.clock.advance(LEASE_MS / 1000 + 1)
    await store.take("t", owner="another/process/x", now=paused.clock.now_ms(), lease_ms=LEASE_MS)
    paused.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ThreadBusy, match="another process took the thread"):
            await task
    assert paused.acted == [] and types.count("content.delta") == 1


async def test_who_can_not_find_out_whose_the_thread_is_does_nothing(
    paused: Paused, store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await paused.stand_still()

    async def broken(owner: str, *, lease_until: int) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(store, "renew", broken)
    paused.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await run.over.wait()
    assert isinstance(run.executor.error, Fenced)
    assert "the disk is gone" in str(run.executor.error)
    assert paused.acted == []


async def test_a_thread_that_another_process_drives_is_not_deleted_under_it(store: Checkpointer) -> None:
    clock = FakeClock()
    app = chain("a")[0].compile(checkpointer=store, clock=clock)
    await app.run({}, "t")
    newest = (await app.thread("t").history())[0].id
    row = await store.take("t", owner="another/process/x", now=clock.now_ms(), lease_ms=LEASE_MS)
    for refused in (app.thread("t").delete(), app.thread("t").delete_checkpoint(newest)):
        with pytest.raises(ThreadBusy, match="another process"):
            await refused
    assert len(await app.thread("t").history()) == 2
    await store.release("t", row.fence)
    await app.thread("t").delete()
    assert await store.thread("t") is None
