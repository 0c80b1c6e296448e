"""Many live runs do not make each step dearer by making the garbage collector walk through all of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, SqliteCheckpointer, relax_collector
from tests.runtime.graphs import Counter

STEPS = 12


@asynccontextmanager
async def closing(store: SqliteCheckpointer) -> AsyncIterator[SqliteCheckpointer]:
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def collections_of(folder: Path, runs: int) -> list[int]:
    """How often the collector ran, by generation, from the moment at which all these runs are live to their end."""
    live, all_live = 0, asyncio.Event()
    graph = Graph(Counter, budget={"maxSteps": 2 * STEPS})

    @graph.node(next=[{"if": f"state.n < {STEPS}", "to": "step"}, {"to": "end"}])
    async def step(state: Any) -> dict[str, int]:
        nonlocal live
        if state["n"] == 0:
            live += 1
            if live == runs:
                all_live.set()
            await all_live.wait()
        return {"n": state["n"] + 1}

    async with closing(SqliteCheckpointer(folder / f"{runs}.db")) as store:
        app = graph.compile(checkpointer=store)
        relax_collector(store)
        tasks = [asyncio.ensure_future(app.run({"n": 0}, f"t{i}")) for i in range(runs)]  # noqa: TID251 - awaited below
        await all_live.wait()
        before = [row["collections"] for row in gc.get_stats()]
        results = await asyncio.gather(*tasks)
        after = [row["collections"] for row in gc.get_stats()]
    assert {result.state["n"] for result in results} == {STEPS}
    return [b - a for a, b in zip(before, after, strict=True)]


async def test_four_times_as_many_live_runs_bring_no_more_collections_a_step(tmp_path: Path) -> None:
    few, *twice = [await collections_of(tmp_path, runs) for runs in (100, 400, 401)]
    many = min(twice, key=sum)  # what other threads of the process leave behind is in one of them at most
    assert sum(many) <= 4 * sum(few) + 4, "at most as many a step"
    assert few[2] == many[2] == 0, "and none that looks through everything"


async def test_the_collector_goes_on_to_take_what_a_program_leaves_in_cycles(tmp_path: Path) -> None:
    async with closing(SqliteCheckpointer(tmp_path / "s.db")) as store:
        relax_collector(store)
    before = gc.get_stats()[0]["collected"]
    for _ in range(gc.get_threshold()[0]):
        ring: list[Any] = []
        ring.append(ring)
    assert gc.get_stats()[0]["collected"] > before and gc.isenabled()
