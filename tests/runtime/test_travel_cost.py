"""A fork and a rewind cost the same however long the history is (E8): counted in statements and rows, not in time."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from graphflow import Context, Graph, SqliteCheckpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.runtime.graphs import Counter


def long_loop(steps: int) -> Graph:
    """A loop of which two steps have a `write` effect."""
    graph = Graph(Counter, budget={"maxSteps": 100_000})

    @graph.node(next=[{"if": f"state.n < {steps}", "to": "work"}, {"to": "end"}])
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        if state.n in (3, steps // 2 + 2):
            await ctx.step("write", lambda: 1)
        return {"n": state.n + 1, "log": ["x" * 100]}

    return graph


async def cost(store: SqliteCheckpointer, action: Any) -> int:
    """Rows that SQLite steps through for an action, in thousands of its machine's instructions, on both connections."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    def watch(db: sqlite3.Connection, handler: Any) -> None:
        db.set_progress_handler(handler, 50)

    for ask in (store._write, store._visit):
        await ask(lambda db: watch(db, tick))
    await action()
    for ask in (store._write, store._visit):
        await ask(lambda db: watch(db, None))
    return count


@pytest.mark.parametrize("what", ["fork near the head", "fork in the middle", "rewind"])
async def test_travelling_costs_the_same_however_long_the_history_is(tmp_path: Path, what: str) -> None:
    costs = []
    for steps in (100, 3000):
        store = SqliteCheckpointer(tmp_path / f"{steps}.db", synchronous="OFF")
        app: CompiledGraph = long_loop(steps).compile(checkpointer=store)
        await app.run(thread_id="t")
        thread = app.thread("t")
        rows = await thread.history()
        at = rows[1].id if what == "fork near the head" else rows[steps // 2].id
        runs = app.host.runs
        assert runs is not None
        runs.forget("t")

        async def travel(thread: Any = thread, at: str = at) -> None:
            if what == "rewind":
                await thread.rewind(at, effects="rerun")
            else:
                await thread.fork(at, effects="rerun")

        costs.append(await cost(store, travel))
        await store.close()
    assert costs[1] < costs[0] * 1.5 + 20, costs
