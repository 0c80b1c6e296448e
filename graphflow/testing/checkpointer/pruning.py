"""Promises about pruning and about deleting single checkpoints (spec 4.1, M9)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Keep, OpenInterrupt, Span
from graphflow.errors import CheckpointNotFound, GraphflowError, StoreError, ThreadNotFound
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Driver,
    Suite,
    drive,
    facts,
    forked,
    lines_of,
    messages,
    next_number,
    promise,
    refused,
    rewound,
    stream,
)
from graphflow.testing.existing import existing


class Pruning(Suite):
    """Prune and delete_checkpoint."""

    @promise
    async def test_a_prune_keeps_the_newest_and_what_they_are_made_of(self, store: Checkpointer) -> None:
        """N1, N4, M9."""
        driver = await long_thread(store, 20, snapshots=(5, 12, 17))
        before = await pictures(store, "thread", driver.ids)
        pruned = await store.prune("thread", Keep(newest=5))
        assert [line.id for line in await store.list_checkpoints("thread")] == driver.ids[:14:-1]
        assert (pruned.checkpoints, pruned.kept) == (15, 5)
        # The report counts rows, not checkpoints.
        assert pruned.records == 11  # 1 to 11: the 12th has the snapshot of the five
        assert pruned.size > 0
        after = await pictures(store, "thread", driver.ids)
        assert after == {**dict.fromkeys(driver.ids[:15]), **{key: before[key] for key in driver.ids[15:]}}
        assert [r.ordinal for r in await store.read_records("thread", lineage=driver.lineage, after=0, upto=20)] == list(
            range(12, 21)
        )  # fmt: skip

    @promise
    async def test_a_pruned_thread_goes_on(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 8, snapshots=(3, 6))
        await store.prune("thread", Keep(newest=1))
        await driver.add(b"8")  # the epoch that drives it does not notice
        assert await messages(store, "thread", count=9) == [b"%d" % n for n in range(9)]
        # A new owner reads the pruned thread from the store and remembers nothing of it.
        again = await drive(store, now=NOW + LEASE)
        again.counts = {(0, "messages"): 9}
        await again.add(b"9")
        fork = await forked(store, again, 3)
        await fork.add(b"elsewhere")
        assert len(await store.list_checkpoints("thread")) == 3

    @promise
    async def test_pruning_twice_is_pruning_once_and_a_dry_run_changes_nothing(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 10, snapshots=(4, 8))
        before = await pictures(store, "thread", driver.ids)
        would = await store.prune("thread", Keep(newest=2), dry_run=True)
        assert await pictures(store, "thread", driver.ids) == before
        assert await store.prune("thread", Keep(newest=2)) == would
        again = await store.prune("thread", Keep(newest=2))
        assert (again.checkpoints, again.records, again.size) == (0, 0, 0)

    @promise
    async def test_compacting_a_store_loses_nothing_and_its_threads_go_on(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 8, snapshots=(3, 6))
        await store.enqueue("thread", b"input", now=NOW)
        await store.prune("thread", Keep(newest=1))
        before = await pictures(store, "thread", driver.ids)
        await store.compact()
        assert await pictures(store, "thread", driver.ids) == before
        await driver.add(b"8")
        assert await messages(store, "thread", count=9) == [b"%d" % n for n in range(9)]
        assert await store.dequeue("thread") == b"input"

    @promise
    async def test_a_prune_by_time_reads_it_from_the_ids(self, store: Checkpointer) -> None:
        driver = await drive(store)
        # UUIDv7: the first 48 bits are the milliseconds since 1970.
        ids = [f"{1000 + n:012x}" for n in range(4)]
        ids = [f"{text[:8]}-{text[8:]}-7000-8000-{n:012x}" for n, text in enumerate(ids)]
        for id_ in ids:
            await driver.add(b"x", id=id_)
        await driver.add(b"no time", id="by hand")
        await store.prune("thread", Keep(since=1002))
        assert [line.id for line in await store.list_checkpoints("thread")] == ["by hand", ids[3], ids[2]]
        await store.prune("thread", Keep(since=5000, newest=2))
        assert [line.id for line in await store.list_checkpoints("thread")] == ["by hand", ids[3]]

    @promise
    async def test_a_prune_must_name_something_to_keep(self, store: Checkpointer) -> None:
        """N7, N8."""
        await long_thread(store, 3)
        for keep in (Keep(), Keep(newest=-1), Keep(since=-5)):
            error = await refused(GraphflowError, store.prune("thread", keep))
            assert error.code == "invalid_input"
        await refused(ThreadNotFound, store.prune("nobody", Keep(newest=1)))
        assert len(await store.list_checkpoints("thread")) == 3

    @promise
    async def test_a_prune_to_nothing_keeps_the_head(self, store: Checkpointer) -> None:
        """N5."""
        driver = await long_thread(store, 4)
        # A record behind the last checkpoint, as a crash leaves it: the head is not always a checkpoint.
        tail = driver.record(b"4", checkpoint=False)
        await driver.commit(tail)
        await store.prune("thread", Keep(newest=0))
        assert [line.id for line in await store.list_checkpoints("thread")] == [driver.ids[3]]
        assert await messages(store, "thread", count=5) == [b"%d" % n for n in range(5)]
        stored = existing(await store.load("thread"))
        assert existing(stored.target).id == tail.id

    @promise
    async def test_a_prune_leaves_other_threads_alone(self, store: Checkpointer) -> None:
        """N6."""
        await long_thread(store, 4)
        other = await long_thread(store, 4, thread_id="other")
        before = await pictures(store, "other", other.ids)
        await store.prune("thread", Keep(newest=1))
        assert await pictures(store, "other", other.ids) == before

    @promise
    async def test_fork_points_of_living_threads_stay_and_those_of_dead_ones_go(self, store: Checkpointer) -> None:
        """N2, N3."""
        source = await long_thread(store, 10, snapshots=(2, 9))
        fork = await forked(store, source, 4)
        await fork.add(b"fork")
        # It has no record of its own yet, so only the row of its lineage names the cut.
        fresh = await forked(store, source, 6, thread_id="fresh")
        await store.delete_thread("nobody")
        await store.prune("thread", Keep(newest=1))
        assert {line.id for line in await store.list_checkpoints("thread")} == {source.ids[n] for n in (3, 5, 9)}
        assert await messages(store, "fork", count=5) == [b"0", b"1", b"2", b"3", b"fork"]
        assert await messages(store, "fresh", count=6) == [b"%d" % n for n in range(6)]
        await store.delete_thread("fork")
        await store.delete_thread("fresh")
        del fresh
        await store.prune("thread", Keep(newest=1))
        assert [line.id for line in await store.list_checkpoints("thread")] == [source.ids[9]]
        assert await messages(store, "thread", count=10) == [b"%d" % n for n in range(10)]

    @promise
    async def test_pruning_a_fork_leaves_the_source_whole(self, store: Checkpointer) -> None:
        source = await long_thread(store, 6)
        before = await pictures(store, "thread", source.ids)
        fork = await forked(store, source, 4)
        for n in range(4):
            await fork.add(b"%d" % n)
        await store.prune("fork", Keep(newest=1))
        assert await pictures(store, "thread", source.ids) == before
        assert [line.id for line in await store.list_checkpoints("fork")] == [fork.ids[3], *source.ids[3::-1]]
        await store.delete_thread("thread")  # what nobody owns any more, the fork's prune may take
        await store.prune("fork", Keep(newest=1))
        assert [line.id for line in await store.list_checkpoints("fork")] == [fork.ids[3]]
        assert await messages(store, "fork", count=8) == [b"0", b"1", b"2", b"3", b"0", b"1", b"2", b"3"]

    @promise
    async def test_branches_that_nothing_needs_go_whole(self, store: Checkpointer) -> None:
        driver, old = await rewound(store)
        await store.prune("thread", Keep(newest=2))
        stored = existing(await store.load("thread"))
        assert stored.chain == ((old, 3), (driver.lineage, 2))
        assert await messages(store, "thread", count=5) == [b"0", b"1", b"2", b"new 0", b"new 1"]
        assert [r.ordinal for r in await store.read_records("thread", lineage=old, after=0, upto=9)] == [1, 2, 3]
        middle = driver.lineage
        driver.begin(old, 3, counts={(0, "messages"): 3})
        await driver.add(b"newer")
        await store.prune("thread", Keep(newest=1))
        assert await store.read_records("thread", lineage=middle, after=0, upto=9) == []
        assert await messages(store, "thread", count=4) == [b"0", b"1", b"2", b"newer"]

    @promise
    async def test_checkpoints_of_open_interrupts_stay(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 3)
        record = driver.record(b"3")
        question = OpenInterrupt(
            interrupt_id=f"{record.id}.1", thread_id="thread", run_id="r", kind="ask", node="n", data=b"what?"
        )
        await driver.commit(msgspec.structs.replace(record, opened=(question,)))
        for n in range(3):
            await driver.add(b"%d" % n)
        await store.prune("thread", Keep(newest=1))
        assert [line.id for line in await store.list_checkpoints("thread")] == [driver.ids[6], record.id]
        assert [i.interrupt_id for i in await store.open_interrupts()] == [question.interrupt_id]
        await driver.add(closed=(question.interrupt_id,))
        await store.prune("thread", Keep(newest=1))
        assert len(await store.list_checkpoints("thread")) == 1

    @promise
    async def test_effects_are_found_without_what_lies_between_and_survive_a_prune(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 4, snapshots=(2,))
        intent = driver.record(data=b"intent", checkpoint=False, effect=True)
        await driver.commit(intent)
        for n in range(6):
            await driver.add(b"x", snapshot=b"s" if n == 3 else None, effect=n == 5)
        whole = [Span(driver.lineage, 0, 99)]
        found = await store.read_effects("thread", whole)
        assert [(r.id, r.data, r.effect) for r in found] == [
            (intent.id, b"intent", True),
            (driver.ids[-1], b"data", True),
        ]
        assert await store.read_effects("thread", [Span(driver.lineage, 5, 9), Span(12345, 0, 99)]) == []
        assert await store.read_effects("nobody", whole) == []
        fork = await forked(store, driver, 2)  # a rewind to it passes over the intent
        await store.prune("thread", Keep(newest=2))
        assert [r.id for r in await store.read_effects("thread", whole)] == [intent.id, driver.ids[-1]]
        assert await store.read_effects("fork", [Span(driver.lineage, 0, 99), Span(fork.lineage, 0, 99)]) == []
        lines = await lines_of(store, "thread")
        await store.import_thread(stream(lines), thread_id="copy")
        copy = existing(await store.thread("copy"))
        assert len(await store.read_effects("copy", [Span(existing(copy.lineage), 0, 99)])) == 2
        await store.delete_thread("fork")
        await store.prune("thread", Keep(newest=1))  # no checkpoint is left before the intent
        assert [r.id for r in await store.read_effects("thread", whole)] == [driver.ids[-1]]

    @promise
    async def test_a_record_that_is_asked_for_by_name_survives(self, store: Checkpointer) -> None:
        """What a rewind took along to use again lies in a branch that nothing else needs."""
        driver = await long_thread(store, 2)
        old = driver.lineage
        result = await driver.add(b"said", data=b"result", checkpoint=False, effect=True)
        await driver.add()
        driver.begin(old, 1, counts={(0, "messages"): 1})
        await driver.add(b"new")
        # A record that exists, one that does not, and a lineage that nobody has.
        keep = Keep(newest=1, records=((old, 3), (old, 77), (12345, 1)))
        assert (await store.prune("thread", keep)).records == 2
        assert [r.id for r in await store.read_records("thread", lineage=old, after=2, upto=3)] == [result.id]
        kept = [line["row"] for line in await lines_of(store, "thread") if line["kind"] == "record"]
        assert not any(row["items"] for row in kept if row["id"] == result.id)  # no state has its entries any more
        error = await refused(GraphflowError, store.prune("thread", Keep(records=((old, 3),))))
        assert error.code == "invalid_input"
        driver.begin(old, 4)  # the end of the old branch is gone: nobody can go on from there
        await refused(StoreError, driver.commit(driver.record()))
        await store.prune("thread", Keep(newest=1))
        assert await store.read_records("thread", lineage=old, after=1, upto=9) == []

    @promise
    async def test_a_pruned_checkpoint_can_not_become_somebodys_past(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 9, snapshots=(8,))
        await store.prune("thread", Keep(newest=1))
        await refused(
            CheckpointNotFound, store.fork(driver.ids[4], "thread", "fork", number=next_number(), facts=facts())
        )
        # The driver still knows the checkpoint; only the store can tell that it went.
        driver.begin(driver.lineage, 5, counts={(0, "messages"): 5})  # loaded before the prune
        error = await refused(StoreError, driver.commit(driver.record(b"lost")))
        assert "pruned" in error.message
        assert await messages(store, "thread", count=9) == [b"%d" % n for n in range(9)]

    @promise
    async def test_a_pruned_thread_is_exported_whole(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 12, snapshots=(6, 10))
        await forked(store, driver, 8)
        await store.prune("thread", Keep(newest=1))
        before = await pictures(store, "thread", driver.ids)
        lines = await lines_of(store, "thread")
        await store.delete_thread("thread")
        await store.delete_thread("fork")
        await store.import_thread(stream(lines))
        after = await pictures(store, "thread", driver.ids)
        assert after == before
        assert [{**line, "thread": None} for line in await lines_of(store, "thread")] == [
            {**line, "thread": None} for line in lines
        ]
        again = await drive(store, now=NOW + LEASE)
        again.counts = {(0, "messages"): 12}
        await again.add(b"12")
        await forked(store, again, 1)
        await store.delete_thread("thread")
        assert await messages(store, "fork", count=8) == [b"%d" % n for n in range(8)]

    @promise
    async def test_deleting_a_checkpoint_leaves_those_after_it_whole(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 6, snapshots=(3,))
        before = await pictures(store, "thread", driver.ids)
        # Neighbours, and around the snapshot of the third.
        for position in (1, 2, 4):
            await store.delete_checkpoint("thread", driver.ids[position])
            before[driver.ids[position]] = None
            assert await pictures(store, "thread", driver.ids) == before
        tree = await store.list_checkpoints("thread")
        assert [(line.id, line.parent) for line in tree] == [
            (driver.ids[5], driver.ids[3]),
            (driver.ids[3], driver.ids[0]),
            (driver.ids[0], None),
        ]
        await refused(CheckpointNotFound, store.delete_checkpoint("thread", driver.ids[1]))
        await refused(ThreadNotFound, store.delete_checkpoint("nobody", driver.ids[0]))

    @promise
    async def test_a_checkpoint_that_somebody_stands_on_is_not_deleted(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 4)
        fork = await forked(store, driver, 2)
        for checkpoint in (driver.ids[3], driver.ids[1]):
            error = await refused(GraphflowError, store.delete_checkpoint("thread", checkpoint))
            assert error.code == "invalid_input"
        await fork.add(b"on its own")
        error = await refused(GraphflowError, store.delete_checkpoint("fork", driver.ids[0]))
        assert "forked from" in error.message
        await store.delete_checkpoint("thread", driver.ids[1])  # the fork is re-based
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"on its own"]
        assert [line.id for line in await store.list_checkpoints("fork")] == [fork.ids[0], driver.ids[0]]

    @promise
    async def test_deleting_the_last_checkpoint_removes_the_thread(self, store: Checkpointer) -> None:
        driver = await long_thread(store, 3)
        for id_ in driver.ids[:2]:
            await store.delete_checkpoint("thread", id_)
        await store.delete_checkpoint("thread", driver.ids[2])
        assert await store.load("thread") is None
        assert await store.threads() == []

    @promise
    async def test_whatever_is_pruned_what_is_left_reads_as_before(self, store: Checkpointer) -> None:
        """Random trees of threads that go back, fork, are pruned, lose checkpoints and are deleted."""
        # Seeded, so that a failure can be had again; few, since every store runs them.
        for seed in range(3):
            await _wander(store, random.Random(seed), f"{seed}.")  # noqa: S311 – not secret
            for row in await store.threads(limit=100):
                await store.delete_thread(row.thread_id)


async def long_thread(
    store: Checkpointer, count: int, *, snapshots: Sequence[int] = (), thread_id: str = "thread"
) -> Driver:
    """A thread of checkpoints 1 to `count`, each with a message `0` to `count - 1`."""
    driver = await drive(store, thread_id)
    for n in range(count):
        await driver.add(b"%d" % n, data=b"patch %d" % n, snapshot=b"up to %d" % n if n + 1 in snapshots else None)
    return driver


async def pictures(store: Checkpointer, thread_id: str, ids: Sequence[str]) -> dict[str, Any]:
    """Checkpoint → all that its state is made of; None when it can't be loaded."""
    out: dict[str, Any] = {}
    for id_ in ids:
        stored = await store.load(thread_id, id_)
        if stored is None or stored.target is None:
            out[id_] = None
            continue
        count = sum(cut for _, cut in stored.chain)
        logs = await store.read_items(stored.chain, 0, "messages", count)
        out[id_] = (stored.snapshot, [r.data for r in stored.records], logs, stored.target.id)
    return out


