"""What the PostgreSQL store promises beyond the port: other processes, event loops, errors, its schema, its name (spec 4.4, E2)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.postgres import loop_writer
from graphflow.checkpoints.postgres import schema as migrations
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.postgres.loop_writer import MAX_WAIT_S, RETRY_AFTER_COMMITS
from graphflow.checkpoints.postgres.pipeline import Connection, Statement, connect
from graphflow.checkpoints.postgres.schema import _SCHEMA, MIGRATIONS
from graphflow.checkpoints.rows import Keep, Place
from graphflow.checkpoints.sql.migrations import Migrations, postgres_version, steps_of
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import Fenced, StoreError, ThreadBusy
from graphflow.testing.checkpointer.exports import picture, rich_thread
from graphflow.testing.checkpointer.suite import LEASE, NOW, Driver, drive, facts, lines_of, messages, refused, stream
from tests.forked import ForkedProcess, python
from tests.patience import PATIENCE_S
from tests.postgres import TABLES, Schemas
from tests.postgres_server import PostgresServer

Start = Callable[..., ForkedProcess]


@pytest.fixture
async def store(schemas: Schemas, schema: str) -> AsyncIterator[PostgresCheckpointer]:
    store = PostgresCheckpointer(schemas.url, schema=schema, patience_s=PATIENCE_S)
    await store.setup()
    yield store
    await store.close()


@pytest.fixture
def start(schemas: Schemas, schema: str) -> Iterator[Start]:
    """Starts a program of children.py on the test's store; what still runs at the end is killed."""
    running: list[ForkedProcess] = []

    def run(name: str, *arguments: str) -> ForkedProcess:
        program, store = Path(__file__).with_name("children.py"), f"{schemas.url}#{schema}"
        process = python(program, name, store, *arguments, pipes=("stdin", "stdout"), session=True)
        running.append(process)
        return process

    yield run
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def line(process: ForkedProcess) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- crashes and other processes -------------------------------------------------------------------


@pytest.mark.parametrize("acknowledged", [1, 300])
async def test_kill_9_loses_a_suffix_at_most_and_nothing_that_was_acknowledged(
    start: Start, store: PostgresCheckpointer, acknowledged: int
) -> None:
    process = start("commits")
    said = [line(process).split() for _ in range(acknowledged)]
    process.kill()
    assert process.stdout is not None
    said += [words for words in map(str.split, process.stdout.read().splitlines()) if len(words) == 2]
    process.wait()
    for name in {name for name, _ in said}:
        durable = max(int(ordinal) for who, ordinal in said if who == name)
        # What the dead process sent last is done or not at all once its thread is taken.
        driver = await drive(store, name)
        stored = await store.load(name)
        assert stored is not None
        count = stored.thread.ordinal
        assert count >= durable
        assert [record.ordinal for record in stored.records] == list(range(1, count + 1))
        assert await messages(store, name, count=count) == [b"%d" % n for n in range(count)]
        driver.ordinal, driver.head, driver.counts = count, stored.thread.head, {(0, "messages"): count}
        await driver.add(b"after the crash")


async def test_a_killed_processs_threads_can_be_taken_at_once_on_the_same_host(
    start: Start, store: PostgresCheckpointer
) -> None:
    process = start("holds")
    assert line(process) == "taken"
    row = await store.thread("thread")
    assert row is not None
    within = row.lease_until - 1
    await refused(ThreadBusy, store.take("thread", owner=store.owner, now=within, lease_ms=LEASE))
    process.kill()
    process.wait()
    taken = await store.take("thread", owner=store.owner, now=within, lease_ms=LEASE)
    assert (taken.fence, taken.owner) == (row.fence + 1, store.owner)


def test_a_session_whose_event_loop_has_gone_ends_without_a_warning(schemas: Schemas) -> None:
    async def leave() -> Any:
        session = await connect(schemas.url, '"nowhere"')
        return (await session.rows(Statement("SELECT pg_backend_pid()::text", "", "t")()))[0][0]

    async def until_gone(number: Any) -> None:
        session = await connect(schemas.url, '"nowhere"')
        there = Statement("SELECT count(*)::text FROM pg_stat_activity WHERE pid = $1::text::int", "t", "t")
        while (await session.rows(there(number)))[0][0] != "0":
            await asyncio.sleep(0)
        session.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        number = asyncio.run(leave())
        gc.collect()
    assert not told
    asyncio.run(asyncio.wait_for(until_gone(number), PATIENCE_S))


