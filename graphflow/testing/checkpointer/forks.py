"""Promises about forks and deletion (E4, E8)."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable
from typing import Any

from msgspec.structs import replace

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Keep, Lineage, Log, LogItem, OpenInterrupt
from graphflow.errors import CheckpointNotFound, StoreError, ThreadExists, ThreadNotFound
from graphflow.testing.checkpointer.suite import (
    NOW,
    Suite,
    drive,
    facts,
    filled,
    forked,
    lines_of,
    messages,
    new_id,
    next_number,
    promise,
    refused,
    stream,
)
from graphflow.testing.existing import existing


class Forks(Suite):
    """Threads that share a past, and what deleting them leaves."""

    @promise
    async def test_a_fork_shares_the_past_and_goes_its_own_way(self, store: Checkpointer) -> None:
        """C1, C2, C3, C6, C7, T3."""
        source = await filled(store, 4)
        fork = await forked(store, source, 2)
        assert await messages(store, "fork", count=2) == [b"0", b"1"]
        assert [r.id for r in await store.list_checkpoints("fork")] == source.ids[1::-1]
        await fork.add(b"other words")
        await source.add(b"4")
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"other words"]
        assert await messages(store, "thread", count=5) == [b"0", b"1", b"2", b"3", b"4"]
        stored = existing(await store.load("fork"))
        assert stored.chain == ((source.lineage, 2), (fork.lineage, 1))
        assert await store.load("fork", source.ids[0]) is not None
        # What the source did after the cut is not the past of the fork, and the other way round.
        assert await store.load("fork", source.ids[3]) is None
        assert await store.load("thread", fork.ids[0]) is None
        assert (await store.list_checkpoints("fork"))[0].parent == source.ids[1]

    @promise
    async def test_large_bytes_live_as_long_as_a_thread_reaches_their_record(self, store: Checkpointer) -> None:
        """They are logs of one entry, under numbers beyond those of all frames, and nothing else says that they are there."""
        number, data = (1 << 51) + 5, bytes(range(256)) * 300
        source = await drive(store)
        for count in range(3):
            given = source.record(str(count).encode())
            brought = LogItem(number + count, "bytes", 0, data + str(count).encode())
            await source.commit(replace(given, items=(*given.items, brought)))
        fork = await forked(store, source, 2)
        await fork.add(b"own")

        async def found(thread_id: str) -> list[bool]:
            chain = existing(await store.load(thread_id)).chain
            out = []
            for count in range(3):
                try:
                    rows = await store.read_logs(chain, [Log(number + count, "bytes", 1)])
                except StoreError:
                    out.append(False)
                else:
                    assert rows == [[data + str(count).encode()]]
                    out.append(True)
            return out

        assert await found("thread") == [True, True, True]
        copy = await store.import_thread(stream(await lines_of(store, "thread")), thread_id="copy")
        assert await found(copy) == [True, True, True]
        await store.delete_thread("thread")
        assert await found("fork") == [True, True, False]
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"own"]
        assert await found(copy) == [True, True, True]
        await store.prune("fork", Keep(newest=1))
        assert await found("fork") == [True, True, False]
        await store.delete_thread("fork")
        await store.compact()
        assert await found(copy) == [True, True, True]

    @promise
    async def test_a_fresh_fork_is_a_thread_at_the_checkpoint(self, store: Checkpointer) -> None:
        source = await drive(store)
        for _ in range(3):
            await source.add()
        number = next_number()
        row = await store.fork(
            source.ids[1], "thread", "fork", number=number, facts=facts(status="idle", updated_at=NOW + 9)
        )
        assert (row.head, row.lineage, row.ordinal, row.fence, row.owner) == (source.ids[1], number, 0, 0, None)
        assert (row.facts.status, row.created_at) == ("idle", NOW + 9)
        assert await store.thread("fork") == row
        stored = existing(await store.load("fork"))
        assert stored.chain == ((source.lineage, 2), (number, 0))
        assert existing(stored.target).id == source.ids[1]

    @promise
    async def test_a_fork_needs_a_source_a_checkpoint_of_it_and_a_free_id(self, store: Checkpointer) -> None:
        """C8."""
        source = await drive(store)
        await source.add()

        def fork(checkpoint_id: str, source_id: str, thread_id: str) -> Awaitable[Any]:
            return store.fork(checkpoint_id, source_id, thread_id, number=next_number(), facts=facts())

        await refused(ThreadNotFound, fork(source.ids[0], "nobody", "fork"))
        await refused(CheckpointNotFound, fork(new_id(), "thread", "fork"))
        await refused(ThreadExists, fork(source.ids[0], "thread", "thread"))
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
        assert await store.list_checkpoints("thread", all_lineages=True) == []
        assert await store.find_run("run of thread") is None
        assert await store.queued("thread") is None
        assert [i.thread_id for i in await store.open_interrupts()] == ["other"]
        assert await messages(store, "other", count=1) == [b"x"]
        assert await store.find_run("run of other") == "other"
        assert await store.queued("other") is not None
        again = await drive(store)
        # Nobody drove it when it was deleted, so no fence has to outlive it.
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
        assert [r.id for r in await store.list_checkpoints("fork", all_lineages=True)] == [
            fork.ids[0],
            *source.ids[1::-1],
        ]
        stored = existing(await store.load("fork"))
        assert stored.snapshot == b"s"
        # The source went first: its rows up to the cut belong to the fork now, those behind it to nobody.
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
        # A store that frees a parent before its last child loses rows in some of these orders only.
        for order in itertools.permutations(("thread", "fork", "fork of fork")):
            source = await filled(store, 3)
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
        source = await filled(store, 4)
        await forked(store, source, 2)
        await store.delete_thread("fork")
        assert await messages(store, "thread", count=4) == [b"0", b"1", b"2", b"3"]
        await source.add(b"4")
