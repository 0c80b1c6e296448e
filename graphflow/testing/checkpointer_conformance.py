"""The promises of the checkpointer port as tests that every store has to pass (spec 4.1).

For a store of your own, subclass in a test file that pytest collects:

```python
class TestMyStore(CheckpointerConformance):
    def make(self, folder):
        return MyStore(folder / "data")
```

Each test gets an empty folder and a store that is set up, and needs no plugin. The letters and numbers in the docstrings are
those of docs/conformance.md.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from graphflow.checkpoints.port import (
    Checkpointer,
    Durable,
    Item,
    Lineage,
    Log,
    OpenInterrupt,
    Record,
    ThreadFacts,
)
from graphflow.errors import CheckpointNotFound, Fenced, GraphflowError, StoreError, ThreadBusy, ThreadNotFound

E = TypeVar("E", bound=GraphflowError)
S = TypeVar("S", bound="_Suite")

NOW = 1_700_000_000_000
LEASE = 15_000
_numbers = itertools.count(1)


def new_id() -> str:
    """A time-ordered id in the form of UUIDv7."""
    number = next(_numbers)
    return f"018f0000-{number >> 16:04x}-7{number & 0xFFF:03x}-8000-{number:012x}"


def facts(**changes: Any) -> ThreadFacts:
    return ThreadFacts(**{"status": "running", "updated_at": NOW, **changes})


class Driver:
    """One life of a thread: commits records in order, as a journal does."""

    def __init__(self, store: Checkpointer, thread_id: str, fence: int, head: str | None) -> None:
        self.store = store
        self.thread_id = thread_id
        self.fence = fence
        self.head = head
        self.lineage = 0
        self.ordinal = 0
        self.ids: list[str] = []
        self.counts: dict[tuple[int, str], int] = {}
        self._begins: Lineage | None = None

    def begin(
        self, parent: int | None = None, cut: int = 0, counts: Mapping[tuple[int, str], int] | None = None
    ) -> int:
        """The next commit begins a lineage; its number."""
        self.lineage = next(_numbers)
        self.ordinal = 0
        if counts is not None:
            self.counts = dict(counts)
        self._begins = Lineage(number=self.lineage, thread_id=self.thread_id, parent=parent, cut=cut)
        return self.lineage

    def record(self, *messages: bytes, channel: str = "messages", frame: int = 0, **fields: Any) -> Record:
        """The next record, with entries for one channel."""
        self.ordinal += 1
        first = self.counts.get((frame, channel), 0)
        self.counts[frame, channel] = first + len(messages)
        items = tuple(Item(frame, channel, first + n, data) for n, data in enumerate(messages))
        fields = {"checkpoint": True, "meta": b"meta", "data": b"data", "items": items, "id": new_id(), **fields}
        return Record(lineage=self.lineage, ordinal=self.ordinal, **fields)

    def commit(self, *records: Record, **options: Any) -> Durable:
        begins, self._begins = self._begins, None
        options = {"facts": facts(), "begins": begins, **options}
        durable = self.store.commit(self.thread_id, self.fence, self.head, records, **options)
        if records:
            self.head = records[-1].id
            self.ids += [record.id for record in records]
        return durable

    async def add(self, *messages: bytes, **fields: Any) -> Record:
        """One durable record."""
        record = self.record(*messages, **fields)
        await self.commit(record)
        return record


async def drive(store: Checkpointer, thread_id: str = "thread", *, now: int = NOW, owner: str = "owner") -> Driver:
    """Takes a thread; a new one begins its first lineage with its first commit."""
    row = await store.take(thread_id, owner=owner, now=now, lease_ms=LEASE)
    driver = Driver(store, thread_id, row.fence, row.head)
    if row.lineage is None:
        driver.begin()
    else:
        driver.lineage, driver.ordinal = row.lineage, row.ordinal
    return driver


async def refused(kind: type[E], awaitable: Awaitable[Any]) -> E:
    """The error of this kind that awaiting raises."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"nothing raised {kind.__name__}")


async def messages(store: Checkpointer, thread_id: str, checkpoint_id: str | None = None, *, count: int) -> list[bytes]:
    stored = await store.load(thread_id, checkpoint_id)
    assert stored is not None
    return await store.read_items(stored.chain, 0, "messages", count)


async def lines_of(store: Checkpointer, thread_id: str) -> list[Mapping[str, Any]]:
    return [line async for line in store.export_thread(thread_id)]