async def test_an_owner_of_another_host_is_believed_until_its_lease_ends(store: PostgresCheckpointer) -> None:
    host, boot, name = store.owner.split("/")
    for owner in (f"elsewhere/{boot}/{name}", f"{host}x/{boot}/{name}"):
        assert not store.is_dead(owner)
    await store.take("thread", owner=f"elsewhere/{boot}/{name}", now=NOW, lease_ms=LEASE)
    await refused(ThreadBusy, store.take("thread", owner=store.owner, now=NOW + LEASE - 1, lease_ms=LEASE))
    await store.take("thread", owner=store.owner, now=NOW + LEASE, lease_ms=LEASE)


async def test_a_process_that_was_paused_beyond_its_lease_commits_nothing_more(
    start: Start, store: PostgresCheckpointer
) -> None:
    """E2: what it had sent before the pause may land while nobody has its thread; then it is fenced."""
    process = start("commits")
    # Of its three threads any may come late; one without a commit is nothing to go on from.
    while not line(process).startswith("a "):
        pass
    process.send_signal(signal.SIGSTOP)
    process.wait_until_stopped()
    row = await store.thread("a")
    assert row is not None
    taken = await store.take("a", owner=store.owner, now=row.lease_until, lease_ms=LEASE)
    driver = Driver(store, "a", taken.fence, taken.head)
    driver.lineage, driver.ordinal = taken.lineage or 0, taken.ordinal
    driver.counts = {(0, "messages"): taken.ordinal}
    await driver.add(b"mine")
    process.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(process.wait) == 1, "the first refused commit ends the program"
    await driver.add(b"and on")
    stored = await store.load("a")
    assert stored is not None
    assert [record.id for record in stored.records[taken.ordinal :]] == driver.ids


async def test_a_forked_child_neither_commits_nor_breaks_its_parents_connections(
    start: Start, store: PostgresCheckpointer
) -> None:
    process = start("forks")
    words = sorted((line(process), line(process)))
    assert words[0] == "child True"
    process.kill()
    process.wait()
    row = await store.thread("thread")
    assert row is not None
    await store.take("thread", owner=store.owner, now=row.lease_until - 1, lease_ms=LEASE)


async def test_commits_that_nobody_waited_for_survive_an_end_without_close(
    start: Start, store: PostgresCheckpointer
) -> None:
    process = start("forgets")
    assert process.wait() == 0
    assert await messages(store, "thread", count=500) == [b"%d" % n for n in range(500)]


async def test_of_several_processes_one_drives_a_thread_and_nothing_is_lost(
    start: Start, store: PostgresCheckpointer
) -> None:
    processes = [start("competes", name) for name in "abc"]
    said = [word for process in processes for word in process.communicate()[0].split()]
    assert len(said) == 30
    kept = await messages(store, "shared", count=30)
    assert sorted(kept) == sorted(word.encode() for word in said)


async def test_several_processes_may_set_the_store_up_at_once(start: Start, schemas: Schemas, schema: str) -> None:
    schemas.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    processes = [start("opens") for _ in range(4)]
    for process in processes:
        assert line(process) == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [line(process) for process in processes] == ["done"] * 4
    assert schemas.run(f"SELECT count(*) FROM {schema}.threads") == [(4,)]


# --- event loops -----------------------------------------------------------------------------------


def sessions(schemas: Schemas, name: str, *, expected: int | None = None) -> int:
    """How many sessions of this name our database has; one that should have ended it may notice a moment later."""
    until = time.monotonic() + PATIENCE_S
    while True:
        rows = schemas.run(
            "SELECT count(*), pg_sleep(0.001) FROM pg_stat_activity"
            f" WHERE application_name = '{name}' AND datname = current_database()"
        )
        count = int(rows[0][0])
        if expected is None or count == expected or time.monotonic() > until:
            return count