async def _wander(store: Checkpointer, draw: random.Random, prefix: str) -> None:
    drivers = {f"{prefix}0": await drive(store, f"{prefix}0")}
    places: dict[str, tuple[int, int, int]] = {}
    """Checkpoint → lineage, ordinal, messages."""
    for step in range(70):
        name = draw.choice(sorted(drivers))
        driver = drivers[name]
        shown = [line.id for line in await store.list_checkpoints(name, all_lineages=True)]
        what = draw.random()
        if what < 0.6 or not shown:
            snapshot = b"%d" % step if draw.random() < 0.2 else None
            record = await driver.add(b"%d" % step, data=b"patch %d" % step, snapshot=snapshot)
            places[record.id] = (driver.lineage, driver.ordinal, driver.counts[0, "messages"])
        elif what < 0.75:
            lineage, ordinal, count = places[draw.choice(shown)]
            driver.begin(lineage, ordinal, counts={(0, "messages"): count})
            record = await driver.add(b"%d" % step, data=b"patch %d" % step)
            places[record.id] = (driver.lineage, driver.ordinal, driver.counts[0, "messages"])
        elif what < 0.83 and len(drivers) < 5:
            checkpoint, other = draw.choice(shown), f"{prefix}{step}"
            await store.fork(checkpoint, name, other, number=next_number(), facts=facts())
            drivers[other] = await drive(store, other)
            drivers[other].counts = {(0, "messages"): places[checkpoint][2]}
        else:
            await _take_away(store, draw, drivers, name, shown, places)
    for name in drivers:
        assert await store.load(name) is not None


