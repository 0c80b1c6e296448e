"""Promises about what is read back."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Keep, Log, LogItem, OpenInterrupt, Record, Spent
from graphflow.errors import GraphflowError, StoreError
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Driver,
    Suite,
    drive,
    facts,
    lines_of,
    messages,
    new_id,
    next_number,
    promise,
    refused,
    stream,
)
from graphflow.testing.existing import existing


class Records(Suite):
    """What was committed is what is read."""

    @promise
    async def test_a_record_comes_back_as_it_was_committed(self, store: Checkpointer) -> None:
        """P1, P2, P3, P7, G6, G7."""
        driver = await drive(store)
        record = await driver.add(b"hello", meta=b"\x00meta\xff", data=bytes(range(256)))
        stored = existing(await store.load("thread"))
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
        row = existing(await store.thread("thread"))
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
            stored = existing(await store.load("thread", checkpoint_id))
            assert [record.id for record in stored.records] == driver.ids[: n + 1]
            assert existing(stored.target).id == checkpoint_id
            assert await messages(store, "thread", checkpoint_id, count=n + 1) == [
                b"message %d" % i for i in range(n + 1)
            ]

    @promise
    async def test_the_head_is_what_is_loaded_by_default(self, store: Checkpointer) -> None:
        """G3."""
        driver = await drive(store)
        await driver.add()
        last = await driver.add(checkpoint=False)
        stored = existing(await store.load("thread"))
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
        assert [r.id for r in await store.list_checkpoints("one")] == one.ids
        assert await store.load("one", other.ids[0]) is None

    @promise
    async def test_channels_and_frames_do_not_mix(self, store: Checkpointer) -> None:
        """P9, P10, P11, W3, W9, G10, L3."""
        driver = await drive(store)
        for frame, channel in ((0, "messages"), (7, "messages"), (0, "notes"), (2**31, "messages")):
            await driver.add(f"{frame}:{channel}".encode(), frame=frame, channel=channel)
        stored = existing(await store.load("thread"))
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
        stored = existing(await store.load("thread"))
        assert (stored.chain, stored.snapshot, stored.records, stored.target) == ((), None, (), None)

    @promise
    async def test_records_without_a_checkpoint_are_loaded_but_not_history(self, store: Checkpointer) -> None:
        """W1, W2, W4, W5, W8, L16."""
        driver = await drive(store)
        first = await driver.add()
        operation = await driver.add(checkpoint=False, data=b"an operation's result")
        stored = existing(await store.load("thread"))
        assert [(r.id, r.data) for r in stored.records] == [
            (first.id, b"data"),
            (operation.id, b"an operation's result"),
        ]
        assert [r.id for r in await store.list_checkpoints("thread")] == [first.id]
        assert await store.load("thread", operation.id) is None

    @promise
    async def test_empty_binary_and_large_values_survive(self, store: Checkpointer) -> None:
        """M1."""
        driver = await drive(store)
        values = [b"", b"\x00" * 3, b"x" * 5_000_000, "天".encode() * 1000]
        await driver.add(*values, meta=b"", data=b"", snapshot=b"")
        assert await messages(store, "thread", count=4) == values
        stored = existing(await store.load("thread"))
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
            row = existing(await store.thread(name))
            assert (row.thread_id, row.head, row.facts.run_id) == (name, f"c:{name}", f"r:{name}")
            assert await store.load(name, f"c:{name}") is not None
            assert await store.find_run(f"r:{name}") == name

    @promise
    async def test_an_id_or_name_that_not_every_store_can_keep_is_refused_alike(self, store: Checkpointer) -> None:
        """A thread may move between stores, so that what one of them can't keep none takes; asking for it is refused too."""
        driver = await drive(store)
        await driver.add(b"0")
        lines = await lines_of(store, "thread")
        for bad in ("nul \x00", "half \ud83d"):
            for refusal in _asked(store, driver, bad, lines):
                error = await refused(GraphflowError, refusal)
                assert error.code == "invalid_input"
                assert repr(bad)[1:-1] in error.message
        assert [row.thread_id for row in await store.threads()] == ["thread"]
        await driver.add(b"1")
        assert await messages(store, "thread", count=2) == [b"0", b"1"]

    @promise
    async def test_a_commit_with_such_a_name_in_it_is_refused_and_no_other(self, store: Checkpointer) -> None:
        good = await drive(store, "good")
        for number, fields in enumerate(_bad_records()):
            driver = await drive(store, f"thread-{number}")
            bad, fine = driver.record(**fields), good.record()
            error = await refused(StoreError, _committed(driver, bad))
            assert error.code == "invalid_input"
            await good.commit(fine)
            stored = await store.load(f"thread-{number}")
            assert stored is not None and stored.target is None
        for change in ({"run_id": "\x00"}, {"agent_key": "\ud83d"}, {"document": "\x00"}):
            driver = await drive(store, f"facts-{change}")
            error = await refused(StoreError, driver.commit(driver.record(), facts=facts(**change)))
            assert error.code == "invalid_input"
        stranger = Driver(store, "nul \x00", 1, None)
        error = await refused(StoreError, stranger.commit())
        assert error.code == "invalid_input"
        await good.add()

    @promise
    async def test_a_title_is_cleaned_and_not_refused(self, store: Checkpointer) -> None:
        """It is cut from what somebody wrote, and may be cut in the middle of a character."""
        driver = await drive(store)
        await driver.commit(driver.record(), facts=facts(title="half \ud83d, nul \x00!"))
        row = existing(await store.thread("thread"))
        assert row.facts.title == "half ?, nul !"
        fork = await store.fork(driver.ids[0], "thread", "fork", number=next_number(), facts=facts(title="\ud83d"))
        assert fork.facts.title == "?"

    @promise
    async def test_a_snapshot_spares_the_records_before_it(self, store: Checkpointer) -> None:
        """H2, H6: the newest snapshot at or before the target, and what came after it."""
        driver = await drive(store)
        for n in range(1, 7):
            await driver.add(snapshot=b"snapshot %d" % n if n in {2, 5} else None)
        for n, (snapshot, after) in enumerate([(None, 0), (b"snapshot 2", 2), (b"snapshot 2", 2), (b"snapshot 2", 2), (b"snapshot 5", 5), (b"snapshot 5", 5)], 1):  # fmt: skip
            stored = existing(await store.load("thread", driver.ids[n - 1]))
            assert stored.snapshot == snapshot
            assert [record.ordinal for record in stored.records] == list(range(after + 1, n + 1))
            assert existing(stored.target).ordinal == n

    @promise
    async def test_entries_may_be_read_from_a_compaction_on(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"a", b"b", b"c", b"d")
        stored = existing(await store.load("thread"))
        assert await store.read_items(stored.chain, 0, "messages", 4, start=2) == [b"c", b"d"]
        assert await store.read_items(stored.chain, 0, "messages", 4, start=4) == []

    @promise
    async def test_missing_entries_are_an_error_and_no_shorter_list(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"a")
        stored = existing(await store.load("thread"))
        error = await refused(StoreError, store.read_items(stored.chain, 0, "messages", 2))
        assert error.code == "store_failed"

    @promise
    async def test_bytes_of_a_step_are_bounded_by_what_it_adds(self, store: Checkpointer) -> None:
        """M11: the thousandth message costs what the tenth did."""
        driver = await drive(store)
        for _ in range(200):
            driver.commit(driver.record(b"m" * 1000))
        await store.flush()
        sizes = {line.size for line in await store.list_checkpoints("thread")}
        if self.encrypted:
            assert len(sizes) == 1
            return
        assert sizes == {1000 + len(b"meta") + len(b"data")}