def test_a_loop_that_ended_leaves_its_commits_and_its_connections_to_the_next(schemas: Schemas, schema: str) -> None:
    store = PostgresCheckpointer(f"{schemas.url}&application_name=loops", schema=schema)

    async def forgetful() -> None:
        driver = await drive(store)
        for n in range(100):
            driver.commit(driver.record(b"%d" % n))

    async def next_one() -> int:
        assert await messages(store, "thread", count=100) == [b"%d" % n for n in range(100)]
        return sessions(schemas, "loops")

    asyncio.run(forgetful())
    before = asyncio.run(next_one())
    for _ in range(5):
        assert asyncio.run(next_one()) <= before
    asyncio.run(store.close())
    assert sessions(schemas, "loops", expected=0) == 0


def test_a_store_that_is_dropped_keeps_what_was_queued_and_ends_its_sessions(schemas: Schemas, schema: str) -> None:
    async def drop() -> None:
        store = PostgresCheckpointer(f"{schemas.url}&application_name=dropped", schema=schema)
        driver = await drive(store)
        for n in range(50):
            driver.commit(driver.record(b"%d" % n))

    asyncio.run(drop())
    gc.collect()
    assert schemas.run(f"SELECT count(*) FROM {schema}.records") == [(50,)]
    assert sessions(schemas, "dropped", expected=0) == 0


async def test_a_store_may_be_closed_while_another_loop_works_on_it(schemas: Schemas, schema: str) -> None:
    store = PostgresCheckpointer(schemas.url, schema=schema)
    await store.setup()
    taken, over = threading.Event(), threading.Event()
    outcome: list[str] = []

    async def work() -> None:
        driver = await drive(store)
        durable = [driver.commit(driver.record(b"%d" % n)) for n in range(20)]
        taken.set()
        await durable[-1]
        await asyncio.to_thread(over.wait)
        with pytest.raises(StoreError, match="closed"):
            await driver.commit(driver.record(b"late"))
        outcome.append("refused")

    worker = threading.Thread(target=lambda: asyncio.run(work()))
    worker.start()
    await asyncio.to_thread(taken.wait)
    await store.close()
    over.set()
    await asyncio.to_thread(worker.join)
    assert outcome == ["refused"]
    assert schemas.run(f"SELECT count(*) FROM {schema}.records") == [(20,)]


async def test_a_cancelled_take_gives_the_thread_back(store: PostgresCheckpointer) -> None:
    for turns in range(6):
        taking = asyncio.ensure_future(store.take("thread", owner="me", now=NOW, lease_ms=LEASE))  # noqa: TID251 – cancelled below
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await taking
            await store.release("thread", taking.result().fence)
        while store._per_loop[asyncio.get_running_loop()].changes:
            await asyncio.sleep(0)
        row = await store.thread("thread")
        assert row is None or row.owner is None


async def test_a_cancelled_read_spoils_nothing_for_others(store: PostgresCheckpointer) -> None:
    driver = await drive(store)
    await driver.add(b"0")
    for turns in range(12):
        reading = asyncio.ensure_future(store.load("thread"))  # noqa: TID251 – cancelled below
        for _ in range(turns % 4):
            await asyncio.sleep(0)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        assert await messages(store, "thread", count=1) == [b"0"]


async def test_a_change_that_breaks_off_leaves_its_connection_fit_for_the_next(schemas: Schemas, schema: str) -> None:
    store = PostgresCheckpointer(schemas.url, schema=schema, connections=1)
    driver = await drive(store)
    await driver.add(b"0")

    def broken(place: Place, blob: bytes) -> bytes:
        raise ValueError("this key opens nothing")

    with pytest.raises(ValueError, match="opens nothing"):
        await store.rewrite(broken)
    assert await messages(store, "thread", count=1) == [b"0"]
    position = await store.enqueue("thread", b"input", now=NOW)
    elsewhere = PostgresCheckpointer(schemas.url, schema=schema)
    assert await elsewhere.queued("thread") == (position, b"input")
    await elsewhere.close()
    await store.close()


async def test_readers_wait_for_one_of_few_connections(schemas: Schemas, schema: str) -> None:
    store = PostgresCheckpointer(f"{schemas.url}&application_name=readers", schema=schema, connections=2)
    driver = await drive(store)
    await driver.add(b"0")
    await asyncio.gather(*(messages(store, "thread", count=1) for _ in range(30)))
    assert sessions(schemas, "readers") <= 3
    await store.close()


