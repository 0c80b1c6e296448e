"""What the embedded store promises beyond the port: crashes, other processes, errors, size (spec 4.4, E2)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import sqlite3
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphflow.checkpoints.process_lock import OwnerLock, new_owner
from graphflow.checkpoints.rows import Keep
from graphflow.checkpoints.sqlite import schema
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import Fenced, StoreError, ThreadBusy
from graphflow.testing.checkpointer.suite import LEASE, NOW, Driver, drive, facts, messages, new_id, refused
from tests.forked import ForkedProcess, python

Start = Callable[..., ForkedProcess]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteCheckpointer]:
    store = SqliteCheckpointer(tmp_path / "threads.db", busy_timeout_s=0.2)
    await store.setup()
    yield store
    await store.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program of children.py on the test's store; what still runs at the end is killed."""
    running: list[ForkedProcess] = []

    def run(name: str, *arguments: str) -> ForkedProcess:
        program, store = Path(__file__).with_name("children.py"), tmp_path / "threads.db"
        process = python(program, name, store, *arguments, pipes=("stdin", "stdout"), session=True)
        running.append(process)
        return process

    yield run
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the children of children too: each process leads a session
        process.communicate()


def line(process: ForkedProcess) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def pragma(store: SqliteCheckpointer, words: str) -> Any:
    """Awaitable: a PRAGMA on the writing connection."""
    return store._write(lambda db: db.execute(f"PRAGMA {words}").fetchall())


