"""Runs share slices of the event loop: nobody waits longer than a slice, and the order of branches does not depend on it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from graphflow import CompiledGraph, load_graph
from graphflow.graph.engine import light_event as module
from graphflow.graph.engine.light_event import SLICE_S, Turns
from tests.patience import PATIENCE_S
from tests.runtime.branches import STATE, document


class Time:
    """Each look at it takes so long."""

    def __init__(self, step_s: float, random: Random | None = None) -> None:
        self.now, self.step_s, self.random = 1.0, step_s, random

    def __call__(self) -> float:
        self.now += self.step_s * (self.random.random() if self.random else 1)
        return self.now


async def give(n: int) -> int:
    return n


def chain(count: int) -> CompiledGraph:
    nodes = {
        f"n{n}": {"use": "fn:give", "with": {"n": n}, "next": f"n{n + 1}" if n + 1 < count else "end"}
        for n in range(count)
    }
    return load_graph(document(nodes, start="n0"), functions={"give": give})


def wide() -> CompiledGraph:
    """Branches of three nodes each, none of which ever awaits."""
    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "a", "next": "end"},
        **{
            name: {"use": "fn:give", "with": {"n": "${item}"}, "set": {"results": "[out]"}, "next": following}
            for name, following in (("a", "b"), ("b", "c"), ("c", "end"))
        },
    }
    state = {"type": "object", "properties": {**STATE, "items": {"type": "array", "default": list(range(20))}}}
    return load_graph(document(nodes, state=state), functions={"give": give})


async def turns_during(doing: Any) -> int:
    """How often another task has its turn meanwhile."""
    task = asyncio.ensure_future(doing)  # noqa: TID251 - awaited below
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    await task
    return count


@pytest.mark.parametrize("app", [chain(100), wide()], ids=["chain", "fan"])
async def test_nodes_that_never_await_give_the_loop_back_after_a_slice(
    app: CompiledGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "perf_counter", Time(0.0))
    quick = await turns_during(app.run({}))
    monkeypatch.setattr(module, "perf_counter", Time(SLICE_S / 2))
    slow = await turns_during(app.run({}))
    assert slow >= quick + 10


async def order(app: CompiledGraph) -> list[str]:
    events = [event async for event in app.stream({})]
    return [f"{event.type} {getattr(event, 'path', '')} {getattr(event, 'node', '')}" for event in events]


@pytest.mark.parametrize("seed", range(5))
async def test_the_order_of_events_is_the_same_however_long_each_node_takes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = wide()
    monkeypatch.setattr(module, "perf_counter", Time(0.0))
    expected = await order(app)
    monkeypatch.setattr(module, "perf_counter", Time(SLICE_S, Random(seed)))
    assert await order(app) == expected


async def test_runs_of_one_loop_have_their_turns_in_line_and_all_of_them_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "perf_counter", Time(SLICE_S))
    results = await asyncio.gather(*(chain(20).run({}) for _ in range(5)), *(wide().run({}) for _ in range(2)))
    assert {result.status for result in results} == {"completed"}


async def test_whoever_is_cancelled_in_line_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "perf_counter", Time(2 * SLICE_S))
    line = Turns()
    came: list[int] = []

    async def come(number: int) -> None:
        await line.take()
        came.append(number)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(come(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.sleep(0)
        tasks[3].cancel()
    assert came == [0, 1, 4, 5]


async def test_a_run_that_is_cancelled_in_line_begins_no_further_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "perf_counter", Time(2 * SLICE_S))
    begun: list[int] = []

    async def note(n: int) -> int:
        begun.append(n)
        return n

    nodes = {f"n{n}": {"use": "fn:note", "with": {"n": n}, "next": f"n{n + 1}" if n < 50 else "end"} for n in range(51)}
    app = load_graph(document(nodes, start="n0"), functions={"note": note})
    task = asyncio.ensure_future(app.run({}))  # noqa: TID251 - awaited below
    while not begun:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(begun) < 10
