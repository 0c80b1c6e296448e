"""Code that ignores its cancellation can't be ended; it is named, and nobody waits for it without a word (spec 2.2)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from graphflow import Context, Graph, ThreadBusy
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.testing import FakeClock
from tests.runtime.graphs import Counter


def stubborn(at_once: int) -> tuple[Graph, asyncio.Event, asyncio.Event]:
    """A node, alone or with an idle one beside it, that swallows every cancellation until the test lets it end."""
    graph, begun, end = Graph(Counter), asyncio.Event(), asyncio.Event()

    async def hold(state: Any, ctx: Context) -> None:
        begun.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    async def idle(state: Any, ctx: Context) -> None:
        await asyncio.Event().wait()

    graph.node(name="hold", next="end")(hold)
    if at_once > 1:
        graph.node(name="idle", next="end")(idle)
        graph.parallel("fan", {"a": "hold", "b": "idle"}, next="end")
        graph.start("fan")
    return graph, begun, end


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_node_that_swallows_every_cancellation_is_logged_once_and_its_canceller_is_told(
    store: Checkpointer, caplog: pytest.LogCaptureFixture, at_once: int
) -> None:
    graph, begun, end = stubborn(at_once)
    clock = FakeClock()
    app = graph.compile(checkpointer=store, clock=clock)
    running = asyncio.ensure_future(app.run({}, "t", run_id="run-1"))  # noqa: TID251 - awaited below
    await begun.wait()
    cancels = [asyncio.ensure_future(app.thread("t").cancel()) for _ in range(2)]  # noqa: TID251 - awaited below
    while clock.sleeps.count(10.0) < 3:
        await asyncio.sleep(0)
    try:
        with caplog.at_level(logging.WARNING, "graphflow.nodes"):
            while not all(cancel.done() for cancel in cancels) or not caplog.records:
                clock.advance(10)
                await asyncio.sleep(0)
        for cancel in cancels:
            with pytest.raises(ThreadBusy, match="is cancelled, but the code of 'hold' ignores that"):
                await cancel
    finally:
        end.set()  # the loop can't close before it ends
    (line,) = [record for record in caplog.records if record.name == "graphflow.nodes"]
    assert "node 'hold' was cancelled and its code still runs after 10 s" in line.message
    assert line.facts == {"node": "hold", "run_id": "run-1", "thread_id": "t"}  # type: ignore[attr-defined]
    assert (await running).status == "cancelled"
    assert await app.thread("t").cancel() is False


async def test_a_node_that_ends_leaves_no_word(store: Checkpointer, caplog: pytest.LogCaptureFixture) -> None:
    graph, begun, end = stubborn(1)
    clock = FakeClock()
    app = graph.compile(checkpointer=store, clock=clock)
    running = asyncio.ensure_future(app.run({}, "t"))  # noqa: TID251 - awaited below
    await begun.wait()
    cancel = asyncio.ensure_future(app.thread("t").cancel())  # noqa: TID251 - awaited below
    while 10.0 not in clock.sleeps:
        await asyncio.sleep(0)
    end.set()
    assert await cancel and (await running).status == "cancelled"
    clock.advance(100)
    assert not caplog.records
