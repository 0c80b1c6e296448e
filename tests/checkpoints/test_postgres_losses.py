"""What the PostgreSQL store promises when connections, answers and the database itself are lost (spec 4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest

from graphflow import Graph
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.postgres.pipeline import Connection
from graphflow.checkpoints.postgres.pool import COMMIT
from graphflow.errors import Fenced, StoreError, ThreadBusy
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Driver,
    drive,
    facts,
    forked,
    messages,
    next_number,
    refused,
)
from tests.checkpoints.postgres_proxy import Proxy, proxy_to
from tests.patience import PATIENCE_S
from tests.postgres import Schemas
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def schemas(own_postgres: PostgresServer) -> Iterator[Schemas]:
    """Of a server that these tests may stop."""
    with Schemas(own_postgres.url()) as made:
        yield made


@pytest.fixture
async def proxy(own_postgres: PostgresServer) -> AsyncIterator[Proxy]:
    async with proxy_to(own_postgres.folder) as made:
        yield made


@pytest.fixture
async def store(proxy: Proxy, schema: str) -> AsyncIterator[PostgresCheckpointer]:
    """Behind the proxy; answers are durable when they are given."""
    store = PostgresCheckpointer(proxy.url, schema=schema, patience_s=120, synchronous_commit="on")
    await store.setup()
    yield store
    await store.close()


@pytest.fixture
async def direct(schemas: Schemas, schema: str) -> AsyncIterator[PostgresCheckpointer]:
    store = PostgresCheckpointer(schemas.url, schema=schema, patience_s=120, synchronous_commit="on")
    await store.setup()
    yield store
    await store.close()


async def numbers(store: PostgresCheckpointer, thread_id: str = "thread") -> list[bytes]:
    stored = await store.load(thread_id)
    assert stored is not None
    assert [record.ordinal for record in stored.records] == list(range(1, stored.thread.ordinal + 1))
    return await messages(store, thread_id, count=stored.thread.ordinal)


# --- single answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_commit_whose_outcome_is_unknown_is_found_out(
    store: PostgresCheckpointer, proxy: Proxy, what: str
) -> None:
    driver = await drive(store)
    await driver.add(b"0")
    proxy.lose(what)
    await driver.add(b"1")
    assert proxy.lost == 1
    await driver.add(b"2")
    assert await numbers(store) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_batch_whose_outcome_is_unknown_is_kept_once_and_in_order(
    store: PostgresCheckpointer, proxy: Proxy, what: str
) -> None:
    drivers = [await drive(store, f"thread-{n}") for n in range(3)]
    for driver in drivers:
        await driver.add(b"0")
    first = drivers[0].commit(drivers[0].record(b"1"))  # is sent at once; the others are a batch behind it
    order: list[int] = []
    promises = [driver.commit(driver.record(b"%d" % n)) for n in range(2, 30) for driver in drivers[1:]]
    for n, durable in enumerate(promises):
        durable.when_done(lambda n=n: order.append(n))  # type: ignore[misc]
    proxy.lose(what, b"2")
    await first
    await asyncio.gather(*(kept(durable) for durable in promises))
    assert proxy.lost == 1
    assert order == list(range(len(promises)))
    for driver in drivers[1:]:
        assert await numbers(store, driver.thread_id) == [b"0", *(b"%d" % n for n in range(2, 30))]


async def kept(awaitable: Awaitable[None]) -> None:
    await awaitable


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_rewind_and_a_release_whose_outcome_is_unknown_are_found_out(
    store: PostgresCheckpointer, proxy: Proxy, what: str
) -> None:
    driver = await drive(store)
    for n in range(3):
        await driver.add(b"%d" % n)
    old = driver.lineage
    driver.begin(old, 1, counts={(0, "messages"): 1})
    proxy.lose(what)
    await driver.add(b"new")
    stored = await store.load("thread")
    assert stored is not None
    assert stored.chain == ((old, 1), (driver.lineage, 1))
    proxy.lose(what)
    await driver.commit(facts=facts(status="waiting", updated_at=NOW + 7), release=True)
    row = await store.thread("thread")
    assert row is not None
    assert (row.owner, row.facts.status, row.facts.updated_at) == (None, "waiting", NOW + 7)
    assert proxy.lost == 2


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_users_thread_is_given_back_once_whatever_is_lost(
    store: PostgresCheckpointer, proxy: Proxy, what: str
) -> None:
    """A thread's row says whose it is, the facts of a commit need not."""
    await store.assign("thread", "ann", now=NOW)
    driver = await drive(store)
    await driver.add(b"0")
    proxy.lose(what)
    await driver.commit(facts=facts(status="idle", title="nul \x00"), release=True)
    row = await store.thread("thread")
    assert row is not None
    assert (row.owner, row.facts.user, row.facts.status, row.facts.title) == (None, "ann", "idle", "nul ")
    assert proxy.lost == 1


