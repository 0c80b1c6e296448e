"""Who holds the event loop is named: how long, and by which node."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import graphflow
from graphflow.runtime import loop_watch

WATCHES: list[loop_watch.LoopWatch] = []


@pytest.fixture
def watch() -> Iterator[loop_watch.LoopWatch]:
    made = graphflow.watch_loop(0.02)
    WATCHES[:] = [made]
    yield made
    WATCHES.clear()


def graph(body: Any) -> Any:
    builder = graphflow.Graph({"type": "object", "properties": {"n": {"type": "integer"}}})

    @builder.node(name="quick", next="slow")
    async def quick(state: Any) -> None:
        return None

    builder.node(name="slow", next="end")(body)
    return builder.compile()


def blocks(state: Any) -> None:
    """Holds the loop until it has been seen."""
    (watch,) = WATCHES
    while watch._seen[0] != watch._due or time.monotonic() - watch._due < 0.03:
        time.sleep(0.001)


async def until_beat() -> None:
    for _ in range(5):
        await asyncio.sleep(loop_watch.BEAT_S)


async def blocks_inside(state: Any) -> None:
    blocks(state)


async def test_a_node_that_blocks_the_loop_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture, watch: loop_watch.LoopWatch
):
    with caplog.at_level(logging.WARNING, "graphflow.runtime"), watch:
        await graph(blocks_inside).run({}, "t")
        await until_beat()
    assert watch.longest_s >= 0.01
    lines = [record for record in caplog.records if "blocked" in record.message and "'slow'" in record.message]
    assert lines, caplog.text
    facts = lines[0].__dict__["facts"]
    assert facts["node"] == "slow"
    assert facts["thread_id"] == "t"
    assert "blocks" in facts["at"]


async def test_what_blocks_outside_of_nodes_has_its_place(
    caplog: pytest.LogCaptureFixture, watch: loop_watch.LoopWatch
):
    with caplog.at_level(logging.WARNING, "graphflow.runtime"), watch:
        blocks(None)
        await until_beat()
    lines = [record.message for record in caplog.records if "something outside of nodes" in record.message]
    assert any("blocks" in line for line in lines), caplog.text


async def test_nothing_watches_after_its_end_and_nothing_unless_it_is_asked_for():
    async def waits(state: Any) -> None:
        await asyncio.sleep(0)

    before = set(threading.enumerate())  # a watch that ended a moment ago may have its thread still
    await graph(waits).run({})
    assert set(threading.enumerate()) <= before
    with graphflow.watch_loop(report_s=0.04) as watch:
        assert watch._thread.is_alive()
    await asyncio.to_thread(watch._thread.join, 10)
    assert not watch._thread.is_alive()