# --- a lone run that awaits its commits ------------------------------------------------------------


async def test_a_lone_commit_that_is_awaited_is_waited_for_in_place(
    store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_writer, "MAX_WAIT_S", 60.0)  # this machine may be busy
    driver = await drive(store)
    await driver.add(b"0")
    for n in range(1, 40):
        durable = driver.commit(driver.record(b"%d" % n), awaited=True)
        store.hurry()
        assert durable.done
    assert await messages(store, "thread", count=40) == [b"%d" % n for n in range(40)]


async def test_the_loop_turns_for_whoever_else_has_to_run(store: PostgresCheckpointer) -> None:
    driver = await drive(store)
    await driver.add(b"0")
    asyncio.get_running_loop().call_soon(lambda: None)
    durable = driver.commit(driver.record(b"1"), awaited=True)
    store.hurry()
    assert not durable.done, "something else was ready"
    await durable
    other = await drive(store, "other")
    durable = driver.commit(driver.record(b"2"), awaited=True)
    store.hurry()
    assert not durable.done, "another thread is driven"
    await durable
    await other.commit(facts=facts(), release=True)


async def test_where_answers_take_long_the_loop_is_not_kept_standing(
    store: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def slow(self: Connection, seconds: float) -> bool:
        waits.append(seconds)
        return False

    monkeypatch.setattr(Connection, "wait_here", slow)
    driver = await drive(store)
    await driver.add(b"0")
    for n in range(1, RETRY_AFTER_COMMITS + 2):
        durable = driver.commit(driver.record(b"%d" % n), awaited=True)
        store.hurry()
        await durable
    assert waits == [MAX_WAIT_S]


# --- errors ----------------------------------------------------------------------------------------


async def test_a_full_disk_fails_the_commit_and_leaves_the_rest_readable(
    store: PostgresCheckpointer, schemas: Schemas, schema: str
) -> None:
    driver, other = await drive(store), await drive(store, "other")
    await driver.add(b"kept")
    schemas.run(
        f"CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF length(new.data) > 1000 THEN"
        " RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END IF; RETURN new; END $$;"
        f"CREATE TRIGGER full_disk BEFORE INSERT ON {schema}.items FOR EACH ROW EXECUTE FUNCTION {schema}.full()"
    )
    first = other.commit(other.record())
    lost = driver.commit(driver.record(b"x" * 2000))
    small = other.commit(other.record())
    error = await refused(StoreError, lost)
    assert error.code == "store_failed"
    assert "disk of the database is full" in error.message
    await first
    await small  # of the same batch: only the guilty one fails
    await refused(Fenced, driver.commit(driver.record()))
    assert await messages(store, "thread", count=1) == [b"kept"]
    schemas.run(f"DROP FUNCTION {schema}.full CASCADE")
    again = await drive(store, now=NOW + LEASE)
    again.counts = {(0, "messages"): 1}
    await again.add(b"x" * 2000)


async def test_a_read_only_database_fails_the_commit_and_can_be_read(schemas: Schemas, schema: str) -> None:
    writable = PostgresCheckpointer(schemas.url, schema=schema)
    driver = await drive(writable)
    await driver.add(b"kept")
    await driver.commit(facts=facts(), release=True)
    await writable.close()
    store = PostgresCheckpointer(f"{schemas.url}&options=-c%20default_transaction_read_only%3Don", schema=schema)
    error = await refused(StoreError, store.take("thread", owner="me", now=NOW, lease_ms=LEASE))
    assert "read-only" in error.message
    assert await messages(store, "thread", count=1) == [b"kept"]
    await store.close()


async def test_a_missing_row_is_an_error_and_earlier_checkpoints_load(
    store: PostgresCheckpointer, schemas: Schemas, schema: str
) -> None:
    driver = await drive(store)
    for n in range(4):
        await driver.add(b"%d" % n)
    schemas.run(f"DELETE FROM {schema}.records WHERE ordinal = 3; DELETE FROM {schema}.items WHERE ordinal = 2")
    error = await refused(StoreError, store.load("thread"))
    assert "damaged" in error.message
    assert await messages(store, "thread", driver.ids[1], count=2) == [b"0", b"1"]
    stored = await store.load("thread", driver.ids[1])
    assert stored is not None
    await refused(StoreError, store.read_items(stored.chain, 0, "messages", 4))


async def test_a_dropped_table_is_told(store: PostgresCheckpointer, schemas: Schemas, schema: str) -> None:
    driver = await drive(store)
    await driver.add(b"0")
    schemas.run(f"DROP TABLE {schema}.snapshots")
    error = await refused(StoreError, store.load("thread"))
    assert "a table is missing" in error.message
    assert len(await store.threads()) == 1


async def test_a_text_that_can_not_be_stored_fails_its_own_commit_only(store: PostgresCheckpointer) -> None:
    driver, other, third = await drive(store), await drive(store, "other"), await drive(store, "third")
    first = third.commit(third.record())
    nul = driver.commit(driver.record(), facts=facts(document="nul \x00"))
    half = other.commit(other.record(id="lone \ud800"))
    good = third.commit(third.record())
    await first
    await refused(StoreError, nul)
    await refused(StoreError, half)
    await good
    again = await drive(store, now=NOW + LEASE)
    await again.commit(again.record(), facts=facts(title="for people \ud800\x00!"))
    row = await store.thread("thread")
    assert row is not None
    assert row.facts.title == "for people ?!"


async def test_who_asks_for_a_text_that_can_not_be_there_is_told_so_and_the_store_is_well(
    store: PostgresCheckpointer,
) -> None:
    for asked in (store.thread("nul \x00"), store.threads(agent_key="\x00"), store.open_interrupts(owner="\x00")):
        error = await refused(StoreError, asked)
        assert error.code == "invalid_input"
        assert "NUL" in error.message
    assert await store.threads() == []


async def test_compacting_returns_the_space_of_pruned_rows_to_the_file_system(
    store: PostgresCheckpointer, schemas: Schemas, schema: str
) -> None:
    driver = await drive(store)
    for n in range(20):
        # Random, since PostgreSQL compresses what repeats.
        await driver.add(data=random.Random(n).randbytes(100_000), snapshot=b"s")
    await store.prune("thread", Keep(newest=1))
    await store.compact()
    assert schemas.run(f"SELECT pg_total_relation_size('{schema}.records')") < [(500_000,)]
    await driver.add()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["this database", "another database"])