def _asked(
    store: Checkpointer, driver: Driver, bad: str, lines: Sequence[Mapping[str, Any]]
) -> Iterator[Awaitable[object]]:
    """A call of each method with this text in the place of each id and name that it takes."""
    head = driver.ids[0]
    yield store.take(bad, owner="owner", now=NOW, lease_ms=LEASE)
    yield store.take(bad, owner="owner", now=NOW, lease_ms=LEASE, create=False)
    yield store.take("other", owner=bad, now=NOW, lease_ms=LEASE)
    yield store.assign(bad, "ann", now=NOW)
    yield store.assign("other", bad, now=NOW)
    yield store.describe(bad, "about", instead_of=None, now=NOW)
    yield store.renew(bad, lease_until=NOW)
    yield store.release(bad, 1)
    yield store.thread(bad)
    yield store.load(bad)
    yield store.load("thread", bad)
    yield store.list_checkpoints(bad)
    yield store.list_checkpoints("thread", before=bad)
    yield store.read_records(bad, lineage=driver.lineage, after=0, upto=1)
    yield store.read_effects(bad, [])
    yield store.read_items([(driver.lineage, 1)], 0, bad, 1)
    yield store.fork(bad, "thread", "fork", number=next_number(), facts=facts())
    yield store.fork(head, bad, "fork", number=next_number(), facts=facts())
    yield store.fork(head, "thread", bad, number=next_number(), facts=facts())
    yield store.fork(head, "thread", "fork", number=next_number(), facts=facts(agent_key=bad))
    yield store.delete_thread(bad)
    yield store.delete_checkpoint("thread", bad)
    yield store.prune(bad, Keep(newest=1))
    yield store.spent(agent_key=bad)
    yield store.spent(thread_id=bad)
    for name in ("cursor", "status", "agent_key", "user"):
        yield store.threads(**{name: bad})  # type: ignore[arg-type] # all of them are texts
    yield store.open_interrupts(thread_id=bad)
    yield store.open_interrupts(owner=bad)
    yield store.open_interrupts(role=bad)
    yield store.open_interrupts(agent_key=bad)
    yield store.open_interrupts(user=bad)
    yield store.open_interrupts(cursor=f"1:{bad}")
    yield store.find_run(bad)
    yield store.put_document(bad, b"")
    yield store.document(bad)
    yield store.put_note(bad, b"")
    yield store.swap_note(bad, b"", instead_of=None)
    yield store.note(bad)
    yield store.enqueue(bad, b"", now=NOW)
    yield store.enqueue("thread", b"", now=NOW, kind=bad)
    yield store.enqueue("thread", b"", now=NOW, run_id=bad)
    yield store.queue(bad)
    yield store.runs(thread_id=bad)
    yield store.runs(cursor=bad)
    yield store.unparked(bad)
    yield store.queue(kind=bad)
    yield store.queue(owner=bad)
    yield store.withdraw(bad, 1)
    yield store.queued(bad)
    yield store.dequeue(bad)
    yield lines_of(store, bad)
    yield store.import_thread(stream(lines), thread_id=bad)


def _bad_records() -> Iterator[dict[str, Any]]:
    """Fields of records that have such a text each in another place."""
    for bad in ("nul \x00", "half \ud83d"):
        fine = OpenInterrupt(interrupt_id="i", thread_id="", run_id="r", kind="ask", node="n")
        yield {"id": bad}
        yield {"items": (LogItem(0, bad, 0, b""),)}
        yield {"closed": (bad,)}
        yield {"spent": Spent(day=1, agent_key=bad)}
        yield {"spent": Spent(day=1, model=bad)}
        for name in ("interrupt_id", "run_id", "kind", "node", "owner", "role", "agent_key"):
            yield {"opened": (msgspec.structs.replace(fine, **{name: bad}),)}


async def _committed(driver: Driver, record: Record) -> None:
    opened = tuple(msgspec.structs.replace(row, thread_id=driver.thread_id) for row in record.opened)
    await driver.commit(msgspec.structs.replace(record, opened=opened))
