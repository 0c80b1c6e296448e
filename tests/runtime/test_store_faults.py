"""When the embedded store can't be written or read: the run fails cleanly, what was there stays readable (spec 4.4)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, SqliteCheckpointer
from graphflow.checkpoints.sql.migrations import steps_of
from graphflow.checkpoints.sqlite import schema
from graphflow.errors import StoreError
from graphflow.runtime.compiled_graph import CompiledGraph
from tests.runtime.graphs import Counter, loop


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteCheckpointer]:
    store = SqliteCheckpointer(tmp_path / "t.db", busy_timeout_s=0.1)
    yield store
    await store.close()


def growing(fault_at: int, fault: Any) -> Graph:
    """A loop of ten steps that writes 20 KiB each; the fault comes about in one of them."""
    graph = Graph(Counter, budget={"maxSteps": 1000})

    @graph.node(next=[{"if": "state.n < 10", "to": "work"}, {"to": "end"}])
    async def work(state: Any) -> dict[str, Any]:
        if state.n == fault_at:
            await fault()
        return {"n": state.n + 1, "log": [os.urandom(10_000).hex()]}

    return graph


def forget(app: CompiledGraph, thread_id: str) -> None:
    runs = app.host.runs
    assert runs is not None
    runs.forget(thread_id)


async def assert_readable_up_to(app: CompiledGraph, steps: int) -> None:
    """Every checkpoint that history shows can be loaded, and there are as many as were durable."""
    rows = await app.thread("t").history()
    assert max(row.step for row in rows) >= steps
    for row in rows:
        state = await app.thread("t").state(row.id)
        assert (state.values.n, len(state.values.log)) == (row.step, row.step)


async def test_a_disk_that_fills_up_fails_the_run_and_room_lets_it_go_on(store: SqliteCheckpointer) -> None:
    async def fill() -> None:
        pages = (await store._write(lambda db: db.execute("PRAGMA page_count").fetchone()))[0]
        await store._write(lambda db: db.execute(f"PRAGMA max_page_count = {pages + 3}").fetchone())

    app = growing(4, fill).compile(checkpointer=store)
    with pytest.raises(StoreError, match="disk is full") as caught:
        await app.run(thread_id="t", durability="sync")
    assert caught.value.code == "store_failed"
    forget(app, "t")
    await assert_readable_up_to(app, 4)
    await store._write(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
    done = await loop(10).compile(checkpointer=store).run(thread_id="other")
    assert done.status == "completed"
    resumed = await app.resume("t")
    assert (resumed.status, resumed.state.n) == ("completed", 10)


async def test_a_file_that_becomes_read_only_fails_the_run(store: SqliteCheckpointer) -> None:
    async def protect() -> None:
        await store._write(lambda db: db.execute("PRAGMA query_only = ON").fetchone())

    app = growing(4, protect).compile(checkpointer=store)
    with pytest.raises(StoreError, match="read-only") as caught:
        await app.run(thread_id="t", durability="sync")
    assert caught.value.code == "store_failed"
    forget(app, "t")
    await assert_readable_up_to(app, 4)


@contextmanager
def locked_at(store: SqliteCheckpointer, step: int) -> Iterator[CompiledGraph]:
    """A graph in whose step another process locks the store until the end: no write passes, not even one that gives a thread back."""
    other: list[sqlite3.Connection] = []

    async def lock() -> None:
        other.append(sqlite3.connect(store.path, isolation_level=None))
        other[0].execute("BEGIN IMMEDIATE")

    yield growing(step, lock).compile(checkpointer=store)
    other[0].execute("ROLLBACK")
    other[0].close()


async def test_a_store_that_stays_locked_fails_the_run_and_later_ones_pass(store: SqliteCheckpointer) -> None:
    with locked_at(store, 4) as app:
        with pytest.raises(StoreError, match="locked") as caught:
            await app.run(thread_id="t", durability="sync")
        assert caught.value.code == "store_failed"
        forget(app, "t")
        await assert_readable_up_to(app, 4)  # readers never wait for a writer
    done = await loop(10).compile(checkpointer=store).run(thread_id="other")
    assert done.status == "completed"


@pytest.mark.parametrize("step", [4, 9], ids=["in the middle", "with the commit that would give it back"])
async def test_a_thread_that_could_not_be_given_back_goes_on_as_soon_as_the_store_can_be_written(
    store: SqliteCheckpointer, step: int
) -> None:
    with locked_at(store, step) as app, pytest.raises(StoreError, match="locked"):
        await app.run(thread_id="t", durability="sync")
    row = await store.thread("t")
    assert row is not None and row.owner == store.owner
    again = growing(-1, None).compile(checkpointer=store)
    resumed = await again.resume("t")  # at once: nobody waits for the lease to run out
    assert (resumed.status, resumed.state.n) == ("completed", 10)


async def test_a_thread_that_could_not_be_given_back_is_not_renewed_with_those_that_run(
    store: SqliteCheckpointer,
) -> None:
    with locked_at(store, 4) as app, pytest.raises(StoreError, match="locked"):
        await app.run(thread_id="t", durability="sync")
    runs = app.host.runs
    assert runs is not None
    await runs.leases.renew([])
    row = await store.thread("t")
    assert row is not None and row.owner is None  # any other process may take it


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET data = x'ff' WHERE record = (SELECT max(record) FROM records)",
        "UPDATE records SET data = substr(data, 1, length(data) / 2) WHERE record = (SELECT max(record) FROM records)",
        "UPDATE items SET data = x'2b01c1' WHERE item = (SELECT max(item) FROM items)",
        "DELETE FROM items WHERE item = (SELECT max(item) FROM items)",
        "DELETE FROM records WHERE record = (SELECT max(record) FROM records)",
    ],
)
async def test_a_corrupt_row_is_named_and_checkpoints_before_it_load(store: SqliteCheckpointer, damage: str) -> None:
    async def nothing() -> None: ...

    app = growing(1, nothing).compile(checkpointer=store)
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    before = await app.thread("t").state(rows[4].id)
    await store._write(lambda db: db.execute(damage))
    forget(app, "t")
    with pytest.raises(StoreError) as caught:
        await app.thread("t").state()
    assert caught.value.code == "store_failed"
    assert await app.thread("t").state(rows[4].id) == before
    with pytest.raises(StoreError):
        await app.run(thread_id="t")
    fork = await app.thread("t").fork(rows[4].id) if "items" in damage else None
    assert fork is None or (await fork.state()).values == before.values


async def test_a_newer_store_is_refused_before_anything_runs(store: SqliteCheckpointer) -> None:
    await loop(2).compile(checkpointer=store).run(thread_id="t")
    await store._write(lambda db: db.execute("PRAGMA user_version = 99"))
    await store.close()
    newer = SqliteCheckpointer(store.path)
    with pytest.raises(StoreError) as caught:
        await loop(2).compile(checkpointer=newer).run(thread_id="t")
    assert caught.value.code == "store_version_unsupported"
    await newer.close()


# --- migrations ------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, isolation_level=None, **options)
    try:
        yield db
    finally:
        db.close()


def shape(db: sqlite3.Connection) -> list[Any]:
    return db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


@pytest.mark.parametrize("begun", range(4))
def test_a_kill_in_the_middle_of_a_migration_leaves_the_schema_of_before(tmp_path: Path, begun: int) -> None:
    """Whichever version a file has, and whichever statement is the last: all of the new schema, or nothing of it."""
    every = steps_of(schema.MIGRATIONS)
    steps = every[:begun]
    statements = [statement.sql for _, step in every[begun:] for statement in step]
    assert statements or begun == len(every)
    for last in range(len(statements)):
        path = tmp_path / f"{last}.db"
        with opened(path) as db:
            for _, step in steps:
                db.executescript(";".join(statement.sql for statement in step))
            if begun:
                db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {begun}")
            before = shape(db)

        class Dies(sqlite3.Connection):
            left = last

            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql in statements:
                    if not self.left:
                        raise Killed
                    self.left -= 1
                if sql == "ROLLBACK" and self.left == 0 and self.in_transaction:
                    raise Killed  # nobody is there to roll back: the file's journal has to
                return super().execute(sql, *parameters)

        with pytest.raises(Killed), opened(path, factory=Dies) as db:
            schema.migrate(db, path)
        with opened(path) as db:
            assert shape(db) == before
            schema.migrate(db, path)
            assert schema.stored_version(db, path) == len(every)


async def test_a_store_of_the_first_version_is_brought_up_to_date_with_all_that_is_in_it(tmp_path: Path) -> None:
    first = min(schema.MIGRATIONS.glob("*.sql"))
    with opened(tmp_path / "t.db") as db:
        db.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
        db.executescript(first.read_text(encoding="utf-8"))
        db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO lineages (lineage, number, thread, parent, cut) VALUES (1, 5, 't', NULL, 0)")
        db.execute(
            "INSERT INTO threads (id, status, updated_at, lineage, ordinal, fence, lease_until, created_at)"
            " VALUES ('t', 'idle', 1, 1, 0, 3, 0, 1)"
        )
        db.execute("INSERT INTO inputs (thread, at, body) VALUES ('t', 1, x'01')")
    store = SqliteCheckpointer(tmp_path / "t.db")
    row = await store.thread("t")
    assert row is not None
    assert (row.fence, row.queued) == (3, True)
    assert await store.queued("t") == (1, b"\x01")
    await store.close()