async def test_compacting_waits_for_a_transaction_that_may_still_read_what_was_pruned(
    store: PostgresCheckpointer, schemas: Schemas, schema: str, postgres: PostgresServer, elsewhere: bool
) -> None:
    """A vacuum beside it would keep the rows and say nothing; so would one that gives up waiting without an error."""
    driver = await drive(store)
    for n in range(20):
        await driver.add(data=random.Random(n).randbytes(100_000), snapshot=b"s")
    url = f"{postgres.url() if elsewhere else schemas.url}&application_name=report"
    async with await psycopg.AsyncConnection.connect(url) as report:
        await report.execute("SELECT pg_current_xact_id()")
        await store.prune("thread", Keep(newest=1))
        hasty = PostgresCheckpointer(schemas.url, schema=schema, patience_s=0)
        error = await refused(StoreError, hasty.compact())
        await hasty.close()
        assert "of report in database" in error.message
        assert "compact again" in error.message
        async with asyncio.TaskGroup() as compacting:
            compacting.create_task(store.compact())
            await report.rollback()
    assert schemas.run(f"SELECT pg_total_relation_size('{schema}.records')") < [(500_000,)]


async def test_a_closed_store_says_so(store: PostgresCheckpointer) -> None:
    driver = await drive(store)
    await store.close()
    await store.close()
    for use in (store.threads(), store.load("thread"), store.setup(), store.put_document("d", b"")):
        assert "is closed" in (await refused(StoreError, use)).message
    assert "is closed" in (await refused(StoreError, driver.commit(driver.record()))).message


async def test_a_commit_before_the_store_is_open_is_refused(schemas: Schemas, schema: str) -> None:
    store = PostgresCheckpointer(schemas.url, schema=schema)
    with pytest.raises(StoreError, match="not open"):
        store.commit("thread", 1, None, (), facts=facts())
    await store.close()


# --- the schema ------------------------------------------------------------------------------------


