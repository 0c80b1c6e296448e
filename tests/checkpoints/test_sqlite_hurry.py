"""Commits that are written in the event loop's thread: when that is done, and what it may not disturb (ADR 0003)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph
from graphflow.checkpoints.commit_queue import QueuedCall
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.encryption.cipher import new_key
from graphflow.checkpoints.sqlite import writer_thread
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import Fenced, StoreError
from graphflow.testing.checkpointer.suite import drive, new_id


@pytest.fixture(autouse=True)
def any_disk_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_thread, "SLOW_TRANSACTION_S", 60.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteCheckpointer]:
    store = SqliteCheckpointer(tmp_path / "threads.db", busy_timeout_s=5)
    await store.setup()
    yield store
    await store.close()


async def test_a_lone_commit_is_durable_when_hurry_returns(store: SqliteCheckpointer) -> None:
    life = await drive(store)
    first = life.commit(life.record(b"1"), awaited=True)
    store.hurry()
    assert first.done
    second = life.commit(life.record(b"2"), awaited=True)
    third = life.commit(life.record(b"3"), awaited=True)
    store.hurry()
    assert second.done and third.done and third.error is None
    with sqlite3.connect(store.path) as other:
        assert other.execute("SELECT count(*) FROM records").fetchone() == (3,)
    await life.commit(life.record(b"4"))
    loaded = await store.load(life.thread_id)
    assert loaded is not None and loaded.thread.ordinal == 4


async def test_what_nobody_hurries_is_written_all_the_same(store: SqliteCheckpointer) -> None:
    life = await drive(store)
    await life.commit(life.record(b"1"), awaited=True)
    durable = life.commit(life.record(b"2"), awaited=True)
    await store.release(life.thread_id, life.fence)
    assert durable.done and durable.error is None


async def test_the_loop_waits_for_nobody_else_s_lock(store: SqliteCheckpointer) -> None:
    life = await drive(store)
    await life.commit(life.record())
    with sqlite3.connect(store.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        durable = life.commit(life.record(), awaited=True)
        before = asyncio.get_running_loop().time()
        store.hurry()
        assert not durable.done and asyncio.get_running_loop().time() - before < 2
        other.execute("COMMIT")
    await durable  # the thread is patient
    assert durable.error is None


async def test_runs_side_by_side_are_left_to_the_thread(store: SqliteCheckpointer) -> None:
    one, other = await drive(store, "one"), await drive(store, "other")
    await one.commit(one.record())
    await other.commit(other.record())
    durable = one.commit(one.record(), awaited=True)
    store.hurry()
    assert not durable.done
    await durable


async def test_a_loop_with_other_work_is_not_kept(store: SqliteCheckpointer) -> None:
    life = await drive(store)
    loop = asyncio.get_running_loop()
    for _ in range(2):
        loop.call_soon(lambda: None)
    durable = life.commit(life.record(), awaited=True)
    store.hurry()
    assert not durable.done
    await durable


async def test_large_commits_and_slow_disks_are_left_to_the_thread(
    store: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = await drive(store)
    large = life.commit(life.record(b"x" * writer_thread.MAX_BYTES_ON_LOOP), awaited=True)
    store.hurry()
    assert not large.done
    await large
    monkeypatch.setattr(writer_thread, "SLOW_TRANSACTION_S", 0.0)
    assert (await _hurried(store, life), await _hurried(store, life)) == (True, False)


async def _hurried(store: SqliteCheckpointer, life: Any) -> bool:
    durable = life.commit(life.record(), awaited=True)
    store.hurry()
    done = bool(durable.done)
    await durable
    return done


async def test_what_another_thread_queues_meanwhile_is_left_to_the_writers_thread(
    store: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = await drive(store)
    begin = store._writer._begin_here  # type: ignore[union-attr]
    other = asyncio.new_event_loop()

    def late() -> bool:
        """Something comes between the look at the queue and the writing."""
        begun = begin()
        store._writer.put(call)  # type: ignore[union-attr]
        return begun

    call = QueuedCall(other, lambda db: threading.current_thread().name)
    monkeypatch.setattr(store._writer, "_begin_here", late)
    durable = life.commit(life.record(), awaited=True)
    store.hurry()
    assert durable.done and durable.error is None
    assert not call.future.done()  # it belongs to another loop, which alone may settle it
    assert "writer" in await asyncio.to_thread(other.run_until_complete, call.future)
    other.close()


async def test_a_fenced_epoch_is_told_at_once_and_writes_nothing(store: SqliteCheckpointer) -> None:
    life = await drive(store)
    await life.commit(life.record())
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE threads SET fence = fence + 1")
    durable = life.commit(life.record(), awaited=True)
    store.hurry()
    assert durable.done and isinstance(durable.error, Fenced)
    later = life.commit(life.record(), awaited=True)
    store.hurry()
    with pytest.raises(Fenced):
        await later
    with sqlite3.connect(store.path) as other:
        assert other.execute("SELECT count(*) FROM records").fetchone() == (1,)


async def test_an_encrypted_store_writes_a_lone_run_s_commits_too(tmp_path: Path) -> None:
    store = EncryptedCheckpointer(SqliteCheckpointer(tmp_path / "threads.db"), [f"one:{new_key()}"])
    app = Graph({"type": "object", "properties": {"n": {"type": "integer"}}})

    @app.node
    async def one(state: Any) -> dict[str, int]:
        return {"n": 1}

    result = await app.compile(checkpointer=store).run({}, new_id(), durability="sync")
    assert result.state["n"] == 1
    await store.close()


async def test_after_close_a_hurried_commit_fails(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "threads.db")
    life = await drive(store)
    await store.close()
    durable = life.commit(life.record(), awaited=True)
    store.hurry()
    with pytest.raises(StoreError, match="closed"):
        await durable


async def test_the_log_does_not_grow_without_end(store: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_thread, "WAL_PAGES", 10)
    monkeypatch.setattr(writer_thread, "RETRY_AFTER_COMMITS", 5)
    life = await drive(store)
    done = [await _hurried(store, life) for _ in range(60)]
    assert True in done and False in done
    assert store.path.with_name("threads.db-wal").stat().st_size < 100 * 8192


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_run_lets_the_loop_turn(store: SqliteCheckpointer, durability: Any) -> None:
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, budget={"maxSteps": 99})
    turns = 0

    @graph.node(next=[{"if": "state.n < 90", "to": "add"}, {"to": "end"}])
    async def add(state: Any) -> dict[str, int]:
        if not state["n"]:
            count()
        return {"n": state["n"] + 1}

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_later(0.0001, count)

    result = await graph.compile(checkpointer=store).run({}, new_id(), durability=durability)
    assert result.state["n"] == 90 and turns > 1
