"""Promises about history and rewinds (E4, E8)."""

from __future__ import annotations

from typing import Any

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Lineage
from graphflow.errors import CheckpointNotFound, StoreError
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Suite,
    drive,
    messages,
    new_id,
    next_number,
    promise,
    refused,
    rewound,
)
from graphflow.testing.existing import existing


class History(Suite):
    """Listing, and lineages within one thread."""

    @promise
    async def test_history_is_newest_first_with_parents_and_metadata(self, store: Checkpointer) -> None:
        """P14, G8, L1, L5."""
        driver = await drive(store)
        for n in range(4):
            # One without a checkpoint in between: parents pass over it.
            await driver.add(b"12345", meta=b"step %d" % n, checkpoint=n != 2)
        ids = [driver.ids[n] for n in (0, 1, 3)]
        lines = await store.list_checkpoints("thread")
        assert [line.id for line in lines] == ids[::-1]
        assert [line.parent for line in lines] == [ids[1], ids[0], None]
        assert [line.meta for line in lines] == [b"step 3", b"step 1", b"step 0"]
        assert [line.ordinal for line in lines] == [4, 2, 1]
        assert self.encrypted or {line.size for line in lines} == {5 + 6 + 4}

    @promise
    async def test_history_comes_in_pages(self, store: Checkpointer) -> None:
        """L6, L7, L8."""
        driver = await drive(store)
        for n in range(7):
            await driver.add(checkpoint=n != 4)
        whole = await store.list_checkpoints("thread")
        pages: list[Any] = []
        before = None
        while page := await store.list_checkpoints("thread", before=before, limit=2):
            pages += page
            before = page[-1].id
        assert pages == whole
        assert await store.list_checkpoints("thread", limit=0) == []
        assert await store.list_checkpoints("thread", before=driver.ids[0]) == []

    @promise
    async def test_history_of_an_unknown_thread_is_empty_and_an_unknown_cursor_an_error(
        self, store: Checkpointer
    ) -> None:
        """L15."""
        assert await store.list_checkpoints("nobody") == []
        assert await store.list_checkpoints("nobody", all_lineages=True) == []
        driver = await drive(store)
        assert await store.list_checkpoints("thread") == []
        await driver.add()
        await refused(CheckpointNotFound, store.list_checkpoints("thread", before=new_id()))

    @promise
    async def test_order_is_that_of_commits_also_when_clocks_go_back(self, store: Checkpointer) -> None:
        """M6."""
        driver = await drive(store)
        # Ids that do not grow with the ordinals, as a clock makes them that was set back: a search by halves alone misses some.
        ids = [new_id() for _ in range(8)]
        skewed = [ids[n] for n in (4, 5, 0, 1, 6, 2, 7, 3)]
        for checkpoint_id in skewed:
            await driver.add(id=checkpoint_id)
        assert [line.id for line in await store.list_checkpoints("thread")] == skewed[::-1]
        for n, checkpoint_id in enumerate(skewed, 1):
            stored = existing(await store.load("thread", checkpoint_id))
            assert stored.chain[-1][1] == n
            assert len(await store.list_checkpoints("thread", before=checkpoint_id)) == n - 1

    @promise
    async def test_a_rewind_begins_a_lineage_and_keeps_the_old_branch(self, store: Checkpointer) -> None:
        """T3, E4, E8."""
        driver, old = await rewound(store)
        stored = existing(await store.load("thread"))
        assert stored.chain == ((old, 3), (driver.lineage, 2))
        assert [record.id for record in stored.records] == [*driver.ids[:3], *driver.ids[5:]]
        assert await messages(store, "thread", count=5) == [b"0", b"1", b"2", b"new 0", b"new 1"]
        assert await messages(store, "thread", driver.ids[4], count=5) == [b"0", b"1", b"2", b"3", b"4"]
        assert await messages(store, "thread", driver.ids[5], count=4) == [b"0", b"1", b"2", b"new 0"]

    @promise
    async def test_the_tree_shows_all_branches_and_the_history_only_the_heads(self, store: Checkpointer) -> None:
        driver, _ = await rewound(store)
        ids = driver.ids
        assert [r.id for r in await store.list_checkpoints("thread")] == [ids[6], ids[5], ids[2], ids[1], ids[0]]
        tree = await store.list_checkpoints("thread", all_lineages=True)
        assert [r.id for r in tree] == [ids[n] for n in (6, 5, 4, 3, 2, 1, 0)]
        assert {r.id: r.parent for r in tree} == {
            ids[0]: None, ids[1]: ids[0], ids[2]: ids[1], ids[3]: ids[2], ids[4]: ids[3], ids[5]: ids[2], ids[6]: ids[5],
        }  # fmt: skip
        assert await store.list_checkpoints("thread", all_lineages=True, before=ids[4], limit=2) == tree[3:5]
        assert [r.id for r in await store.list_checkpoints("thread", before=ids[5], limit=2)] == [ids[2], ids[1]]
        await refused(CheckpointNotFound, store.list_checkpoints("thread", before=ids[4]))

    @promise
    async def test_a_snapshot_before_the_cut_serves_the_new_branch_and_one_behind_it_does_not(
        self, store: Checkpointer
    ) -> None:
        driver = await drive(store)
        first = driver.lineage
        for n in range(1, 6):
            # One before and one behind the cut at 3, which a search for the newest would take.
            await driver.add(snapshot=b"snapshot %d" % n if n in {2, 4} else None)
        driver.begin(first, 3)
        await driver.add()
        stored = existing(await store.load("thread"))
        assert stored.snapshot == b"snapshot 2"
        assert [record.id for record in stored.records] == [driver.ids[2], driver.ids[5]]

    @promise
    async def test_many_rewinds_chain_up(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add(b"0")
        chain = [(driver.lineage, 1)]
        # Deep, because stores walk a chain by recursion or in pages.
        for n in range(1, 70):
            driver.begin(driver.lineage, 1)
            await driver.add(b"%d" % n)
            chain.append((driver.lineage, 1))
        stored = existing(await store.load("thread"))
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
        assert await ordinals(next_number(), 0, 99) == []
        assert await store.read_records("nobody", lineage=old, after=0, upto=99) == []

    @promise
    async def test_a_lineage_needs_a_known_parent_and_a_number_of_its_own(self, store: Checkpointer) -> None:
        driver, old = await rewound(store)
        # Its own old number: the driver would write into the branch that it has left.
        driver._begins = Lineage(number=old, thread_id="thread")
        driver.ordinal, driver.lineage = 0, old
        await refused(StoreError, driver.commit(driver.record()))
        again = await drive(store, now=NOW + LEASE + 1)
        again.begin(parent=next_number(), cut=1)
        await refused(StoreError, again.commit(again.record()))
        row = existing(await store.thread("thread"))
        assert row.head == driver.ids[6]