@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_taking_whose_outcome_is_unknown_is_one_epoch(
    store: PostgresCheckpointer, proxy: Proxy, what: str
) -> None:
    for fence in (1, 2):
        proxy.lose(what)
        driver = await drive(store)
        assert driver.fence == fence
        await driver.add(channel=f"c{fence}")
        await store.release("thread", fence)
    assert proxy.lost == 2
    await drive(store)
    await refused(ThreadBusy, store.take("thread", owner="owner", now=NOW, lease_ms=LEASE))


@pytest.mark.parametrize("at", ["its statements", "its commit"])
@pytest.mark.parametrize("what", ["request", "answer"])
async def test_a_change_whose_outcome_is_unknown_is_done_once(
    store: PostgresCheckpointer, proxy: Proxy, what: str, at: str
) -> None:
    """The database is asked what became of a transaction whose COMMIT got no answer."""
    driver = await drive(store)
    for n in range(3):
        await driver.add(b"%d" % n)
    await store.enqueue("thread", b"for the one connection of the pool", now=NOW)
    await store.dequeue("thread")

    def lose() -> None:
        proxy.lose(what, COMMIT.name if at == "its commit" else b"")

    lose()
    position = await store.enqueue("thread", b"input", now=NOW)
    assert await store.queued("thread") == (position, b"input")
    await warm(store)
    lose()
    await store.fork(driver.ids[1], "thread", "fork", number=next_number(), facts=facts())
    await warm(store)
    lose()
    assert await store.dequeue("thread") == b"input"
    await warm(store)
    lose()
    await store.delete_thread("fork")
    await warm(store)
    for note, before in ((b"1", None), (b"2", b"1")):
        lose()
        assert await store.swap_note("note", note, instead_of=before)
    assert proxy.lost == 6
    assert await store.note("note") == b"2"
    assert await store.queue("thread") == []
    assert await store.thread("fork") is None


async def warm(store: PostgresCheckpointer) -> None:
    """A connection that knows COMMIT by name."""
    await store.delete_thread("nobody")


async def test_reads_are_done_again(store: PostgresCheckpointer, proxy: Proxy) -> None:
    driver = await drive(store)
    await driver.add(b"0")
    for what in ("request", "answer"):
        for _ in range(3):
            proxy.lose(what)
            assert await numbers(store) == [b"0"]
            proxy.lose(what)
            assert [row.thread_id for row in await store.threads()] == ["thread"]
    assert proxy.lost == 12


