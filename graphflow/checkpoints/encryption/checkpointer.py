"""`EncryptedCheckpointer`: any store with its blobs encrypted and compressed (spec 4.3).

What holds words or values of users is a blob and passes `Cipher`: records, snapshots, log entries, interrupts, documents,
queued inputs, titles and what is written about threads. What is queried stays readable in the columns: ids, times, statuses, names of agents and
nodes, owners and roles, and a record's metadata (source, step, nodes, run, error code). So do notes, which the store's
operators write (standing rules), and the ledger.

A note in the store says which keys its blobs need, so that the wrong ones are refused when it is opened and not in the
middle of a run.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from graphflow.checkpoints import errors, export
from graphflow.checkpoints.blobs import TEXTS, changed_facts, changed_interrupt, changed_record
from graphflow.checkpoints.checkpointer import Checkpointer, eager_commits, owner_liveness, store_clock
from graphflow.checkpoints.encryption.cipher import ENCRYPTED, Cipher
from graphflow.checkpoints.encryption.note import (
    EncryptionNote,
    check_keys,
    check_note,
    checked,
    missing_keys,
    parse_note,
    plain_rows,
    read_note,
    write_note,
)
from graphflow.checkpoints.rows import (
    ENCRYPTION_NOTE,
    Lineage,
    Log,
    Place,
    Queued,
    Record,
    Rewrite,
    Stored,
    ThreadFacts,
    ThreadRow,
)
from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Durable

_replace = msgspec.structs.replace
P = ParamSpec("P")
T = TypeVar("T")
REMEMBERED = 256
"""Threads whose encrypted texts are remembered: each commit carries its thread's along."""


def with_encryption(store: Checkpointer, keys: Sequence[str] = (), *, compression: bool = False) -> Checkpointer:
    """The store, encrypted if keys or compression say so."""
    return EncryptedCheckpointer(store, keys, compression=compression) if keys or compression else store