async def _take_away(
    store: Checkpointer,
    draw: random.Random,
    drivers: dict[str, Driver],
    name: str,
    shown: Sequence[str],
    places: dict[str, tuple[int, int, int]],
) -> None:
    """Prunes or deletes, and compares everything that is left, of every thread, with what it was."""
    before = {other: await _states(store, other, places) for other in drivers}
    what = draw.random()
    if what < 0.5:
        keep = draw.randrange(6)
        await store.prune(name, Keep(newest=keep))
        left = [line.id for line in await store.list_checkpoints(name, all_lineages=True)]
        assert left[:keep] == shown[:keep]
    elif what < 0.9 or len(drivers) == 1:
        try:
            await store.delete_checkpoint(name, draw.choice(shown))
        except GraphflowError as error:
            # Refusals are allowed here (somebody stands on it): what counts is that nothing else has changed.
            if error.code != "invalid_input":
                raise
        if await store.thread(name) is None:
            drivers[name] = await drive(store, name)
            return
    else:
        await store.delete_thread(name)
        del drivers[name]
    for other in drivers:
        after = await _states(store, other, places)
        assert after.items() <= before[other].items()
        row = existing(await store.thread(other))
        assert row.head == await _head(store, other)


async def _states(
    store: Checkpointer, name: str, places: dict[str, tuple[int, int, int]]
) -> dict[str, tuple[bytes | None, tuple[bytes, ...], tuple[bytes, ...]]]:
    out = {}
    for line in await store.list_checkpoints(name, all_lineages=True):
        stored = existing(await store.load(name, line.id))
        logs = await store.read_items(stored.chain, 0, "messages", places[line.id][2])
        out[line.id] = (stored.snapshot, tuple(r.data for r in stored.records), tuple(logs))
    return out


async def _head(store: Checkpointer, name: str) -> str | None:
    stored = await store.load(name)
    return None if stored is None or stored.target is None else stored.target.id