# --- the database ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["INT", "QUIT"])
async def test_commits_go_on_after_a_restart_of_the_database(
    direct: PostgresCheckpointer, own_postgres: PostgresServer, how: str
) -> None:
    drivers = [await drive(direct, f"thread-{n}") for n in range(3)]
    over = asyncio.Event()

    async def commit(driver: Driver) -> None:
        n = 0
        while not over.is_set() or n % 5:
            durable = driver.commit(driver.record(b"%d" % n))
            n += 1
            if n % 5 == 0:
                await durable

    async with asyncio.TaskGroup() as group:
        for driver in drivers:
            group.create_task(commit(driver))
        await asyncio.to_thread(own_postgres.restart, how)
        await asyncio.to_thread(own_postgres.restart, how)
        over.set()
    for driver in drivers:
        assert await numbers(direct, driver.thread_id) == [b"%d" % n for n in range(driver.ordinal)]
        assert [line.id for line in await direct.list_checkpoints(driver.thread_id)] == driver.ids[::-1]


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_run_goes_on_over_a_restart_of_the_database(
    direct: PostgresCheckpointer, own_postgres: PostgresServer, durability: str
) -> None:
    seen: list[int] = []

    async def work(state: Any) -> dict[str, int]:
        seen.append(state["n"])
        if state["n"] == 20:
            await asyncio.to_thread(own_postgres.stop, "INT")
        if state["n"] == 40 if durability == "async" else state["n"] == 20:
            await asyncio.to_thread(own_postgres.start)
        return {"n": state["n"] + 1}

    graph: Any = Graph(
        {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, budget={"maxSteps": 1000}
    )
    graph.node(work, name="work", next=[{"if": "state.n < 60", "to": "work"}, {"to": "end"}])
    app = graph.compile(checkpointer=direct)
    result = await app.run({}, "thread", durability=durability)
    assert (result.status, result.state["n"]) == ("completed", 60)
    assert seen == list(range(60))
    history = await app.thread("thread").history()
    assert len(history) == 61


async def test_a_run_fails_cleanly_when_the_database_stays_away_and_goes_on_later(
    schemas: Schemas, own_postgres: PostgresServer, schema: str
) -> None:
    store = PostgresCheckpointer(schemas.url, schema=schema, patience_s=0.3, synchronous_commit="on")
    seen: list[int] = []

    async def work(state: Any) -> dict[str, int]:
        seen.append(state["n"])
        if len(seen) == 6:
            await asyncio.to_thread(own_postgres.stop, "INT")
        return {"n": state["n"] + 1}

    graph: Any = Graph(
        {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, budget={"maxSteps": 1000}
    )
    graph.node(work, name="work", next=[{"if": "state.n < 10", "to": "work"}, {"to": "end"}])
    app = graph.compile(checkpointer=store)
    error = await refused(StoreError, app.run({}, "thread", durability="sync"))
    assert error.code == "store_failed"
    assert "can't be reached" in error.message
    assert seen == [0, 1, 2, 3, 4, 5], "nothing runs without its past being durable"
    await asyncio.to_thread(own_postgres.start)
    assert (await app.thread("thread").state()).values["n"] == 5  # earlier checkpoints can be read
    await store.close()

    again = PostgresCheckpointer(schemas.url, schema=schema)
    result = await graph.compile(checkpointer=again).resume("thread")
    assert result.state["n"] == 10
    assert seen[6:] == [5, 6, 7, 8, 9]
    await again.close()


async def test_commits_wait_no_longer_than_the_patience_and_none_is_kept_later(
    schemas: Schemas, own_postgres: PostgresServer, schema: str
) -> None:
    store = PostgresCheckpointer(schemas.url, schema=schema, patience_s=1, synchronous_commit="on")
    drivers = [await drive(store, f"thread-{n}") for n in range(20)]
    for driver in drivers:
        await driver.add(b"kept")
    await asyncio.to_thread(own_postgres.stop)
    async with asyncio.timeout(45):  # once for all: one patience for each would be a minute
        promises = [driver.commit(driver.record(b"lost")) for driver in drivers for _ in range(3)]
        errors = [await refused(StoreError, durable) for durable in promises]
        assert any("can't be reached" in error.message for error in errors)
        await refused(StoreError, store.load("thread-0"))
    await asyncio.to_thread(own_postgres.start)
    late = drivers[0].commit(drivers[0].record(b"late"))
    await refused(Fenced, late)
    assert await messages(store, "thread-0", count=1) == [b"kept"]
    again = await drive(store, "thread-0", now=NOW + LEASE)
    again.counts = {(0, "messages"): 1}
    await again.add(b"goes on")
    assert await numbers(store, "thread-0") == [b"kept", b"goes on"]
    await store.close()


async def test_ended_sessions_are_replaced(direct: PostgresCheckpointer, schemas: Schemas) -> None:
    driver = await drive(direct)
    for n in range(10):
        schemas.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'graphflow' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        await driver.add(b"%d" % n)
    assert await numbers(direct) == [b"%d" % n for n in range(10)]


async def test_a_database_that_is_away_at_first_is_told_at_once(schemas: Schemas, schema: str) -> None:
    store = PostgresCheckpointer("postgresql://user:hunter2@127.0.0.1:1/db", schema=schema, patience_s=10 * PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        error = await refused(StoreError, store.setup())
    assert "could not be opened" in error.message
    assert "hunter2" not in error.message + repr(store) + repr(error.as_dict())
    await refused(StoreError, store.threads())
    await store.close()


# --- what passes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_serialization_failures_and_deadlocks_are_tried_again(
    direct: PostgresCheckpointer, schemas: Schemas, schema: str, state: str
) -> None:
    driver = await drive(direct)
    await driver.add(b"0")
    schemas.run(
        f"CREATE SEQUENCE {schema}.tries; CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('{schema}.tries') < 6 THEN RAISE EXCEPTION 'again' USING ERRCODE = '{state}'; END IF; RETURN new;"
        f" END $$; CREATE TRIGGER fail BEFORE INSERT ON {schema}.items FOR EACH ROW EXECUTE FUNCTION {schema}.fail()"
    )
    promises = [driver.commit(driver.record(b"%d" % n)) for n in range(1, 10)]
    for durable in promises:
        await durable
    fork = await forked(direct, driver, 3)
    await fork.add(b"f")
    assert await numbers(direct) == [b"%d" % n for n in range(10)]
    schemas.run(f"DROP FUNCTION {schema}.fail CASCADE; DROP SEQUENCE {schema}.tries")


async def test_a_lone_step_is_one_round_trip_and_many_threads_share_it(
    direct: PostgresCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = [await drive(direct, f"thread-{n}") for n in range(50)]
    sent: list[int] = []
    send = Connection.send

    def counted(self: Connection, calls: list[object], done: object) -> None:
        sent.append(len(calls))
        send(self, calls, done)  # type: ignore[arg-type]

    for driver in drivers:
        await driver.add(b"first")
    monkeypatch.setattr(Connection, "send", counted)
    for _ in range(5):
        await drivers[0].add(b"x")
    assert len(sent) == 5
    sent.clear()
    promises = [driver.commit(driver.record(b"y")) for driver in drivers]
    for durable in promises:
        await durable
    assert len(sent) == 2, "the first alone, all others together"