async def stream(lines: Iterable[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    for line in lines:
        yield line


class _Suite:
    """What all parts of the suite need."""

    durable = True
    """Whether a second `make(folder)` sees what the first one stored."""

    def make(self, folder: Path) -> Checkpointer:
        """A store whose data lies in this folder, not yet set up."""
        raise NotImplementedError(
            "override make(folder): see the docstring of graphflow.testing.checkpointer_conformance"
        )


def promise(test: Callable[[S, Checkpointer], Coroutine[Any, Any, None]]) -> Callable[[S], None]:
    """A test that any runner can call: it opens a store, runs on a loop of its own, and closes the store."""

    async def kept(suite: S, folder: Path) -> None:
        store = suite.make(folder)
        await store.setup()
        try:
            async with asyncio.timeout(60):
                await test(suite, store)
        finally:
            await store.close()

    def run(self: S) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(kept(self, Path(folder)))

    run.__name__, run.__qualname__, run.__doc__, run.__module__ = (
        test.__name__,
        test.__qualname__,
        test.__doc__,
        test.__module__,
    )
    return run


class Records(_Suite):
    """What was committed is what is read."""

    @promise
    async def test_a_record_comes_back_as_it_was_committed(self, store: Checkpointer) -> None:
        """P1, P2, P3, P7, G6, G7."""
        driver = await drive(store)
        record = await driver.add(b"hello", meta=b"\x00meta\xff", data=bytes(range(256)))
        stored = await store.load("thread")
        assert stored is not None
        assert stored.chain == ((driver.lineage, 1),)
        assert [(r.id, r.lineage, r.ordinal, r.checkpoint, r.meta, r.data) for r in stored.records] == [
            (record.id, driver.lineage, 1, True, b"\x00meta\xff", bytes(range(256)))
        ]
        assert stored.records[0].items == ()
        assert stored.target == stored.records[0]

    @promise
    async def test_a_threads_facts_are_those_of_its_last_commit(self, store: Checkpointer) -> None:
        """P8, G5."""
        driver = await drive(store)
        given = facts(
            status="waiting",
            run_id="run-1",
            document="sha256:ab",
            agent_key="demo",
            title="天气 \U0001f324",
            updated_at=NOW + 5,
        )
        await driver.commit(driver.record(), facts=given)
        row = await store.thread("thread")
        assert row is not None
        assert (row.thread_id, row.facts, row.head, row.lineage, row.ordinal) == (
            "thread",
            given,
            driver.head,
            driver.lineage,
            1,
        )
        assert (row.fence, row.owner, row.lease_until, row.created_at) == (1, "owner", NOW + LEASE, NOW)

    @promise
    async def test_every_earlier_checkpoint_stays_loadable(self, store: Checkpointer) -> None:
        """P12, P15, P16, G4."""
        driver = await drive(store)
        for n in range(5):
            await driver.add(b"message %d" % n)
        for n, checkpoint_id in enumerate(driver.ids):
            stored = await store.load("thread", checkpoint_id)
            assert stored is not None
            assert [record.id for record in stored.records] == driver.ids[: n + 1]
            assert stored.target is not None
            assert stored.target.id == checkpoint_id
            assert await messages(store, "thread", checkpoint_id, count=n + 1) == [
                b"message %d" % i for i in range(n + 1)
            ]

    @promise
    async def test_the_head_is_what_is_loaded_by_default(self, store: Checkpointer) -> None:
        """G3."""
        driver = await drive(store)
        await driver.add()
        last = await driver.add(checkpoint=False)
        stored = await store.load("thread")
        assert stored is not None
        assert stored.thread.head == last.id
        assert stored.records[-1].id == last.id

    @promise
    async def test_threads_do_not_mix(self, store: Checkpointer) -> None:
        """P13, L2."""
        one, other = await drive(store, "one"), await drive(store, "other")
        await one.add(b"one")
        await other.add(b"other")
        assert await messages(store, "one", count=1) == [b"one"]
        assert await messages(store, "other", count=1) == [b"other"]
        assert [r.id for r in await store.list("one")] == one.ids
        assert await store.load("one", other.ids[0]) is None

    @promise
    async def test_channels_and_frames_do_not_mix(self, store: Checkpointer) -> None:
        """P9, P10, P11, W3, W9, G10, L3."""
        driver = await drive(store)
        for frame, channel in ((0, "messages"), (7, "messages"), (0, "notes"), (2**31, "messages")):
            await driver.add(f"{frame}:{channel}".encode(), frame=frame, channel=channel)
        stored = await store.load("thread")
        assert stored is not None
        logs = [Log(0, "messages", 1), Log(7, "messages", 1), Log(0, "notes", 1), Log(2**31, "messages", 1)]
        assert await store.read_logs(stored.chain, logs) == [[f"{log.frame}:{log.channel}".encode()] for log in logs]
        assert await store.read_items(stored.chain, 7, "notes", 0) == []

    @promise
    async def test_an_unknown_thread_or_checkpoint_is_none(self, store: Checkpointer) -> None:
        """G1, G2."""
        assert await store.thread("nobody") is None
        assert await store.load("nobody") is None
        driver = await drive(store)
        await driver.add()
        assert await store.load("thread", new_id()) is None
        assert await store.load("thread", "no id at all") is None
        assert await store.load("nobody", driver.ids[0]) is None

    @promise
    async def test_a_taken_thread_without_records_loads_as_empty(self, store: Checkpointer) -> None:
        await store.take("thread", owner="owner", now=NOW, lease_ms=LEASE)
        stored = await store.load("thread")
        assert stored is not None
        assert (stored.chain, stored.snapshot, stored.records, stored.target) == ((), None, (), None)

    @promise
    async def test_records_without_a_checkpoint_are_loaded_but_not_history(self, store: Checkpointer) -> None:
        """W1, W2, W4, W5, W8, L16."""
        driver = await drive(store)
        first = await driver.add()
        operation = await driver.add(checkpoint=False, data=b"an operation's result")
        stored = await store.load("thread")
        assert stored is not None
        assert [(r.id, r.data) for r in stored.records] == [
            (first.id, b"data"),
            (operation.id, b"an operation's result"),
        ]
        assert [r.id for r in await store.list("thread")] == [first.id]
        assert await store.load("thread", operation.id) is None

    @promise
    async def test_empty_binary_and_large_values_survive(self, store: Checkpointer) -> None:
        """M1."""
        driver = await drive(store)
        values = [b"", b"\x00" * 3, b"x" * 5_000_000, "天".encode() * 1000]
        await driver.add(*values, meta=b"", data=b"", snapshot=b"")
        assert await messages(store, "thread", count=4) == values
        stored = await store.load("thread")
        assert stored is not None
        assert (stored.snapshot, stored.records) == (b"", ())

    @promise
    async def test_any_text_is_an_id(self, store: Checkpointer) -> None:
        """Stores may pack ids that look like UUIDs; what comes back is what came."""
        ids = [
            "018F0000-0000-7000-8000-00000000ABCD",
            "018f0000-0000-7000-8000-00000000abcd",
            "018f00000000700080000000000abcde",
            "018f0000-0000-7000-8000-00000000abc ",
            "{18f0000-0000-7000-8000-00000000abc}",
            "чат/1 'quoted' \"double\"",
            "x" * 36,
        ]
        for name in ids:
            driver = await drive(store, name)
            await driver.commit(driver.record(id=f"c:{name}"), facts=facts(run_id=f"r:{name}"))
        assert sorted(row.thread_id for row in await store.threads()) == sorted(ids)
        for name in ids:
            row = await store.thread(name)
            assert row is not None
            assert (row.thread_id, row.head, row.facts.run_id) == (name, f"c:{name}", f"r:{name}")
            assert await store.load(name, f"c:{name}") is not None
            assert await store.find_run(f"r:{name}") == name

    @promise
    async def test_a_snapshot_spares_the_records_before_it(self, store: Checkpointer) -> None:
        """H2, H6: the newest snapshot at or before the target, and what came after it."""
        driver = await drive(store)
        for n in range(1, 7):
            await driver.add(snapshot=b"snapshot %d" % n if n in {2, 5} else None)
        for n, (snapshot, after) in enumerate([(None, 0), (b"snapshot 2", 2), (b"snapshot 2", 2), (b"snapshot 2", 2), (b"snapshot 5", 5), (b"snapshot 5", 5)], 1):  # fmt: skip
            stored = await store.load("thread", driver.ids[n - 1])
            assert stored is not None
            assert stored.snapshot == snapshot
            assert [record.ordinal for record in stored.records] == list(range(after + 1, n + 1))
            assert stored.target is not None
            assert stored.target.ordinal == n

    @promise
    async def test_entries_may_be_read_from_a_compaction_on(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"a", b"b", b"c", b"d")
        stored = await store.load("thread")
        assert stored is not None
        assert await store.read_items(stored.chain, 0, "messages", 4, start=2) == [b"c", b"d"]
        assert await store.read_items(stored.chain, 0, "messages", 4, start=4) == []

    @promise
    async def test_missing_entries_are_an_error_and_no_shorter_list(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"a")
        stored = await store.load("thread")
        assert stored is not None
        error = await refused(StoreError, store.read_items(stored.chain, 0, "messages", 2))
        assert error.code == "store_failed"

    @promise
    async def test_bytes_of_a_step_are_bounded_by_what_it_adds(self, store: Checkpointer) -> None:
        """M11: the thousandth message costs what the tenth did."""
        driver = await drive(store)
        for _ in range(200):
            driver.commit(driver.record(b"m" * 1000))
        await store.flush()
        sizes = {line.size for line in await store.list("thread")}
        assert sizes == {1000 + len(b"meta") + len(b"data")}


class Commits(_Suite):
    """Order, atomicity and the compare-and-swap of E3."""

    @promise
    async def test_commits_of_a_thread_become_durable_in_the_order_of_their_calls(self, store: Checkpointer) -> None:
        """M4, E7."""
        driver = await drive(store)
        order: list[int] = []
        promises = []
        for n in range(50):
            durable = driver.commit(driver.record(b"%d" % n))
            durable.when_done(lambda n=n: order.append(n))  # type: ignore[misc]
            promises.append(durable)
        await promises[-1]
        assert all(durable.done for durable in promises)
        await asyncio.sleep(0)
        assert order == list(range(50))
        assert await messages(store, "thread", count=50) == [b"%d" % n for n in range(50)]

    @promise
    async def test_a_promise_may_be_awaited_twice_and_calls_back_at_once_when_kept(self, store: Checkpointer) -> None:
        driver = await drive(store)
        durable = driver.commit(driver.record())
        await durable
        await durable
        called: list[bool] = []
        durable.when_done(lambda: called.append(durable.done))
        assert called == [True]

    @promise
    async def test_giving_up_waiting_for_a_promise_does_not_undo_it(self, store: Checkpointer) -> None:
        """X2: a write in flight is completed."""
        driver = await drive(store)
        durable = driver.commit(driver.record())

        async def wait() -> None:
            await durable

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
        await durable
        assert [r.id for r in await store.list("thread")] == driver.ids

    @promise
    async def test_flush_waits_for_everything_queued_before(self, store: Checkpointer) -> None:
        driver = await drive(store)
        promises = [driver.commit(driver.record()) for _ in range(20)]
        await store.flush()
        assert all(durable.done for durable in promises)

    @promise
    async def test_several_records_are_one_commit(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.commit(*(driver.record(b"%d" % n) for n in range(3)))
        assert [r.id for r in await store.list("thread")] == driver.ids[::-1]
        assert await messages(store, "thread", count=3) == [b"0", b"1", b"2"]

    @promise
    async def test_a_commit_without_records_changes_the_facts_only(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add()
        await driver.commit(facts=facts(status="failed"), release=True)
        row = await store.thread("thread")
        assert row is not None
        assert (row.head, row.facts.status, row.owner) == (driver.head, "failed", None)

    @promise
    async def test_of_two_writers_on_one_head_one_wins(self, store: Checkpointer) -> None:
        """M2, W7: what lost left nothing."""
        driver = await drive(store)
        await driver.add(b"first")
        head, ordinal = driver.head, driver.ordinal
        winner = driver.commit(driver.record(b"winner"))
        driver.head, driver.ordinal, driver.counts = head, ordinal, {(0, "messages"): 1}
        loser = driver.commit(driver.record(b"loser"))
        await winner
        error = await refused(Fenced, loser)
        assert error.code == "fenced"
        assert await messages(store, "thread", count=2) == [b"first", b"winner"]

    @promise
    async def test_after_a_failed_commit_every_later_one_of_that_life_fails(self, store: Checkpointer) -> None:
        driver = await drive(store)
        good = await driver.add(b"good")
        lost = Record(id=new_id(), lineage=driver.lineage, ordinal=2, checkpoint=True, meta=b"", data=b"")
        store.commit("thread", driver.fence, "another head", [lost], facts=facts())
        later = driver.commit(driver.record(b"later"))
        await refused(Fenced, later)
        row = await store.thread("thread")
        assert row is not None
        assert row.head == good.id
        again = await drive(store, now=NOW + LEASE + 1)
        assert (await again.add()).ordinal == 2

    @promise
    async def test_an_older_life_is_fenced(self, store: Checkpointer) -> None:
        """E2: a second writer never writes."""
        old = await drive(store)
        await old.add(b"old")
        new = await drive(store, now=NOW + LEASE + 1, owner="other")
        await refused(Fenced, old.commit(old.record(b"late")))
        await new.add(channel="notes")
        assert [r.id for r in await store.list("thread")] == [new.ids[0], old.ids[0]]

    @promise
    async def test_one_threads_failure_does_not_touch_the_others(self, store: Checkpointer) -> None:
        drivers = [await drive(store, f"thread-{n}") for n in range(6)]
        for driver in drivers:
            await driver.add()
        for driver in drivers[::2]:
            driver.head = "not the head"
        promises = [driver.commit(driver.record(b"x")) for driver in drivers]
        for n, durable in enumerate(promises):
            if n % 2:
                await durable
            else:
                await refused(Fenced, durable)
        assert [len(await store.list(f"thread-{n}")) for n in range(6)] == [1, 2, 1, 2, 1, 2]

    @promise
    async def test_a_commit_is_all_or_nothing(self, store: Checkpointer) -> None:
        """M3: a record that breaks a rule takes its whole commit along, and leaves other threads' commits be."""
        driver, other = await drive(store), await drive(store, "other")
        await driver.add(b"kept")
        interrupt = OpenInterrupt(interrupt_id="i", thread_id="thread", run_id="r", kind="ask", node="n")
        fine = driver.record(b"lost", opened=(interrupt,))
        driver.ordinal += 1
        gap = driver.record(b"after a gap")
        mixed = (
            other.commit(other.record()),
            driver.commit(fine, gap, facts=facts(run_id="r")),
            other.commit(other.record()),
        )
        await mixed[0]
        await refused(StoreError, mixed[1])
        await mixed[2]
        assert [r.id for r in await store.list("thread")] == driver.ids[:1]
        assert await store.open_interrupts() == []
        assert await store.find_run("r") is None
        stored = await store.load("thread")
        assert stored is not None
        await refused(StoreError, store.read_items(stored.chain, 0, "messages", 2))
        assert len(await store.list("other")) == 2

    @promise
    async def test_records_outside_the_heads_lineage_are_refused(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add()
        driver.lineage += 1000
        await refused(StoreError, driver.commit(driver.record()))

    @promise
    async def test_an_entrys_ordinal_is_never_used_twice(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"first")
        driver.counts.clear()
        await refused(StoreError, driver.commit(driver.record(b"again")))
        assert await messages(store, "thread", count=1) == [b"first"]

    @promise
    async def test_committing_to_an_unknown_thread_is_fenced(self, store: Checkpointer) -> None:
        await drive(store)
        stranger = Driver(store, "nobody", 1, None)
        stranger.begin()
        await refused(Fenced, stranger.commit(stranger.record()))
        assert await store.thread("nobody") is None

    @promise
    async def test_loops_of_several_threads_may_share_the_store(self, store: Checkpointer) -> None:
        """M10: the synchronous twins run loops of their own."""
        failures: list[BaseException] = []

        async def work(name: str) -> None:
            driver = await drive(store, name)
            for n in range(20):
                durable = driver.commit(driver.record(b"%d" % n))
            await durable
            assert await messages(store, name, count=20) == [b"%d" % n for n in range(20)]
            assert len(await store.threads()) >= 1

        def run(name: str) -> None:
            try:
                asyncio.run(work(name))
            except BaseException as error:
                failures.append(error)
                raise

        workers = [threading.Thread(target=run, args=(f"thread-{n}",)) for n in range(4)]
        for worker in workers:
            worker.start()
        await work("here")
        for worker in workers:
            await asyncio.to_thread(worker.join)
        assert failures == []
        assert len(await store.threads()) == 5


class Leases(_Suite):
    """Taking a thread (E2)."""

    @promise
    async def test_taking_creates_the_thread_and_raises_its_fence(self, store: Checkpointer) -> None:
        row = await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        assert (row.fence, row.owner, row.lease_until, row.head, row.lineage) == (1, "me", NOW + LEASE, None, None)
        await store.release("thread", 1)
        row = await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        assert row.fence == 2

    @promise
    async def test_taking_an_unknown_thread_may_be_refused(self, store: Checkpointer) -> None:
        await refused(ThreadNotFound, store.take("thread", owner="me", now=NOW, lease_ms=LEASE, create=False))
        assert await store.thread("thread") is None

    @promise
    async def test_a_living_lease_is_busy_even_for_its_own_owner(self, store: Checkpointer) -> None:
        await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        for owner in ("me", "you"):
            error = await refused(ThreadBusy, store.take("thread", owner=owner, now=NOW + 5000, lease_ms=LEASE))
            assert error.detail["retryAfterMs"] == LEASE - 5000
        row = await store.thread("thread")
        assert row is not None
        assert row.fence == 1

    @promise
    async def test_an_expired_lease_may_be_taken(self, store: Checkpointer) -> None:
        await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        row = await store.take("thread", owner="you", now=NOW + LEASE, lease_ms=LEASE)
        assert (row.owner, row.fence) == ("you", 2)

    @promise
    async def test_of_many_at_once_one_takes_the_thread(self, store: Checkpointer) -> None:
        results = await asyncio.gather(
            *(store.take("thread", owner=f"owner-{n}", now=NOW, lease_ms=LEASE) for n in range(10)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, ThreadBusy) for result in results) == 9

    @promise
    async def test_renewing_extends_every_lease_of_the_owner_and_no_other(self, store: Checkpointer) -> None:
        for thread_id, owner in (("a", "me"), ("b", "me"), ("c", "you")):
            await store.take(thread_id, owner=owner, now=NOW, lease_ms=LEASE)
        await store.renew("me", lease_until=NOW + 2 * LEASE)
        await store.renew("me", lease_until=NOW)
        assert [row.lease_until - NOW for row in [await store.thread(t) for t in "abc"] if row] == [
            30_000,
            30_000,
            15_000,
        ]

    @promise
    async def test_releasing_gives_the_thread_back_unless_the_fence_is_old(self, store: Checkpointer) -> None:
        await store.take("thread", owner="me", now=NOW, lease_ms=LEASE)
        await store.release("thread", 7)
        await store.release("nobody", 1)
        await refused(ThreadBusy, store.take("thread", owner="you", now=NOW, lease_ms=LEASE))
        await store.release("thread", 1)
        assert (await store.take("thread", owner="you", now=NOW, lease_ms=LEASE)).fence == 2

    @promise
    async def test_the_last_commit_may_give_the_thread_back(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.commit(driver.record(), facts=facts(status="idle"), release=True)
        row = await store.thread("thread")
        assert row is not None
        assert (row.owner, row.lease_until, row.facts.status) == (None, 0, "idle")

    @promise
    async def test_nothing_is_committed_after_giving_back(self, store: Checkpointer) -> None:
        driver = await drive(store)
        promises = [driver.commit(driver.record(), release=True), driver.commit(driver.record())]
        await promises[0]
        await refused(Fenced, promises[1])
        again = await drive(store)
        await again.add()
        await store.release("thread", again.fence)
        await refused(Fenced, again.commit(again.record()))

    @promise
    async def test_a_deleted_threads_driver_is_fenced_also_from_its_namesake(self, store: Checkpointer) -> None:
        old = await drive(store)
        await store.delete_thread("thread")
        assert await store.thread("thread") is None
        assert await store.threads() == []
        new = await drive(store)
        assert new.fence > old.fence
        await refused(Fenced, old.commit(old.record(b"into the wrong thread")))
        await new.add(b"right")
        assert await messages(store, "thread", count=1) == [b"right"]


class History(_Suite):
    """Listing, lineages, forks, deletion."""

    @promise
    async def test_history_is_newest_first_with_parents_and_metadata(self, store: Checkpointer) -> None:
        """P14, G8, L1, L5."""
        driver = await drive(store)
        for n in range(4):
            await driver.add(b"12345", meta=b"step %d" % n, checkpoint=n != 2)
        ids = [driver.ids[n] for n in (0, 1, 3)]
        lines = await store.list("thread")
        assert [line.id for line in lines] == ids[::-1]
        assert [line.parent for line in lines] == [ids[1], ids[0], None]
        assert [line.meta for line in lines] == [b"step 3", b"step 1", b"step 0"]
        assert [line.ordinal for line in lines] == [4, 2, 1]
        assert {line.size for line in lines} == {5 + 6 + 4}

    @promise
    async def test_history_comes_in_pages(self, store: Checkpointer) -> None:
        """L6, L7, L8."""
        driver = await drive(store)
        for n in range(7):
            await driver.add(checkpoint=n != 4)
        whole = await store.list("thread")
        pages: list[Any] = []
        before = None
        while page := await store.list("thread", before=before, limit=2):
            pages += page
            before = page[-1].id
        assert pages == whole
        assert await store.list("thread", limit=0) == []
        assert await store.list("thread", before=driver.ids[0]) == []

    @promise
    async def test_history_of_an_unknown_thread_is_empty_and_an_unknown_cursor_an_error(
        self, store: Checkpointer
    ) -> None:
        """L15."""
        assert await store.list("nobody") == []
        assert await store.list("nobody", all_lineages=True) == []
        driver = await drive(store)
        assert await store.list("thread") == []
        await driver.add()
        await refused(CheckpointNotFound, store.list("thread", before=new_id()))

    @promise
    async def test_order_is_that_of_commits_also_when_clocks_go_back(self, store: Checkpointer) -> None:
        """M6."""
        driver = await drive(store)
        ids = [new_id() for _ in range(8)]
        skewed = [ids[n] for n in (4, 5, 0, 1, 6, 2, 7, 3)]
        for checkpoint_id in skewed:
            await driver.add(id=checkpoint_id)
        assert [line.id for line in await store.list("thread")] == skewed[::-1]
        for n, checkpoint_id in enumerate(skewed, 1):
            stored = await store.load("thread", checkpoint_id)
            assert stored is not None
            assert stored.chain[-1][1] == n
            assert len(await store.list("thread", before=checkpoint_id)) == n - 1

    @promise
    async def test_a_rewind_begins_a_lineage_and_keeps_the_old_branch(self, store: Checkpointer) -> None:
        """T3, E4, E8."""
        driver, old = await rewound(store)
        stored = await store.load("thread")
        assert stored is not None
        assert stored.chain == ((old, 3), (driver.lineage, 2))
        assert [record.id for record in stored.records] == [*driver.ids[:3], *driver.ids[5:]]
        assert await messages(store, "thread", count=5) == [b"0", b"1", b"2", b"new 0", b"new 1"]
        assert await messages(store, "thread", driver.ids[4], count=5) == [b"0", b"1", b"2", b"3", b"4"]
        assert await messages(store, "thread", driver.ids[5], count=4) == [b"0", b"1", b"2", b"new 0"]

    @promise
    async def test_the_tree_shows_all_branches_and_the_history_only_the_heads(self, store: Checkpointer) -> None:
        driver, _ = await rewound(store)
        ids = driver.ids
        assert [r.id for r in await store.list("thread")] == [ids[6], ids[5], ids[2], ids[1], ids[0]]
        tree = await store.list("thread", all_lineages=True)
        assert [r.id for r in tree] == [ids[n] for n in (6, 5, 4, 3, 2, 1, 0)]
        assert {r.id: r.parent for r in tree} == {
            ids[0]: None, ids[1]: ids[0], ids[2]: ids[1], ids[3]: ids[2], ids[4]: ids[3], ids[5]: ids[2], ids[6]: ids[5],
        }  # fmt: skip
        assert await store.list("thread", all_lineages=True, before=ids[4], limit=2) == tree[3:5]
        assert [r.id for r in await store.list("thread", before=ids[5], limit=2)] == [ids[2], ids[1]]
        await refused(CheckpointNotFound, store.list("thread", before=ids[4]))

    @promise
    async def test_a_snapshot_before_the_cut_serves_the_new_branch_and_one_behind_it_does_not(
        self, store: Checkpointer
    ) -> None:
        driver = await drive(store)
        first = driver.lineage
        for n in range(1, 6):
            await driver.add(snapshot=b"snapshot %d" % n if n in {2, 4} else None)
        driver.begin(first, 3)
        await driver.add()
        stored = await store.load("thread")
        assert stored is not None
        assert stored.snapshot == b"snapshot 2"
        assert [record.id for record in stored.records] == [driver.ids[2], driver.ids[5]]

    @promise
    async def test_many_rewinds_chain_up(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"0")
        chain = [(driver.lineage, 1)]
        for n in range(1, 70):
            driver.begin(driver.lineage, 1)
            await driver.add(b"%d" % n)
            chain.append((driver.lineage, 1))
        stored = await store.load("thread")
        assert stored is not None
        assert stored.chain == tuple(chain)
        assert await messages(store, "thread", count=70) == [b"%d" % n for n in range(70)]

    @promise
    async def test_records_of_one_lineage_can_be_read_in_ranges(self, store: Checkpointer) -> None:
        driver, old = await rewound(store)

        async def ordinals(lineage: int, after: int, upto: int) -> list[int]:
            rows = await store.read_records("thread", lineage=lineage, after=after, upto=upto)
            return [row.ordinal for row in rows]

        assert await ordinals(old, 0, 99) == [1, 2, 3, 4, 5]
        assert await ordinals(old, 2, 4) == [3, 4]
        assert await ordinals(old, 4, 2) == []
        assert await ordinals(driver.lineage, 0, 99) == [1, 2]
        assert await ordinals(next(_numbers), 0, 99) == []
        assert await store.read_records("nobody", lineage=old, after=0, upto=99) == []

    @promise
    async def test_a_lineage_needs_a_known_parent_and_a_number_of_its_own(self, store: Checkpointer) -> None:
        driver, old = await rewound(store)
        driver._begins = Lineage(number=old, thread_id="thread")
        driver.ordinal, driver.lineage = 0, old
        await refused(StoreError, driver.commit(driver.record()))
        again = await drive(store, now=NOW + LEASE + 1)
        again.begin(parent=next(_numbers), cut=1)
        await refused(StoreError, again.commit(again.record()))
        row = await store.thread("thread")
        assert row is not None
        assert row.head == driver.ids[6]

    @promise
    async def test_a_fork_shares_the_past_and_goes_its_own_way(self, store: Checkpointer) -> None:
        """C1, C2, C3, C6, C7, T3."""
        source = await drive(store)
        for n in range(4):
            await source.add(b"%d" % n)
        fork = await forked(store, source, 2)
        assert await messages(store, "fork", count=2) == [b"0", b"1"]
        assert [r.id for r in await store.list("fork")] == source.ids[1::-1]
        await fork.add(b"other words")
        await source.add(b"4")
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"other words"]
        assert await messages(store, "thread", count=5) == [b"0", b"1", b"2", b"3", b"4"]
        stored = await store.load("fork")
        assert stored is not None
        assert stored.chain == ((source.lineage, 2), (fork.lineage, 1))
        assert await store.load("fork", source.ids[0]) is not None
        assert await store.load("fork", source.ids[3]) is None
        assert await store.load("thread", fork.ids[0]) is None
        assert (await store.list("fork"))[0].parent == source.ids[1]

    @promise
    async def test_a_fresh_fork_is_a_thread_at_the_checkpoint(self, store: Checkpointer) -> None:
        source = await drive(store)
        for _ in range(3):
            await source.add()
        number = next(_numbers)
        row = await store.fork(
            source.ids[1], "thread", "fork", number=number, facts=facts(status="idle", updated_at=NOW + 9)
        )
        assert (row.head, row.lineage, row.ordinal, row.fence, row.owner) == (source.ids[1], number, 0, 0, None)
        assert (row.facts.status, row.created_at) == ("idle", NOW + 9)
        assert await store.thread("fork") == row
        stored = await store.load("fork")
        assert stored is not None
        assert stored.chain == ((source.lineage, 2), (number, 0))
        assert stored.target is not None
        assert stored.target.id == source.ids[1]

    @promise
    async def test_a_fork_needs_a_source_a_checkpoint_of_it_and_a_free_id(self, store: Checkpointer) -> None:
        """C8."""
        source = await drive(store)
        await source.add()

        def fork(checkpoint_id: str, source_id: str, thread_id: str) -> Awaitable[Any]:
            return store.fork(checkpoint_id, source_id, thread_id, number=next(_numbers), facts=facts())

        await refused(ThreadNotFound, fork(source.ids[0], "nobody", "fork"))
        await refused(CheckpointNotFound, fork(new_id(), "thread", "fork"))
        await refused(ThreadBusy, fork(source.ids[0], "thread", "thread"))
        assert await store.thread("fork") is None
        await refused(
            StoreError, store.fork(source.ids[0], "thread", "fork", number=source.lineage, facts=facts())
        )  # fmt: skip

    @promise
    async def test_a_running_thread_can_be_forked(self, store: Checkpointer) -> None:
        source = await drive(store)
        await source.add(b"0")
        fork = await forked(store, source, 1)
        await source.add(b"1")
        await fork.add(b"fork")
        assert await messages(store, "thread", count=2) == [b"0", b"1"]

    @promise
    async def test_deleting_removes_everything_of_the_thread_and_nothing_of_others(self, store: Checkpointer) -> None:
        """D1, D2, D3, D4, D5."""
        driver, other = await drive(store), await drive(store, "other")
        for one in (driver, other):
            interrupt = OpenInterrupt(interrupt_id="i", thread_id=one.thread_id, run_id="r", kind="ask", node="n")
            record = one.record(b"x", opened=(interrupt,), snapshot=b"s")
            await one.commit(record, facts=facts(run_id=f"run of {one.thread_id}"), release=True)
            await store.enqueue(one.thread_id, b"input", now=NOW)
        await store.delete_thread("thread")
        await store.delete_thread("thread")
        await store.delete_thread("nobody")
        assert await store.load("thread") is None
        assert await store.load("thread", driver.ids[0]) is None
        assert await store.list("thread", all_lineages=True) == []
        assert await store.find_run("run of thread") is None
        assert await store.queued("thread") is None
        assert [i.thread_id for i in await store.open_interrupts()] == ["other"]
        assert await messages(store, "other", count=1) == [b"x"]
        assert await store.find_run("run of other") == "other"
        assert await store.queued("other") is not None
        again = await drive(store)
        assert again.fence == 1
        await again.add(b"anew")
        assert await messages(store, "thread", count=1) == [b"anew"]

    @promise
    async def test_deleting_the_source_keeps_what_its_fork_needs(self, store: Checkpointer) -> None:
        """E4: a lineage's rows go with the last thread that reaches them."""
        source = await drive(store)
        for n in range(4):
            await source.add(b"%d" % n, snapshot=b"s" if n == 0 else None)
        fork = await forked(store, source, 2)
        await fork.add(b"fork")
        await store.delete_thread("thread")
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"fork"]
        assert [r.id for r in await store.list("fork", all_lineages=True)] == [fork.ids[0], *source.ids[1::-1]]
        stored = await store.load("fork")
        assert stored is not None
        assert stored.snapshot == b"s"
        beyond = await refused(
            StoreError, store.read_items([(source.lineage, 4)], 0, "messages", 4)
        )  # what only the deleted thread reached is gone
        assert beyond.code == "store_failed"
        await store.delete_thread("fork")
        await refused(StoreError, store.read_items([(source.lineage, 2)], 0, "messages", 1))
        reborn = await drive(store, "third")
        reborn.lineage = source.lineage  # the number is free again
        reborn._begins = Lineage(number=source.lineage, thread_id="third")
        await reborn.add(b"new")

    @promise
    async def test_deleting_forks_in_any_order_keeps_the_rest_readable(self, store: Checkpointer) -> None:
        for order in itertools.permutations(("thread", "fork", "fork of fork")):
            source = await drive(store)
            for n in range(3):
                await source.add(b"%d" % n)
            fork = await forked(store, source, 3)
            await fork.add(b"3")
            second = await forked(store, fork, 4, thread_id="fork of fork")
            await second.add(b"4")
            for gone, name in enumerate(order, 1):
                await store.delete_thread(name)
                for left in order[gone:]:
                    count = {"thread": 3, "fork": 4, "fork of fork": 5}[left]
                    assert await messages(store, left, count=count) == [b"%d" % n for n in range(count)]

    @promise
    async def test_deleting_a_fork_leaves_the_source_whole(self, store: Checkpointer) -> None:
        source = await drive(store)
        for n in range(4):
            await source.add(b"%d" % n)
        await forked(store, source, 2)
        await store.delete_thread("fork")
        assert await messages(store, "thread", count=4) == [b"0", b"1", b"2", b"3"]
        await source.add(b"4")


async def rewound(store: Checkpointer) -> tuple[Driver, int]:
    """A thread of five checkpoints that went back to the third and on for two; the old lineage."""
    driver = await drive(store)
    for n in range(5):
        await driver.add(b"%d" % n)
    old = driver.lineage
    driver.begin(old, 3, counts={(0, "messages"): 3})
    await driver.add(b"new 0")
    await driver.add(b"new 1")
    return driver, old


async def forked(store: Checkpointer, source: Driver, count: int, thread_id: str = "fork") -> Driver:
    """A driver of a new fork that shares the source's first `count` messages, one per checkpoint."""
    history = [line.id for line in await store.list(source.thread_id)][::-1]
    await store.fork(history[count - 1], source.thread_id, thread_id, number=next(_numbers), facts=facts())
    driver = await drive(store, thread_id)
    driver.counts = {(0, "messages"): count}
    return driver


class Inbox(_Suite):
    """Open interrupts, runs, threads, documents and the queue."""

    @promise
    async def test_interrupts_are_open_from_the_record_that_asks_to_the_one_that_answers(
        self, store: Checkpointer
    ) -> None:
        driver = await drive(store)
        asked = OpenInterrupt(
            interrupt_id=f"{new_id()}:approve", thread_id="thread", run_id="run", kind="approval", node="tools",
            owner="ann", role="admin", agent_key="demo", opened_at=NOW, due_at=NOW + 9, data=b"\x00\xff",
        )  # fmt: skip
        await driver.add(opened=(asked,))
        assert await store.open_interrupts() == [asked]
        await driver.add(closed=(asked.interrupt_id, "never opened"))
        assert await store.open_interrupts() == []

    @promise
    async def test_interrupts_are_filtered_and_paged_oldest_first(self, store: Checkpointer) -> None:
        await fill_inbox(store)
        everything = await store.open_interrupts()
        assert [i.interrupt_id for i in everything] == [f"i{n}" for n in range(8)]
        assert [i.interrupt_id for i in await store.open_interrupts(owner="ann")] == ["i0", "i2", "i4", "i6"]
        assert [i.interrupt_id for i in await store.open_interrupts(owner="ann", role="admin")] == ["i0", "i4"]
        assert [i.interrupt_id for i in await store.open_interrupts(thread_id="thread-1")] == ["i4", "i5", "i6", "i7"]
        assert await store.open_interrupts(agent_key="nobody") == []
        pages: list[OpenInterrupt] = []
        cursor = None
        while page := await store.open_interrupts(limit=3, cursor=cursor):
            pages += page
            cursor = page[-1].cursor
        assert pages == everything

    @promise
    async def test_an_answer_between_two_pages_hides_nothing(self, store: Checkpointer) -> None:
        drivers = await fill_inbox(store)
        first = await store.open_interrupts(limit=3)
        await drivers[0].add(closed=(first[-1].interrupt_id,))
        second = await store.open_interrupts(limit=3, cursor=first[-1].cursor)
        assert [i.interrupt_id for i in second] == ["i3", "i4", "i5"]
        await refused(StoreError, store.open_interrupts(cursor="no cursor"))

    @promise
    async def test_due_interrupts_are_those_whose_time_has_come(self, store: Checkpointer) -> None:
        await fill_inbox(store)
        assert [i.interrupt_id for i in await store.due(NOW + 102)] == ["i1", "i2"]
        assert await store.due(NOW) == []

    @promise
    async def test_a_run_is_found_by_its_id(self, store: Checkpointer) -> None:
        driver = await drive(store)
        for run in ("run-1", "run-1", "run-2"):
            driver.commit(driver.record(), facts=facts(run_id=run))
        await store.flush()
        assert [await store.find_run(run) for run in ("run-1", "run-2", "run-3")] == ["thread", "thread", None]

    @promise
    async def test_threads_are_listed_by_last_change(self, store: Checkpointer) -> None:
        """M7, L4, L14."""
        for n, status in enumerate(("idle", "waiting", "idle", "failed", "idle")):
            driver = await drive(store, f"thread-{n}")
            new = facts(status=status, updated_at=NOW + n * 10, agent_key=f"agent-{n % 2}")
            await driver.commit(driver.record(), facts=new, release=True)
        driver = await drive(store, "thread-1")
        await driver.commit(driver.record(), facts=facts(status="idle", updated_at=NOW + 99, agent_key="agent-1"))

        async def names(**options: Any) -> list[str]:
            return [row.thread_id for row in await store.threads(**options)]

        assert await names() == ["thread-1", "thread-4", "thread-3", "thread-2", "thread-0"]
        assert await names(limit=2, cursor="thread-3") == ["thread-2", "thread-0"]
        assert await names(status="idle", limit=2) == ["thread-1", "thread-4"]
        assert await names(agent_key="agent-1", status="failed") == ["thread-3"]
        assert await names(status="stopped") == []
        assert await names(cursor="thread-0") == []
        await refused(ThreadNotFound, store.threads(cursor="nobody"))

    @promise
    async def test_documents_are_kept_under_their_hash(self, store: Checkpointer) -> None:
        assert await store.document("sha256:1") is None
        await store.put_document("sha256:1", b"\x00document")
        await store.put_document("sha256:1", b"\x00document")
        assert await store.document("sha256:1") == b"\x00document"

    @promise
    async def test_inputs_wait_in_order(self, store: Checkpointer) -> None:
        for name in ("thread", "other"):
            await drive(store, name)
        positions = [await store.enqueue("thread", b"%d" % n, now=NOW + n) for n in range(3)]
        await store.enqueue("other", b"other", now=NOW)
        assert positions == sorted(set(positions))
        assert await store.queued("thread") == (positions[0], b"0")
        assert [await store.dequeue("thread") for _ in range(4)] == [b"0", b"1", b"2", None]
        assert await store.enqueue("thread", b"again", now=NOW) > positions[-1]
        assert await store.dequeue("other") == b"other"
        await refused(ThreadNotFound, store.enqueue("nobody", b"x", now=NOW))
        assert await store.dequeue("nobody") is None

    @promise
    async def test_an_input_is_consumed_with_the_commit_that_records_it(self, store: Checkpointer) -> None:
        driver = await drive(store)
        first = await store.enqueue("thread", b"first", now=NOW)
        second = await store.enqueue("thread", b"second", now=NOW)
        await driver.commit(driver.record(), consumes=first)
        assert await store.queued("thread") == (second, b"second")
        await refused(StoreError, driver.commit(driver.record(b"not kept"), consumes=first))
        assert len(await store.list("thread")) == 1
        assert await store.queued("thread") == (second, b"second")

    @promise
    async def test_a_refused_commit_consumes_nothing(self, store: Checkpointer) -> None:
        driver = await drive(store)
        position = await store.enqueue("thread", b"input", now=NOW)
        driver.head = "not the head"
        await refused(Fenced, driver.commit(driver.record(), consumes=position))
        assert await store.queued("thread") == (position, b"input")


async def fill_inbox(store: Checkpointer) -> list[Driver]:
    """Two threads with four interrupts each, of which `i1` to `i3` are due at 101 to 103."""
    drivers = [await drive(store, f"thread-{n}") for n in range(2)]
    for n in range(8):
        interrupt = OpenInterrupt(
            interrupt_id=f"i{n}",
            thread_id=f"thread-{n // 4}",
            run_id="run",
            kind="ask",
            node="n",
            owner="ann" if n % 2 == 0 else "bob",
            role="admin" if n % 4 == 0 else None,
            opened_at=NOW + n // 2,
            due_at=NOW + 100 + n if n in {1, 2, 3} else None,
        )
        await drivers[n // 4].add(opened=(interrupt,))
    return drivers


class Exports(_Suite):
    """Export, import, and opening anew."""

    @promise
    async def test_an_exported_thread_comes_back_whole(self, store: Checkpointer) -> None:
        """C2, C3, C4, C5, C6, C7."""
        await rich_thread(store)
        before = await picture(store, "thread")
        lines = await lines_of(store, "thread")
        await store.delete_thread("thread")
        assert await store.import_thread(stream(lines)) == "thread"
        assert await picture(store, "thread") == before
        assert [{**line, "thread": None} for line in await lines_of(store, "thread")] == [
            {**line, "thread": None} for line in lines
        ]

    @promise
    async def test_a_copy_beside_the_original_is_independent(self, store: Checkpointer) -> None:
        await rich_thread(store)
        before = await picture(store, "thread")
        lines = await lines_of(store, "thread")
        await refused(ThreadBusy, store.import_thread(stream(lines)))
        assert await store.import_thread(stream(lines), thread_id="copy") == "copy"
        assert await picture(store, "copy") == before
        copy = await drive(store, "copy", now=NOW + LEASE)
        copy.counts = {(0, "messages"): 5}
        await copy.add(b"only here")
        await store.delete_thread("copy")
        assert await picture(store, "thread") == before

    @promise
    async def test_an_exported_fork_brings_its_past_along(self, store: Checkpointer) -> None:
        source = await drive(store)
        for n in range(4):
            await source.add(b"%d" % n)
        fork = await forked(store, source, 2)
        await fork.add(b"fork")
        before = await picture(store, "fork")
        lines = await lines_of(store, "fork")
        await store.delete_thread("fork")
        await store.delete_thread("thread")
        await store.import_thread(stream(lines))
        assert await picture(store, "fork") == before
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"fork"]

    @promise
    async def test_a_copy_belongs_to_nobody_and_its_lives_go_on(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add()
        await store.import_thread(stream(await lines_of(store, "thread")), thread_id="copy")
        row = await store.thread("copy")
        assert row is not None
        assert (row.owner, row.lease_until, row.fence) == (None, 0, driver.fence)
        assert (await drive(store, "copy")).fence == driver.fence + 1

    @promise
    async def test_a_damaged_export_is_refused_and_leaves_nothing(self, store: Checkpointer) -> None:
        await rich_thread(store)
        lines = await lines_of(store, "thread")
        await store.delete_thread("thread")
        broken: list[Sequence[Mapping[str, Any]]] = [
            [],
            lines[1:],
            lines[:-1],
            lines[:2] + lines[3:],
            [*lines, lines[-1]],
            [{**lines[0], "version": 99}, *lines[1:]],
            [lines[0], {"kind": "surprise"}, *lines[2:]],
            [lines[0], {**lines[1], "kind": "record"}, *lines[2:]],
        ]
        for lines_given in broken:
            await refused(StoreError, store.import_thread(stream(lines_given)))
        assert await store.threads() == []

    @promise
    async def test_an_export_sees_one_moment_while_commits_go_on(self, store: Checkpointer) -> None:
        """M8."""
        driver = await drive(store)
        for n in range(5):
            await driver.add(b"%d" % n)
        lines = []
        async for line in store.export_thread("thread"):
            lines.append(line)
            await driver.add(b"later")
        await store.import_thread(stream(lines), thread_id="copy")
        assert await messages(store, "copy", count=5) == [b"0", b"1", b"2", b"3", b"4"]
        assert len(await store.list("copy")) == 5

    @promise
    async def test_exporting_an_unknown_thread_is_an_error(self, store: Checkpointer) -> None:
        await refused(ThreadNotFound, lines_of(store, "nobody"))

    def test_a_store_that_is_opened_again_has_everything(self) -> None:
        if not self.durable:
            return

        async def kept(folder: Path) -> None:
            store = self.make(folder)
            await store.setup()
            await store.setup()
            await rich_thread(store)
            await store.put_document("sha256:other", b"other")
            before, threads = await picture(store, "thread"), await store.threads()
            await store.close()
            await store.close()
            again = self.make(folder)
            assert await again.threads() == threads  # the first use sets it up
            assert await picture(again, "thread") == before
            assert await again.document("sha256:other") == b"other"
            driver = await drive(again, now=NOW + LEASE + 1)
            driver.counts = {(0, "messages"): 5}
            await driver.add(b"goes on")
            await again.close()

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(kept(Path(folder)))

    def test_closing_makes_everything_queued_durable(self) -> None:
        if not self.durable:
            return

        async def kept(folder: Path) -> None:
            store = self.make(folder)
            driver = await drive(store)
            promises = [driver.commit(driver.record(b"%d" % n)) for n in range(300)]
            await store.close()
            await promises[-1]
            await refused(StoreError, store.take("thread", owner="x", now=NOW, lease_ms=LEASE))
            again = self.make(folder)
            await again.setup()
            assert await messages(again, "thread", count=300) == [b"%d" % n for n in range(300)]
            await again.close()

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(kept(Path(folder)))


async def rich_thread(store: Checkpointer) -> None:
    """A thread with a bit of everything: branches, snapshots, frames, a document, a queue, an open interrupt."""
    await store.put_document("sha256:doc", b"\x00document\xff")
    driver, _ = await rewound(store)
    interrupt = OpenInterrupt(
        interrupt_id=f"{driver.head}:ask",
        thread_id="thread",
        run_id="run-9",
        kind="ask",
        node="n",
        due_at=NOW,
        data=b"\xff",
    )
    full = driver.record(
        b"note", b"", frame=3, channel="notes", snapshot=b"snapshot\x00", opened=(interrupt,), checkpoint=False
    )
    await driver.commit(full, facts=facts(run_id="run-9", document="sha256:doc", title="t", status="waiting"))
    await driver.add()
    await driver.commit(facts=facts(run_id="run-9", document="sha256:doc", title="t", status="waiting"), release=True)
    await store.enqueue("thread", b"first\x00", now=NOW)
    await store.enqueue("thread", b"second", now=NOW + 1)


async def picture(store: Checkpointer, thread_id: str) -> dict[str, Any]:
    """Everything that can be read of a thread, without its id, its owner, and the numbers of its lineages."""
    stored = await store.load(thread_id)
    assert stored is not None
    row = stored.thread
    names = {number: n for n, (number, _) in enumerate(stored.chain)}
    tree = await store.list(thread_id, all_lineages=True)
    for line in reversed(tree):
        names.setdefault(line.lineage, len(names))
    queued = await store.queued(thread_id)
    interrupts = await store.open_interrupts(thread_id=thread_id)
    return {
        "facts": row.facts,
        "place": (row.head, names.get(row.lineage or 0), row.ordinal, row.fence, row.created_at),
        "chain": [(names[number], cut) for number, cut in stored.chain],
        "snapshot": stored.snapshot,
        "records": [(r.id, names[r.lineage], r.ordinal, r.checkpoint, r.meta, r.data) for r in stored.records],
        "tree": [(x.id, x.parent, names[x.lineage], x.ordinal, x.meta, x.size) for x in tree],
        "messages": await store.read_items(stored.chain, 0, "messages", 3),
        "queued": None if queued is None else queued[1],
        "interrupts": [(i.interrupt_id, i.run_id, i.kind, i.due_at, i.data) for i in interrupts],
        "document": None if row.facts.document is None else await store.document(row.facts.document),
    }


class CheckpointerConformance(Records, Commits, Leases, History, Inbox, Exports):
    """The whole suite: override `make`, and `durable` for a store that keeps nothing."""