def _passed(
    method: Callable[Concatenate[Checkpointer, P], Coroutine[Any, Any, T]],
    opened: Callable[[EncryptedCheckpointer, T], T] = lambda _, answer: answer,
) -> Callable[Concatenate[EncryptedCheckpointer, P], Coroutine[Any, Any, T]]:
    """A method of the port that takes no blob: the store behind answers it, once it is open.

    Args:
        opened: the answer with its blobs decrypted.
    """

    async def passed(self: EncryptedCheckpointer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return opened(self, await getattr(await self._ready(), method.__name__)(*args, **kwargs))

    functools.update_wrapper(passed, method)
    return passed


class EncryptedCheckpointer:
    """A `Checkpointer` that encrypts what another one stores.

    Args:
        store: the store behind it, used by nothing else but other `EncryptedCheckpointer`s.
        keys: `ID:BASE64` each (32 bytes, see `new_key`); the first one writes, all of them read.
        compression: compress blobs that gain by it.

    Raises:
        StoreError: a key is invalid, or `graphflow[encryption]` is not installed.
    """

    def __init__(self, store: Checkpointer, keys: Sequence[str] = (), *, compression: bool = False) -> None:
        self.store = store
        self.cipher = Cipher(keys, compression=compression)
        self._liveness, self._eager = owner_liveness(store), eager_commits(store)
        self._open = False
        self._texts: dict[tuple[str, str | None, str | None], tuple[str | None, str | None]] = {}

    def __repr__(self) -> str:
        return f"EncryptedCheckpointer({self.store!r}, {self.cipher!r})"

    def __getattr__(self, name: str) -> Any:
        # What a store has beyond the port (`path`): it never deals with blobs.
        if name.startswith("_") or name == "store":
            raise AttributeError(name)
        return getattr(self.store, name)

    @property
    def owner(self) -> str:
        return self.store.owner

    def is_dead(self, owner: str) -> bool:
        """As the store behind; False where that can't know."""
        return self._liveness is not None and self._liveness.is_dead(owner)

    def hurry(self) -> None:
        """As the store behind, if it has this ability."""
        if self._eager is not None:
            self._eager.hurry()

    # --- opening and closing ---

    async def setup(self, *, encrypted: bool = False) -> None:
        """Opens the store and compares its note on encryption with the keys; calling it again has no effect.

        Raises:
            StoreError: a key is missing or wrong, or the store holds blobs that are not encrypted.
        """
        await self.store.setup(encrypted=True)
        if self._open:
            return
        while True:
            found = await self.store.note(ENCRYPTION_NOTE)
            note = EncryptionNote() if found is None else parse_note(found)
            if found is not None:
                check_note(note, self.cipher)
            # The store has threads but no note, so there is plain data that the keys would not read.
            elif self.cipher.keys and await self.store.threads(limit=1):
                raise plain_rows("the store was made without keys")
            new = self._added(note)
            # Another process may open the store with another key at the same time: then its note stands, and is checked.
            if new == note or await self.store.swap_note(ENCRYPTION_NOTE, msgspec.json.encode(new), instead_of=found):
                break
        self._open = True

    def _added(self, note: EncryptionNote) -> EncryptionNote:
        """The note with the writing key and compression."""
        writer = self.cipher.writer
        keys = dict(note.keys)
        if writer is not None and writer.id not in keys:
            keys[writer.id] = checked(writer, self.cipher)
        return _replace(note, keys=keys, compression=note.compression or self.cipher.compression)

    async def _ready(self) -> Checkpointer:
        if not self._open:
            await self.setup()
        return self.store

    async def close(self) -> None:
        await self.store.close()

    async def flush(self) -> None:
        await self.store.flush()

    async def rotate_keys(self) -> None:
        """Encrypts every blob anew with the first key and today's compression; also encrypts a store that was made without keys.

        May be cut off and called again. Afterwards the older keys are no longer needed. Other processes may use the store
        meanwhile if they know the new key, but not while a store without encryption gets its first.

        Raises:
            StoreError: a blob does not open with any of the keys.
        """
        await self.store.setup(encrypted=True)
        found = await read_note(self.store)
        note = found or EncryptionNote(unencrypted=bool(self.cipher.keys))
        if not self.cipher.keys and note.keys:
            raise missing_keys(note, self.cipher)
        check_keys(note, self.cipher)
        if self.cipher.keys and not note.keys:
            note = _replace(note, unencrypted=True)
        # Written first: if the rotation is cut off, the note says that both keys are needed.
        await write_note(self.store, self._added(note))
        after = await self.store.rewrite(self._anew(plain=note.unencrypted or not note.keys))
        while after is not None:
            after = await self.store.rewrite(self._anew(plain=note.unencrypted or not note.keys), after=after)
        writer = self.cipher.writer
        keys = {} if writer is None else {writer.id: checked(writer, self.cipher)}
        await write_note(self.store, EncryptionNote(keys=keys, compression=self.cipher.compression))
        self._open = True

    def _anew(self, *, plain: bool) -> Rewrite:
        """Each blob encrypted as `encrypt` does it today.

        Args:
            plain: blobs that are not encrypted are expected.
        """
        bare = Cipher()

        def change(place: Place, blob: bytes) -> bytes:
            if place.kind in TEXTS:
                return self.cipher.encrypt_text(place, self._text(place, blob, plain=plain))
            # A rotation that was cut off goes on here without encrypting blobs again.
            if self.cipher.is_newest(blob):
                return blob
            is_bare = plain and (not blob or blob[0] < ENCRYPTED)
            return self.cipher.encrypt(place, (bare if is_bare else self.cipher).decrypt(place, blob))

        return change

    def _text(self, place: Place, text: bytes, *, plain: bool) -> bytes:
        """A text as it was before it was encrypted, if it was; only where a store gets its first key some are not."""
        try:
            return self.cipher.decrypt_text(place, text)
        except StoreError:
            if not plain:
                raise
            return text

    # --- what passes as it is ---

    renew = _passed(Checkpointer.renew)
    release = _passed(Checkpointer.release)
    list_checkpoints = _passed(Checkpointer.list_checkpoints)
    delete_thread = _passed(Checkpointer.delete_thread)
    delete_checkpoint = _passed(Checkpointer.delete_checkpoint)
    prune = _passed(Checkpointer.prune)
    compact = _passed(Checkpointer.compact)
    find_run = _passed(Checkpointer.find_run)
    runs = _passed(Checkpointer.runs, lambda self, found: [(run, self._row(row)) for run, row in found])
    thread_count = _passed(Checkpointer.thread_count)
    queue_size = _passed(Checkpointer.queue_size)
    queues = _passed(Checkpointer.queues)
    still_queued = _passed(Checkpointer.still_queued)
    park = _passed(Checkpointer.park)
    stopped = _passed(Checkpointer.stopped)
    count_attempt = _passed(Checkpointer.count_attempt)
    withdraw = _passed(Checkpointer.withdraw)
    put_note = _passed(Checkpointer.put_note)
    swap_note = _passed(Checkpointer.swap_note)
    note = _passed(Checkpointer.note)
    assign = _passed(Checkpointer.assign)
    spent = _passed(Checkpointer.spent)

    async def clock_ms(self) -> int | None:
        clock = store_clock(self.store)
        return None if clock is None else await clock.clock_ms()

    def alone(self, name: str) -> AbstractAsyncContextManager[bool]:
        return self.store.alone(name)

    # --- threads ---

    take = _passed(Checkpointer.take, lambda self, found: self._row(found))

    async def thread(self, thread_id: str) -> ThreadRow | None:
        row = await (await self._ready()).thread(thread_id)
        return None if row is None else self._row(row)

    threads = _passed(Checkpointer.threads, lambda self, found: [self._row(row) for row in found])

    async def describe(self, thread_id: str, about: str | None, *, instead_of: str | None, now: int) -> bool:
        store = await self._ready()
        row = await store.thread(thread_id)
        if row is None:
            raise errors.unknown_thread(thread_id)
        if self._row(row).facts.about != instead_of:
            return False
        facts = self._facts(thread_id, ThreadFacts(status="", about=about))
        return await store.describe(thread_id, facts.about, instead_of=row.facts.about, now=now)

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:  # fmt: skip
        store = await self._ready()
        facts = self._facts(thread_id, facts)
        return self._row(await store.fork(checkpoint_id, source_id, thread_id, number=number, facts=facts))

    def _facts(self, thread_id: str, facts: ThreadFacts) -> ThreadFacts:
        """With encrypted texts, the same ones for the same thread and texts, so that a store sees that nothing changed."""
        if not self.cipher.keys or (facts.title is None and facts.about is None):
            return facts
        key = (thread_id, facts.title, facts.about)
        encrypted = self._texts.get(key)
        if encrypted is None:
            if len(self._texts) >= REMEMBERED:
                self._texts.clear()
            made = changed_facts(facts, thread_id, self.cipher.encrypt_text)
            encrypted = self._texts[key] = (made.title, made.about)
        return _replace(facts, title=encrypted[0], about=encrypted[1])

    def _row(self, row: ThreadRow) -> ThreadRow:
        if not self.cipher.keys or (row.facts.title is None and row.facts.about is None):
            return row
        return _replace(row, facts=changed_facts(row.facts, row.thread_id, self.cipher.decrypt_text))

    # --- records ---

    def commit(
        self,
        thread_id: str,
        fence: int,
        expected_head: str | None,
        records: Sequence[Record],
        *,
        facts: ThreadFacts,
        begins: Lineage | None = None,
        release: bool = False,
        consumes: int | None = None,
        awaited: bool = False,
    ) -> Durable:
        """As `EagerCommits` says."""
        if not self._open:
            raise StoreError(f"the store {self.store!r} is not open: take the thread before committing to it")
        more: Any = {"awaited": True} if awaited and self._eager is not None else {}
        return self.store.commit(
            thread_id,
            fence,
            expected_head,
            [changed_record(record, self.cipher.encrypt) for record in records],
            facts=self._facts(thread_id, facts),
            begins=begins,
            release=release,
            consumes=consumes,
            **more,
        )

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        stored = await (await self._ready()).load(thread_id, checkpoint_id)
        if stored is None:
            return None
        snapshot, target = stored.snapshot, stored.target
        if snapshot is not None:
            snapshot = self.cipher.decrypt(Place("snapshot", "", *snapshot_place(stored)), snapshot)
        records = tuple([self._opened(record) for record in stored.records])
        if target is not None:
            # The target is most often the last record: it is not decrypted twice.
            target = records[-1] if records and records[-1].id == target.id else self._opened(target)
        return _replace(stored, thread=self._row(stored.thread), snapshot=snapshot, records=records, target=target)

    def _opened(self, record: Record) -> Record:
        place = Place("record", record.id, record.lineage, record.ordinal)
        return _replace(record, data=self.cipher.decrypt(place, record.data))

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        found = await (await self._ready()).read_logs(chain, logs)
        # Which lineage an entry comes from is not known here: the blob names it, and it has to lie on the chain.
        upto, opened = dict(chain), self.cipher.decrypt
        return [
            [
                opened(Place("item", "", 0, n, log.frame, log.channel), row, upto)
                for n, row in enumerate(rows, log.start)
            ]
            for rows, log in zip(found, logs, strict=True)
        ]

    read_records = _passed(Checkpointer.read_records, lambda self, found: [self._opened(record) for record in found])
    read_effects = _passed(Checkpointer.read_effects, lambda self, found: [self._opened(record) for record in found])

    # --- interrupts, documents, the queue ---

    open_interrupts = _passed(
        Checkpointer.open_interrupts, lambda self, found: [changed_interrupt(row, self.cipher.decrypt) for row in found]
    )
    due = _passed(Checkpointer.due, lambda self, found: [changed_interrupt(row, self.cipher.decrypt) for row in found])

    async def put_document(self, digest: str, document: bytes) -> None:
        await (await self._ready()).put_document(digest, self.cipher.encrypt(Place("document", digest), document))

    async def document(self, digest: str) -> bytes | None:
        found = await (await self._ready()).document(digest)
        return None if found is None else self.cipher.decrypt(Place("document", digest), found)

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        store = await self._ready()
        encrypted = self.cipher.encrypt(Place("input", thread_id), body)
        return await store.enqueue(thread_id, encrypted, now=now, kind=kind, run_id=run_id)

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> list[Queued]:
        rows = await (await self._ready()).queue(thread_id, kind=kind, owner=owner, limit=limit)
        return [_replace(row, body=self.cipher.decrypt(Place("input", row.thread_id), row.body)) for row in rows]

    async def unparked(self, kind: str, *, limit: int = 1000) -> list[tuple[Queued, ThreadRow]]:
        rows = await (await self._ready()).unparked(kind, limit=limit)
        return [
            (_replace(row, body=self.cipher.decrypt(Place("input", row.thread_id), row.body)), self._row(thread))
            for row, thread in rows
        ]

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        found = await (await self._ready()).queued(thread_id)
        return None if found is None else (found[0], self.cipher.decrypt(Place("input", thread_id), found[1]))

    async def dequeue(self, thread_id: str) -> bytes | None:
        body = await (await self._ready()).dequeue(thread_id)
        return None if body is None else self.cipher.decrypt(Place("input", thread_id), body)

    # --- export and rewriting ---

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        """The thread, decrypted: an export fits any store, so its owner has to protect it."""
        copy = await export.from_lines((await self._ready()).export_thread(thread_id))
        opened = export.changed(copy, self.cipher.decrypt)
        there = {document.digest for document in opened.documents}
        for digest in export.named_documents(opened):  # the store behind could not read their names
            document = None if digest in there else await self.document(digest)
            if document is not None:
                opened.documents.append(export.StoredDocument(digest=digest, data=document))
        for line in export.to_lines(_replace(opened, thread=self._row(opened.thread))):
            yield line

    async def import_thread(
        self,
        lines: AsyncIterator[Mapping[str, Any]],
        *,
        thread_id: str | None = None,
        change: Rewrite | None = None,
    ) -> str:
        store = await self._ready()

        def encrypted(place: Place, blob: bytes) -> bytes:
            blob = blob if change is None else change(place, blob)
            return (self.cipher.encrypt_text if place.kind in TEXTS else self.cipher.encrypt)(place, blob)

        return await store.import_thread(lines, thread_id=thread_id, change=encrypted)

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        store = await self._ready()

        def within(place: Place, blob: bytes) -> bytes:
            if place.kind in TEXTS:
                return self.cipher.encrypt_text(place, change(place, self.cipher.decrypt_text(place, blob)))
            return self.cipher.encrypt(place, change(place, self.cipher.decrypt(place, blob)))

        return await store.rewrite(within, after=after, limit=limit)


def snapshot_place(stored: Stored) -> tuple[int, int]:
    """(lineage, ordinal) of the record whose snapshot `load` gave: the one before the first of its records."""
    left = len(stored.records)
    for lineage, cut in reversed(stored.chain):
        if left < cut:
            return lineage, cut - left
        left -= cut
    raise StoreError("a snapshot was loaded that no record of its chain can have: the store is damaged")