async def test_a_newer_schema_is_refused(store: PostgresCheckpointer, schemas: Schemas, schema: str) -> None:
    schemas.run(f"UPDATE {schema}.schema_version SET version = 999")
    newer = PostgresCheckpointer(schemas.url, schema=schema)
    for _ in range(2):
        error = await refused(StoreError, newer.setup())
        assert error.code == "store_version_unsupported"
        assert "update graphflow" in error.message
    await refused(StoreError, newer.threads())
    await newer.close()
    schemas.run(f"UPDATE {schema}.schema_version SET version = {len(steps_of(migrations.MIGRATIONS))}")


async def test_a_schema_of_another_program_is_refused_without_being_touched(schemas: Schemas) -> None:
    schemas.run("CREATE SCHEMA foreigner; CREATE TABLE foreigner.threads (x integer)")
    store = PostgresCheckpointer(schemas.url, schema="foreigner")
    error = await refused(StoreError, store.setup())
    assert "another program" in error.message
    await store.close()
    assert schemas.run("SELECT tablename FROM pg_tables WHERE schemaname = 'foreigner'") == [("threads",)]
    schemas.run("DROP SCHEMA foreigner CASCADE")


async def test_two_stores_share_a_database(schemas: Schemas, schema: str) -> None:
    other_schema = schemas.take()
    one = PostgresCheckpointer(schemas.url, schema=schema)
    other = PostgresCheckpointer(schemas.url, schema=other_schema)
    await (await drive(one)).add(b"one")
    await (await drive(other)).add(b"other")
    assert await messages(one, "thread", count=1) == [b"one"]
    assert await messages(other, "thread", count=1) == [b"other"]
    await one.close()
    await other.close()


async def test_a_user_without_the_right_to_make_a_schema_can_use_one_that_is_there(
    store: PostgresCheckpointer, schemas: Schemas, schema: str
) -> None:
    schemas.run(
        f"CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA {schema} TO guest;"
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO guest"
    )
    url = schemas.url.replace("postgres@", "guest@")
    guest = PostgresCheckpointer(url, schema=schema)
    await (await drive(guest)).add(b"0")
    await guest.close()
    stranger = PostgresCheckpointer(url, schema="not_there")
    error = await refused(StoreError, stranger.setup())
    assert "lacks a right" in error.message
    await stranger.close()
    schemas.run("DROP OWNED BY guest; DROP ROLE guest")


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    names = sorted(path.name for path in migrations.MIGRATIONS.glob("*.sql"))
    assert names and [int(name.partition("_")[0]) for name in names] == list(range(1, len(names) + 1))


