"""Promises about export, import, and opening anew."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import OpenInterrupt
from graphflow.errors import StoreError, ThreadExists, ThreadNotFound
from graphflow.testing.checkpointer.suite import (
    LEASE,
    NOW,
    Suite,
    drive,
    facts,
    filled,
    forked,
    lines_of,
    messages,
    promise,
    refused,
    rewound,
    stream,
)
from graphflow.testing.existing import existing


class Exports(Suite):
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
        # The first line has owner and lease too, which no copy takes along.
        assert [{**line, "thread": None} for line in await lines_of(store, "thread")] == [
            {**line, "thread": None} for line in lines
        ]

    @promise
    async def test_a_copy_beside_the_original_is_independent(self, store: Checkpointer) -> None:
        await rich_thread(store)
        before = await picture(store, "thread")
        lines = await lines_of(store, "thread")
        await refused(ThreadExists, store.import_thread(stream(lines)))
        assert await store.import_thread(stream(lines), thread_id="copy") == "copy"
        assert await picture(store, "copy") == before
        copy = await drive(store, "copy", now=NOW + LEASE)
        copy.counts = {(0, "messages"): 5}
        await copy.add(b"only here")
        await store.delete_thread("copy")
        assert await picture(store, "thread") == before

    @promise
    async def test_an_exported_fork_brings_its_past_along(self, store: Checkpointer) -> None:
        source = await filled(store, 4)
        fork = await forked(store, source, 2)
        await fork.add(b"fork")
        before = await picture(store, "fork")
        lines = await lines_of(store, "fork")
        # Both: what the fork shared with its source must come from the file.
        await store.delete_thread("fork")
        await store.delete_thread("thread")
        await store.import_thread(stream(lines))
        assert await picture(store, "fork") == before
        assert await messages(store, "fork", count=3) == [b"0", b"1", b"fork"]

    @promise
    async def test_a_copy_belongs_to_nobody_and_its_epochs_go_on(self, store: Checkpointer) -> None:
        driver = await drive(store)
        await driver.add()
        await store.import_thread(stream(await lines_of(store, "thread")), thread_id="copy")
        row = existing(await store.thread("copy"))
        assert (row.owner, row.lease_until, row.fence) == (None, 0, driver.fence)
        # A fence never goes back, so that a driver of the original can not pass for one of the copy.
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
            [{**lines[0], "version": 0}, *lines[1:]],
            # JSON has `true` where Python sees the integer 1.
            [{**lines[0], "version": True}, *lines[1:]],
            ["no object", *lines[1:]],  # type: ignore[list-item]
            [{**lines[0], "thread": {**lines[0]["thread"], "head": "elsewhere"}}, *lines[1:]],
            [{**lines[0], "thread": {**lines[0]["thread"], "lineage": None}}, *lines[1:]],
            [lines[0], {"kind": "surprise"}, *lines[2:]],
            [lines[0], {**lines[1], "kind": "record"}, *lines[2:]],
            # The count at the end fits these two: only a look at the rows finds them.
            _doubled(lines, "lineage"),
            _doubled(lines, "record"),
        ]
        for lines_given in broken:
            await refused(StoreError, store.import_thread(stream(lines_given)))
        assert await store.threads() == []

    @promise
    async def test_an_export_sees_one_moment_while_commits_go_on(self, store: Checkpointer) -> None:
        """M8."""
        driver = await filled(store, 5)
        lines = []
        # A commit between any two lines, so that reading anew for each part of the thread would show.
        async for line in store.export_thread("thread"):
            lines.append(line)
            await driver.add(b"later")
        await store.import_thread(stream(lines), thread_id="copy")
        assert await messages(store, "copy", count=5) == [b"0", b"1", b"2", b"3", b"4"]
        assert len(await store.list_checkpoints("copy")) == 5

    @promise
    async def test_exporting_an_unknown_thread_is_an_error(self, store: Checkpointer) -> None:
        await refused(ThreadNotFound, lines_of(store, "nobody"))

    def test_a_store_that_is_opened_again_has_everything(self) -> None:
        if not self.durable:
            return

        async def kept(folder: Path) -> None:
            store = self.make(folder)
            # Setting up and closing have no effect the second time; several users of one store do so.
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
    stored = existing(await store.load(thread_id))
    row = stored.thread
    names = {number: n for n, (number, _) in enumerate(stored.chain)}
    tree = await store.list_checkpoints(thread_id, all_lineages=True)
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


def _doubled(lines: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """The lines with each of this kind twice, and the end that fits."""
    out = [line for line in lines[:-1] for _ in range(1 + (line["kind"] == kind))]
    return [*out, {**lines[-1], "lines": len(out) + 1}]
