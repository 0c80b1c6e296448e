"""Promises about notes of a store and about replacing blobs in place, which encryption is built on (spec 4.3)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import ENCRYPTION_NOTE, Keep, OpenInterrupt, Place
from graphflow.errors import StoreError
from graphflow.testing.checkpointer.suite import LEASE, NOW, Suite, drive, facts, forked, messages, promise, refused
from graphflow.testing.existing import existing


class Rewriting(Suite):
    """put_note, swap_note, note, rewrite."""

    @promise
    async def test_a_note_is_kept_and_replaced(self, store: Checkpointer) -> None:
        assert await store.note("colour") is None
        await store.put_note("colour", b"red\x00")
        await store.put_note("size", b"")
        await store.put_note("colour", b"green")
        assert (await store.note("colour"), await store.note("size")) == (b"green", b"")
        # A store may keep notes and documents in one table; their names must not meet.
        assert await store.document("colour") is None

    @promise
    async def test_a_note_is_swapped_only_for_the_one_that_the_caller_knows(self, store: Checkpointer) -> None:
        assert not await store.swap_note("colour", b"red", instead_of=b"green")
        assert await store.swap_note("colour", b"red\x00", instead_of=None)
        assert not await store.swap_note("colour", b"blue", instead_of=None)
        assert await store.swap_note("colour", b"", instead_of=b"red\x00")
        assert not await store.swap_note("colour", b"blue", instead_of=b"red\x00")
        assert await store.note("colour") == b""

    @promise
    async def test_every_blob_passes_with_its_place_and_is_replaced(self, store: Checkpointer) -> None:
        driver = await drive(store)
        interrupt = OpenInterrupt(
            interrupt_id="a b.1", thread_id="thread", run_id="r", kind="ask", node="n", data=b"question"
        )
        first = driver.record(b"zero", b"one", snapshot=b"snapshot", opened=(interrupt,), data=b"patch")
        await driver.commit(first, facts=facts(title="Title"))
        await driver.add(b"note", frame=2, channel="notes", data=b"patch 2")
        await driver.add(data=b"patch 3", snapshot=b"later")
        await driver.commit(facts=facts(title="Title"))
        await store.describe("thread", "About", instead_of=None, now=NOW)
        await forked(store, driver, 1)
        # Leaves an entry whose record is gone, which a rewrite by records alone would pass over.
        await store.prune("thread", Keep(newest=1))
        await store.put_document("sha256:1", b"document")
        await store.enqueue("thread", b"input", now=0)
        await store.put_note("own", b"untouched")
        seen: dict[Place, bytes] = {}

        def change(place: Place, blob: bytes) -> bytes:
            seen[place] = blob
            return b"<" + blob + b">"

        after, pages = await store.rewrite(change, limit=2), 1
        # Pages of two, so that cursors cross from one table into the next.
        while after is not None:
            after, pages = await store.rewrite(change, after=after, limit=2), pages + 1
            assert pages < 50
        lineage = driver.lineage
        expected = {
            Place("record", first.id, lineage, 1): b"patch",
            Place("record", driver.ids[2], lineage, 3): b"patch 3",
            Place("snapshot", "", lineage, 1): b"snapshot",
            Place("snapshot", "", lineage, 3): b"later",
            Place("item", "", lineage, 0, 0, "messages", 1): b"zero",
            Place("item", "", lineage, 1, 0, "messages", 1): b"one",
            Place("item", "", lineage, 0, 2, "notes", 2): b"note",
            Place("interrupt", "thread a b.1"): b"question",
            Place("document", "sha256:1"): b"document",
            Place("input", "thread"): b"input",
            Place("title", "thread"): b"Title",
            Place("about", "thread"): b"About",
        }
        assert {place: seen[place] for place in expected} == expected
        assert len(seen) <= len(expected) + 1  # the record of what was pruned may have stayed
        stored = existing(await store.load("thread"))
        assert (stored.snapshot, stored.thread.facts.title) == (b"<later>", "<Title>")
        assert existing(stored.target).data == b"<patch 3>"
        assert await messages(store, "thread", count=2) == [b"<zero>", b"<one>"]
        assert [i.data for i in await store.open_interrupts()] == [b"<question>"]
        assert await store.document("sha256:1") == b"<document>"
        assert await store.dequeue("thread") == b"<input>"
        assert await store.note("own") == b"untouched"

    def test_an_encrypted_store_is_refused_to_who_can_not_open_its_blobs(self) -> None:
        if self.encrypted or not self.durable:
            return

        async def kept(folder: Path) -> None:
            store = self.make(folder)
            await store.setup()
            await store.put_note(ENCRYPTION_NOTE, b"{}")
            await store.close()
            plain = self.make(folder)
            error = await refused(StoreError, plain.setup())
            assert "store.keys" in error.message
            await refused(StoreError, plain.take("thread", owner="me", now=NOW, lease_ms=LEASE))
            await plain.close()
            able = self.make(folder)
            await able.setup(encrypted=True)
            assert await able.note(ENCRYPTION_NOTE) == b"{}"
            await able.close()

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(kept(Path(folder)))