async def test_the_schema_has_the_tables_that_tests_empty(
    store: PostgresCheckpointer, schemas: Schemas, schema: str
) -> None:
    rows = schemas.run(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1")
    assert [name for (name,) in rows] == TABLES


async def test_a_fork_writes_two_rows_however_long_the_history_is(
    store: PostgresCheckpointer, schemas: Schemas, schema: str
) -> None:
    driver = await drive(store)
    for n in range(200):
        driver.commit(driver.record(b"%d" % n))
    await store.flush()

    def counts() -> list[int]:
        return [int(schemas.run(f"SELECT count(*) FROM {schema}.{table}")[0][0]) for table in TABLES]

    before = counts()
    await store.fork(driver.ids[150], "thread", "fork", number=999_999_999, facts=facts())
    changed = {table: n - m for table, n, m in zip(TABLES, counts(), before, strict=True) if n != m}
    assert changed == {"lineages": 1, "threads": 1}


async def test_a_long_history_is_read_by_indexes(schemas: Schemas, schema: str) -> None:
    """Also while statistics still say that the tables are empty."""

    def read_whole() -> list[tuple[Any, ...]]:
        """Rows that were read by going through a table: what sessions have counted is known when they have ended."""
        assert sessions(schemas, "counted", expected=0) == 0
        schemas.run("SELECT pg_stat_force_next_flush()")
        return schemas.run(
            "SELECT sum(seq_tup_read)::int FROM pg_stat_user_tables"
            f" WHERE schemaname = '{schema}' AND relname <> 'schema_version'"
        )

    url = f"{schemas.url}&application_name=counted"
    store = PostgresCheckpointer(url, schema=schema)
    driver = await drive(store)
    for n in range(300):
        driver.commit(driver.record(b"%d" % n, snapshot=b"s" if n % 50 == 0 else None))
    await store.flush()
    await store.close()
    before = read_whole()
    again = PostgresCheckpointer(url, schema=schema)
    await again.load("thread", driver.ids[123])
    await again.list_checkpoints("thread", limit=10)
    await again.list_checkpoints("thread", before=driver.ids[200], limit=10, all_lineages=True)
    await again.read_records("thread", lineage=driver.lineage, after=10, upto=20)
    await again.find_run("nobody")
    await messages(again, "thread", count=300)
    await again.close()
    assert read_whole() == before


# --- other stores ----------------------------------------------------------------------------------

KINDS = ("memory", "sqlite", "postgres")


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(KINDS, 2)))
async def test_a_thread_moves_between_stores_without_loss(
    schemas: Schemas, tmp_path: Path, source: str, target: str
) -> None:
    def make(kind: str, name: str) -> Checkpointer:
        if kind == "memory":
            return MemoryCheckpointer()
        if kind == "sqlite":
            return SqliteCheckpointer(tmp_path / name)
        return PostgresCheckpointer(schemas.url, schema=schemas.take())

    stores: Sequence[Any] = [make(source, "source"), make(target, "target"), make(source, "back")]
    try:
        await rich_thread(stores[0])
        before, lines = await picture(stores[0], "thread"), await lines_of(stores[0], "thread")
        for here, there in itertools.pairwise(stores):
            await there.import_thread(stream(await lines_of(here, "thread")))
            assert await picture(there, "thread") == before
        assert [{**line, "thread": None} for line in await lines_of(stores[2], "thread")] == [
            {**line, "thread": None} for line in lines
        ]
    finally:
        for made in stores:
            await made.close()
        schemas.empty()


# --- its name --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://ann:s3cret@db.example.org:5433/app", "postgresql://ann@db.example.org:5433/app#graphflow"),
        ("host=db.example.org user=ann password=s3cret dbname=app", "postgresql://ann@db.example.org/app#graphflow"),
        ("postgresql://ann@/app?host=/run/pg&password=s3cret", "postgresql://ann@/app?host=/run/pg#graphflow"),
        ("postgresql:///app?sslpassword=s3cret", "postgresql:///app#graphflow"),
    ],
)
def test_a_stores_name_has_no_password(url: str, name: str) -> None:
    store = PostgresCheckpointer(url)
    assert store.name == name
    assert "s3cret" not in repr(store)


@pytest.mark.parametrize("url", ["postgresql://ann:s3c%zzret@host/db", "s3cret", "postgresql://h/db?s3cret"])
def test_a_url_that_can_not_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="can't be read") as caught:
        PostgresCheckpointer(url)
    assert "s3c" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_schema_is_a_plain_name_and_there_is_a_connection() -> None:
    for schema in ("", "1st", 'x"; DROP', "a" * 64):
        with pytest.raises(ValueError, match="schema"):
            PostgresCheckpointer("postgresql:///app", schema=schema)
    with pytest.raises(ValueError, match="connections"):
        PostgresCheckpointer("postgresql:///app", connections=0)


async def test_closing_leaves_no_lock_behind(store: PostgresCheckpointer) -> None:
    folder = store._owner_lock.folder
    assert folder.is_relative_to(tempfile.gettempdir())
    await store.take("thread", owner=store.owner, now=NOW, lease_ms=LEASE)
    held = list(folder.iterdir())
    assert len(held) == 1
    os.utime(held[0], (0, 0))
    await store.renew(store.owner, lease_until=NOW)
    assert held[0].stat().st_mtime > 0, "a lease that is renewed keeps its lock from being swept away"
    await store.close()
    assert not folder.exists()


async def test_a_table_that_another_process_has_made_just_now_is_no_damage() -> None:
    """`to_regclass` sees the new table although the snapshot of the transaction is older than its row."""
    migrations = Migrations(MIGRATIONS, "the store", "foreign")
    work = postgres_version(migrations, _SCHEMA)
    next(work)
    work.send([[(True, True, True)]])
    with pytest.raises(StopIteration) as end:
        work.send([[]])
    assert end.value.value is None, "looked at again once the lock is ours"