def raw(store: SqliteCheckpointer, *statements: str) -> None:
    """Changes the file behind the store's back."""
    db = sqlite3.connect(store.path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


# --- crashes and other processes -------------------------------------------------------------------


@pytest.mark.parametrize("acknowledged", [1, 100, 700])
async def test_kill_9_loses_a_suffix_at_most_and_nothing_that_was_acknowledged(
    start: Start, tmp_path: Path, acknowledged: int
) -> None:
    process = start("commits")
    said = [line(process).split() for _ in range(acknowledged)]
    process.kill()
    assert process.stdout is not None
    said += [words for words in map(str.split, process.stdout.read().splitlines()) if len(words) == 2]
    store = SqliteCheckpointer(tmp_path / "threads.db")
    for name in {name for name, _ in said}:
        durable = max(int(ordinal) for who, ordinal in said if who == name)
        stored = await store.load(name)
        assert stored is not None
        count = stored.thread.ordinal
        assert count >= durable
        assert [record.ordinal for record in stored.records] == list(range(1, count + 1))
        assert await messages(store, name, count=count) == [b"%d" % n for n in range(count)]
        await refused(StoreError, messages(store, name, count=count + 1))
        driver = await drive(store, name)  # goes on from there, without waiting for the lease
        driver.counts = {(0, "messages"): count}
        await driver.add(b"after the crash")
    await store.close()


async def test_a_killed_processs_threads_can_be_taken_at_once(start: Start, store: SqliteCheckpointer) -> None:
    process = start("holds")
    assert line(process) == "taken"
    row = await store.thread("thread")
    assert row is not None
    within = row.lease_until - 1
    error = await refused(ThreadBusy, store.take("thread", owner=store.owner, now=within, lease_ms=LEASE))
    assert error.detail["retryAfterMs"] == 1
    process.kill()
    process.wait()
    taken = await store.take("thread", owner=store.owner, now=within, lease_ms=LEASE)
    assert (taken.fence, taken.owner) == (row.fence + 1, store.owner)


async def test_a_forked_child_neither_commits_nor_keeps_its_parents_threads(
    start: Start, store: SqliteCheckpointer
) -> None:
    process = start("forks")
    words = sorted((line(process), line(process)))
    assert words[0] == "child True"
    process.kill()
    process.wait()
    row = await store.thread("thread")
    assert row is not None
    await store.take("thread", owner=store.owner, now=row.lease_until - 1, lease_ms=LEASE)


@pytest.mark.parametrize("how", ["forgets", "forgets_in_its_thread"])
async def test_commits_that_nobody_waited_for_survive_an_end_without_close(
    start: Start, tmp_path: Path, how: str
) -> None:
    process = start(how)
    assert process.wait() == 0
    store = SqliteCheckpointer(tmp_path / "threads.db")
    assert await messages(store, "thread", count=500) == [b"%d" % n for n in range(500)]
    await store.close()


async def test_of_several_processes_one_drives_a_thread_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    processes = [start("competes", name) for name in "abcde"]
    said = [word for process in processes for word in process.communicate()[0].split()]
    assert len(said) == 50
    store = SqliteCheckpointer(tmp_path / "threads.db")
    kept = await messages(store, "shared", count=50)
    assert sorted(kept) == sorted(word.encode() for word in said)
    row = await store.thread("shared")
    assert row is not None
    assert row.fence >= 50
    await store.close()


async def test_several_processes_may_set_the_store_up_at_once(start: Start, tmp_path: Path) -> None:
    processes = [start("opens") for _ in range(6)]
    for process in processes:
        assert line(process) == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [line(process) for process in processes] == ["done"] * 6
    store = SqliteCheckpointer(tmp_path / "threads.db")
    assert len(await store.threads()) == 6
    await store.close()


async def test_two_stores_of_one_process_are_two_owners(store: SqliteCheckpointer) -> None:
    other = SqliteCheckpointer(store.path)
    assert other.owner != store.owner
    driver = await drive(store, owner=store.owner)
    await driver.add(b"0")
    await refused(ThreadBusy, other.take("thread", owner=other.owner, now=NOW + 1, lease_ms=LEASE))
    await store.close()
    again = await drive(other, owner=other.owner, now=NOW + 1)
    again.counts = {(0, "messages"): 1}
    await again.add(b"1")
    assert await messages(other, "thread", count=2) == [b"0", b"1"]
    await other.close()


# --- owners ----------------------------------------------------------------------------------------


def test_an_owner_lives_as_long_as_its_lock(tmp_path: Path) -> None:
    mine, other = OwnerLock(tmp_path / "owners"), OwnerLock(tmp_path / "owners")
    other.acquire()
    other.acquire()
    assert not mine.is_dead(other.id)
    other.release()
    other.release()
    assert mine.is_dead(other.id)
    assert not mine.is_dead(mine.id)
    assert list(tmp_path.iterdir()) == []


def test_two_who_look_at_once_both_see_that_an_owner_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither must take the other's look for the owner's life: its thread would stay taken until the lease ends."""
    first, second = OwnerLock(tmp_path / "owners"), OwnerLock(tmp_path / "owners")
    first.acquire()
    dead = first.id.rpartition("/")[0] + f"/{uuid.uuid4()}"
    (tmp_path / "owners" / dead.rpartition("/")[2]).touch()
    unlink, seen = Path.unlink, []

    def meanwhile(path: Path, **options: bool) -> None:  # the first holds its lock still
        monkeypatch.setattr(Path, "unlink", unlink)
        seen.append(second.is_dead(dead))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", meanwhile)
    assert first.is_dead(dead)
    assert seen == [True]
    first.release()


def test_an_owner_of_another_host_or_form_is_never_judged(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "owners")
    host, boot, name = new_owner().split("/")
    for owner in (f"other/{boot}/{name}", f"{host}/other boot/{name}", f"{host}/{boot}/../../etc/passwd", "me", ""):
        assert not lock.is_dead(owner)


def test_what_dead_owners_left_is_swept_away(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "owners")
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / "018f0000-0000-4000-8000-000000000000").touch()
    lock.acquire()
    assert [path.name for path in (tmp_path / "owners").iterdir()] == [lock.id.split("/")[2]]
    lock.release()


async def test_closing_leaves_one_file(store: SqliteCheckpointer) -> None:
    driver = await drive(store, owner=store.owner)
    await driver.add(b"x" * 100_000)
    assert (store.path.parent / "threads.db.owners").is_dir()
    await store.close()
    assert [path.name for path in store.path.parent.iterdir()] == ["threads.db"]


# --- errors ----------------------------------------------------------------------------------------


async def test_a_full_disk_fails_the_commit_and_leaves_the_rest_readable(store: SqliteCheckpointer) -> None:
    driver, other = await drive(store), await drive(store, "other")
    await driver.add(b"kept")
    pages = (await pragma(store, "page_count"))[0][0]
    await pragma(store, f"max_page_count = {pages + 2}")
    lost = driver.commit(driver.record(b"x" * 1_000_000))
    small = other.commit(other.record())
    error = await refused(StoreError, lost)
    assert error.code == "store_failed"
    assert "disk is full" in error.message
    await small  # of the same batch, perhaps: only the guilty one fails
    await refused(StoreError, driver.commit(driver.record()))
    assert await messages(store, "thread", count=1) == [b"kept"]
    await pragma(store, "max_page_count = 1000000")
    again = await drive(store, now=NOW + LEASE)
    again.counts = {(0, "messages"): 1}
    await again.add(b"room again")
    assert await messages(store, "thread", count=2) == [b"kept", b"room again"]


def test_a_disk_that_is_full_while_the_tables_are_made_is_named(tmp_path: Path) -> None:
    class Full(sqlite3.Connection):
        """SQLite ends a transaction by itself when the disk is full in the middle of it."""

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if "CREATE TABLE logs" in sql:
                super().execute("ROLLBACK")
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *parameters)

    db = sqlite3.connect(tmp_path / "threads.db", isolation_level=None, factory=Full)
    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        schema.migrate(db, tmp_path / "threads.db")
    assert schema.stored_version(db, tmp_path / "threads.db") == 0
    db.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "read-only"),
        (errno.EMFILE, "open files"),
    ],
)
async def test_a_lock_that_can_not_be_made_refuses_the_thread_and_says_why(
    store: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def fail(*arguments: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("graphflow.checkpoints.process_lock.os.open", fail)
        error = await refused(StoreError, store.take("thread", owner=store.owner, now=NOW, lease_ms=LEASE))
    assert error.code == "store_failed"
    assert words in error.message and str(store.path) in error.message
    assert await store.thread("thread") is None
    await drive(store, owner=store.owner)


async def test_a_read_only_file_fails_the_commit_and_can_be_read(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.add(b"kept")
    await pragma(store, "query_only = ON")
    error = await refused(StoreError, driver.commit(driver.record()))
    assert "read-only" in error.message
    error = await refused(StoreError, store.take("other", owner="me", now=NOW, lease_ms=LEASE))
    assert error.code == "store_failed"
    assert await messages(store, "thread", count=1) == [b"kept"]


async def test_a_lock_beyond_the_timeout_fails_commits_but_not_reads(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.add(b"kept")
    hog = sqlite3.connect(store.path, isolation_level=None)
    hog.execute("BEGIN IMMEDIATE")
    lost = [driver.commit(driver.record(b"lost")) for _ in range(20)]
    assert await messages(store, "thread", count=1) == [b"kept"]
    assert len(await store.threads()) == 1
    assert "locked" in (await refused(StoreError, lost[0])).message
    for durable in lost[1:]:
        await refused(StoreError, durable)
    hog.execute("ROLLBACK")
    hog.close()
    again = await drive(store, now=NOW + LEASE)
    again.counts = {(0, "messages"): 1}
    await again.add(b"goes on")
    assert len(await store.list_checkpoints("thread")) == 2


async def test_a_missing_row_is_an_error_and_earlier_checkpoints_load(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    for n in range(4):
        await driver.add(b"%d" % n)
    raw(store, "DELETE FROM records WHERE record & 0xffffffff = 3", "DELETE FROM items WHERE item & 0xffffffff = 2")
    error = await refused(StoreError, store.load("thread"))
    assert "damaged" in error.message
    assert await messages(store, "thread", driver.ids[1], count=2) == [b"0", b"1"]
    stored = await store.load("thread", driver.ids[1])
    assert stored is not None
    await refused(StoreError, store.read_items(stored.chain, 0, "messages", 4))


async def test_a_thread_whose_lineage_is_gone_is_damaged_and_the_others_load(store: SqliteCheckpointer) -> None:
    driver, other = await drive(store), await drive(store, "other")
    await driver.add(b"0")
    await other.add(b"1")
    raw(store, f"DELETE FROM lineages WHERE number = {driver.lineage}")
    error = await refused(StoreError, store.load("thread"))
    assert "damaged" in error.message and "'thread'" in error.message
    assert await messages(store, "other", count=1) == [b"1"]


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "threads.db")
    driver = await drive(store)
    for n in range(50):
        driver.commit(driver.record(b"%d" % n * 500))
    await store.close()
    with store.path.open("r+b") as file:
        for page in range(2, store.path.stat().st_size // 8192):
            file.seek(page * 8192)
            file.write(b"\xde\xad\xbe\xef" * 16)
    again = SqliteCheckpointer(tmp_path / "threads.db")
    error = await refused(StoreError, again.load("thread"))
    assert str(store.path) in error.message
    assert "damaged" in error.message
    await again.close()


async def test_damage_that_sqlite_can_not_put_into_words_is_named_all_the_same(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.add()
    await store.close()
    damaged = "UPDATE sqlite_master SET sql = 'CREATE TABLE ' || CAST(x'c2c3' AS TEXT) || '(' WHERE name = 'runs'"
    raw(store, "PRAGMA writable_schema = ON", damaged)
    again = SqliteCheckpointer(store.path)
    for reading in (again.setup(), again.load("thread"), again.threads()):
        error = await refused(StoreError, reading)
        assert error.code == "store_failed"
        assert str(store.path) in error.message and "damaged" in error.message
    await again.close()


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda path: path.write_bytes(b"no database at all" * 100), "store_failed", "not a SQLite database"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE other (x)"), "store_failed", "another program"),
        (lambda path: path.mkdir(), "store_failed", "could not be opened"),
        (lambda path: path.parent.joinpath("file").touch(), None, ""),
    ],
    ids=["garbage", "foreign", "folder", "fine"],
)
async def test_what_is_no_store_is_refused_by_name(
    tmp_path: Path, make: Callable[[Path], Any], code: str | None, words: str
) -> None:
    path = tmp_path / "deep" / "threads.db"
    path.parent.mkdir()
    made = make(path)
    if isinstance(made, sqlite3.Cursor):
        made.connection.close()
    store = SqliteCheckpointer(path)
    if code is None:
        await store.setup()
    else:
        for _ in range(2):  # asking again gives the same answer
            error = await refused(StoreError, store.setup())
            assert error.code == code
            assert words in error.message
        await refused(StoreError, store.load("thread"))
        await refused(StoreError, store.threads())
    await store.close()


async def test_a_foreign_database_is_refused_without_being_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE other (x)")
    db.close()
    before = path.read_bytes()
    store = SqliteCheckpointer(path)
    await refused(StoreError, store.setup())
    await store.close()
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


def test_a_store_that_another_process_makes_just_now_is_not_taken_for_a_foreign_one(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    raw_db = sqlite3.connect(path, isolation_level=None)
    raw_db.execute("PRAGMA journal_mode = WAL")  # the other process is as far as this, and makes its tables below

    class Interrupted(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *parameters)
            if "application_id" in sql and "=" not in sql:
                rows = cursor.fetchall()
                schema.migrate(raw_db, path)
                return super().execute(f"SELECT {rows[0][0]}")
            return cursor

    late = sqlite3.connect(path, isolation_level=None, factory=Interrupted)
    schema.migrate(late, path)
    assert schema.stored_version(raw_db, path) == len(list(schema.MIGRATIONS.glob("*.sql")))
    late.close()
    raw_db.close()


async def test_a_newer_schema_is_refused(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.add()
    await store.close()
    raw(store, "PRAGMA user_version = 99")
    newer = SqliteCheckpointer(store.path)
    error = await refused(StoreError, newer.setup())
    assert error.code == "store_version_unsupported"
    assert "99" in error.message
    await newer.close()


async def test_a_closed_store_refuses_everything(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.add()
    await store.close()
    for awaitable in (store.load("thread"), store.threads(), store.setup(), driver.commit(driver.record())):
        error = await refused(StoreError, awaitable)
        assert "closed" in error.message


async def test_a_store_that_was_never_opened_can_be_closed_and_can_not_commit(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "threads.db")
    stranger = Driver(store, "thread", 1, None)
    with pytest.raises(StoreError, match="not open"):
        stranger.commit()
    await store.flush()
    await store.close()
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=":memory:"):
        SqliteCheckpointer(":memory:")
    with pytest.raises(ValueError, match="'SOMETIMES'"):
        SqliteCheckpointer("x.db", synchronous="SOMETIMES")  # type: ignore[arg-type]


async def test_a_title_with_half_a_character_does_not_stop_the_thread(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.commit(driver.record(), facts=facts(title="half \ud83d"))
    row = await store.thread("thread")
    assert row is not None
    assert row.facts.title == "half ?"


async def test_compacting_returns_the_space_of_pruned_rows_to_the_file_system(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    for n in range(20):
        await driver.add(data=b"%d" % n * 100_000, snapshot=b"s")
    await store.prune("thread", Keep(newest=1))
    await store.compact()
    assert store.path.stat().st_size < 500_000
    assert store.path.with_name(store.path.name + "-wal").stat().st_size == 0
    await driver.add()


async def test_compacting_beside_an_open_transaction_of_somebody_else_says_that_the_file_keeps_its_size(
    store: SqliteCheckpointer,
) -> None:
    driver = await drive(store)
    for n in range(20):
        await driver.add(data=b"%d" % n * 100_000, snapshot=b"s")
    hasty = SqliteCheckpointer(store.path, busy_timeout_s=0)
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as report:
        report.execute("BEGIN")
        assert report.execute("SELECT count(*) FROM records").fetchone()[0] > 0
        await store.prune("thread", Keep(newest=1))
        error = await refused(StoreError, hasty.compact())
        assert "compact again" in error.message
    await hasty.compact()
    await hasty.close()
    assert store.path.stat().st_size < 500_000


async def test_a_defect_in_one_call_fails_that_call_only(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    good = driver.commit(driver.record())
    bad = store._write(lambda db: db.execute("SELECT nonsense"))
    assert "nonsense" in (await refused(StoreError, bad)).message
    await good
    await driver.add()


# --- the writer ------------------------------------------------------------------------------------


class Gate:
    """Holds the writer's thread, so that what is queued meanwhile is one batch."""

    def __init__(self, store: SqliteCheckpointer) -> None:
        self.store = store
        self.statements: list[str] = []
        self._entered, self._open = threading.Event(), threading.Event()

    async def __aenter__(self) -> list[str]:
        def hold(db: sqlite3.Connection) -> None:
            self._entered.set()
            self._open.wait()
            db.set_trace_callback(self.statements.append)

        self._held = asyncio.ensure_future(self.store._write(hold))  # noqa: TID251 – awaited in __aexit__
        await asyncio.to_thread(self._entered.wait)
        return self.statements

    async def __aexit__(self, *error: object) -> None:
        self._open.set()
        await self._held
        await self.store.flush()
        await self.store._write(lambda db: db.set_trace_callback(None))


async def test_a_batch_is_one_transaction_with_one_update_per_thread(store: SqliteCheckpointer) -> None:
    drivers = [await drive(store, f"thread-{n}") for n in range(3)]
    for driver in drivers:
        await driver.add(b"first")
    async with Gate(store) as statements:
        for _ in range(50):
            for driver in drivers:
                driver.commit(driver.record(b"x"))
    own = statements[statements.index("BEGIN IMMEDIATE") :]
    assert own.count("COMMIT") == 1  # the next transaction takes the trace off
    assert sum(text.startswith("UPDATE threads") for text in own) == 3
    for driver in drivers:
        assert await messages(store, driver.thread_id, count=51) == [b"first", *[b"x"] * 50]


async def test_commits_before_a_failed_one_are_kept_whatever_else_fails_in_their_batch(
    store: SqliteCheckpointer,
) -> None:
    driver, other = await drive(store), await drive(store, "other")
    async with Gate(store):
        good = [driver.commit(driver.record()) for _ in range(3)]
        driver.head = "not the head"
        bad = driver.commit(driver.record())
        other.ordinal = 7  # breaks a rule, so the whole batch is rolled back and tried one by one
        worse = other.commit(other.record())
    for durable in good:
        await durable
    await refused(Fenced, bad)
    await refused(StoreError, worse)
    assert len(await store.list_checkpoints("thread")) == 3


async def test_a_batch_wakes_each_loop_once(store: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = await drive(store)
    loop = asyncio.get_running_loop()
    wakes: list[str] = []
    wake = loop.call_soon_threadsafe

    def counted(callback: Any, *arguments: Any, **options: Any) -> Any:
        wakes.append(threading.current_thread().name)
        return wake(callback, *arguments, **options)

    async with Gate(store):
        promises = [driver.commit(driver.record()) for _ in range(200)]
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    assert all(durable.done for durable in promises)
    assert sum("writer" in name for name in wakes) <= 4  # the gate, the batch, the flush, the trace


async def test_a_cancelled_take_gives_the_thread_back(store: SqliteCheckpointer) -> None:
    async with Gate(store):
        taking = asyncio.ensure_future(store.take("thread", owner="me", now=NOW, lease_ms=LEASE))  # noqa: TID251 – cancelled below
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
    row = await store.thread("thread")
    assert row is not None
    assert (row.owner, row.fence) == (None, 1)


async def test_a_failing_listener_does_not_silence_the_others(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    durable = driver.commit(driver.record())
    heard: list[int] = []
    durable.when_done(lambda: 1 / 0)  # type: ignore[arg-type]
    durable.when_done(lambda: heard.append(1))
    await durable
    assert heard == [1]
    assert isinstance(faults[0]["exception"], ZeroDivisionError)


async def test_a_store_that_is_dropped_ends_its_threads(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "dropped.db")
    driver = await drive(store)
    driver.commit(driver.record(b"kept"))
    workers = [thread for thread in threading.enumerate() if thread.name.endswith(" dropped.db")]
    assert len(workers) == 2
    del store, driver
    gc.collect()
    for worker in workers:  # the writer itself may have held the last reference, then it ends a moment later
        await asyncio.to_thread(worker.join, 10)
    assert not any(worker.is_alive() for worker in workers)
    again = SqliteCheckpointer(tmp_path / "dropped.db")
    assert await messages(again, "thread", count=1) == [b"kept"]
    await again.close()


# --- the file --------------------------------------------------------------------------------------


async def test_the_file_has_large_pages_a_write_ahead_log_and_full_durability(store: SqliteCheckpointer) -> None:
    assert (await pragma(store, "page_size"))[0][0] == 8192
    assert (await pragma(store, "journal_mode"))[0][0] == "wal"
    assert (await pragma(store, "synchronous"))[0][0] == 2
    assert (await pragma(store, "application_id"))[0][0] == schema.APPLICATION_ID


async def test_a_thousand_messages_of_a_kilobyte_take_little_more_than_their_bytes(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    for _ in range(1000):
        driver.commit(driver.record(os.urandom(1024), meta=b"m" * 50, data=b"d" * 100))
    await store.close()
    assert store.path.stat().st_size <= 1.47 * 2**20


async def test_threads_that_grow_side_by_side_are_stored_as_densely(store: SqliteCheckpointer) -> None:
    drivers = [await drive(store, f"thread-{n}") for n in range(20)]
    for _ in range(100):
        for driver in drivers:
            driver.commit(driver.record(os.urandom(1024), meta=b"m" * 50, data=b"d" * 100))
        await store.flush()
    await store.close()
    assert store.path.stat().st_size / 2000 <= 1.75 * 1024


async def test_a_fork_writes_two_rows_however_long_the_history_is(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    for n in range(300):
        driver.commit(driver.record(b"%d" % n))
    await store.flush()
    changes = await store._write(lambda db: db.total_changes)
    await store.fork(driver.ids[150], "thread", "fork", number=999_999_999, facts=facts())
    assert await store._write(lambda db: db.total_changes) - changes == 2


async def test_finding_an_old_checkpoint_reads_few_rows(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    for n in range(500):
        driver.commit(driver.record(snapshot=b"s" if n % 50 == 0 else None))
    await store.flush()
    statements: list[str] = []
    await store._visit(lambda db: db.set_trace_callback(statements.append))
    await store.load("thread", driver.ids[123])
    assert len(statements) < 25


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    names = sorted(path.name for path in schema.MIGRATIONS.glob("*.sql"))
    assert names and [int(name.partition("_")[0]) for name in names] == list(range(1, len(names) + 1))


async def test_ids_take_sixteen_bytes_when_they_are_uuids(store: SqliteCheckpointer) -> None:
    driver = await drive(store, new_id())
    await driver.add()
    sizes = await store._write(lambda db: db.execute("SELECT length(id) FROM records").fetchall())
    assert sizes == [(16,)]


async def test_an_ordinal_beyond_the_keys_room_is_refused(store: SqliteCheckpointer) -> None:
    driver = await drive(store)
    await driver.add()
    driver.counts[0, "messages"] = 2**32
    error = await refused(StoreError, driver.commit(driver.record(b"x")))
    assert "ordinal 4294967296 is outside 0 to 4294967295" in error.message
    again = await drive(store, now=NOW + LEASE)
    await again.add()  # the thread itself is whole
    assert len(await store.list_checkpoints("thread")) == 2
