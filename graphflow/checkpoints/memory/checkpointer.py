"""`MemoryCheckpointer`: a store in this process's memory, for tests, notebooks and throw-away runs.

It keeps the promises of the port (fences, compare-and-swap, atomic commits, shared pasts); only durability
ends with the object. It may be used from several event loops and threads at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import errors, export, pruning
from graphflow.checkpoints.blobs import changed_facts
from graphflow.checkpoints.commit_queue import SettledPromise
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.memory import copies as _memory_copies
from graphflow.checkpoints.memory import pruning as _memory_pruning
from graphflow.checkpoints.memory.queues import MemoryQueues
from graphflow.checkpoints.memory.rows import (
    HeldThread,
    LineageRows,
    age,
    bare,
    chain_of,
    check,
    check_parent,
    checked_facts,
    find_checkpoint,
    last_of,
    listed,
    reach,
    read_log,
    recency,
    refusal,
    since_snapshot,
)
from graphflow.checkpoints.process_lock import new_owner
from graphflow.checkpoints.rows import (
    ENCRYPTION_NOTE,
    Keep,
    Lineage,
    ListedRecord,
    Log,
    OpenInterrupt,
    Place,
    Pruned,
    Record,
    Rewrite,
    Span,
    Spent,
    Stored,
    ThreadFacts,
    ThreadRow,
    parse_cursor,
    summed,
)
from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Durable

_DURABLE = SettledPromise()


class MemoryCheckpointer(MemoryQueues):
    """A `Checkpointer` whose data lives in the object; a commit is durable when `commit` returns."""

    def __init__(self) -> None:
        self._owner = new_owner()
        super().__init__()

    @property
    def owner(self) -> str:
        return self._owner

    async def setup(self, *, encrypted: bool = False) -> None:
        """Nothing to open; refuses when the blobs are encrypted and the caller does not open them."""
        if await self.note(ENCRYPTION_NOTE) is not None and not encrypted:
            raise errors.encrypted("in memory")

    async def close(self) -> None:
        """Nothing to release; the data stays with the object."""

    async def flush(self) -> None:
        """Everything is durable already."""

    # --- taking a thread (E2) ---

    async def take(self, thread_id: str, *, owner: str, now: int, lease_ms: int, create: bool = True) -> ThreadRow:
        with self._locked(thread_id, owner):
            thread = self._tables.threads.get(thread_id)
            if thread is None:
                if not create:
                    raise errors.unknown_thread(thread_id)
                thread = self._tables.add_thread(thread_id, ThreadFacts(status="idle", updated_at=now), now)
            elif thread.owner is not None and thread.lease_until > now:
                raise errors.busy(thread_id, thread.lease_until, now)
            thread.owner, thread.lease_until, thread.broken = owner, now + lease_ms, False
            thread.fence += 1
            return self._tables.row(thread)

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        with self._locked(thread_id, user):
            thread = self._tables.threads.get(thread_id)
            if thread is None:
                thread = self._tables.add_thread(thread_id, ThreadFacts(status="idle", updated_at=now, user=user), now)
            return thread.facts.user

    async def describe(self, thread_id: str, about: str | None, *, instead_of: str | None, now: int) -> bool:
        with self._locked(thread_id):
            thread = self._tables.known(thread_id)
            fits = thread.facts.about == instead_of
            if fits:
                updated_at = max(thread.facts.updated_at, now)
                thread.facts = msgspec.structs.replace(thread.facts, about=about, updated_at=updated_at)
            return fits

    async def renew(self, owner: str, *, lease_until: int) -> None:
        with self._locked(owner):
            for thread in self._tables.threads.values():
                if thread.owner == owner:
                    thread.lease_until = max(thread.lease_until, lease_until)

    async def release(self, thread_id: str, fence: int) -> None:
        with self._locked(thread_id):
            thread = self._tables.threads.get(thread_id)
            if thread is not None and thread.fence == fence:
                thread.owner, thread.lease_until = None, 0

    # --- commits (E3) ---

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
    ) -> Durable:
        with self._lock:
            thread = self._tables.threads.get(thread_id)
            try:
                if thread is None:
                    check_text(thread_id)
                if (
                    thread is None
                    or thread.fence != fence
                    or thread.head != expected_head
                    or thread.broken
                    or thread.owner is None
                ):
                    raise refusal(thread, thread_id, fence, expected_head)
                lineage = thread.lineage if begins is None else self._tables.begin(thread, begins)
                if begins is not None and lineage is not None and lineage.parent is not None:
                    check_parent(lineage, lineage.parent)
                # Most commits carry the facts object of the one before.
                if facts is not thread.facts:
                    facts = checked_facts(facts, thread.facts)
                if records:
                    check(thread_id, lineage, 0 if begins else thread.ordinal, records)
                if consumes is not None and not self._tables.queue.holds(thread_id, consumes):
                    raise errors.queue_gone(thread_id, consumes)
            except StoreError as error:
                if thread is not None and thread.fence == fence:
                    thread.broken = True
                return SettledPromise(error)
            # Everything was checked before anything is changed, so a refused commit leaves nothing behind.
            self._apply(thread, lineage, records, facts)
            if begins is not None and lineage is not None:
                self._tables.keep(thread, lineage)
            if consumes is not None:
                self._tables.queue.drop(consumes)
            if release:
                thread.owner, thread.lease_until = None, 0
        return _DURABLE

    def _apply(
        self, thread: HeldThread, lineage: LineageRows | None, records: Sequence[Record], facts: ThreadFacts
    ) -> None:  # fmt: skip
        if lineage is not thread.lineage:
            thread.lineage, thread.ordinal = lineage, 0
        for record in records:
            assert lineage is not None
            lineage.add(record)
            thread.head, thread.ordinal = record.id, record.ordinal
            for interrupt in record.opened:
                self._tables.interrupts[thread.id, interrupt.interrupt_id] = interrupt
            for interrupt_id in record.closed:
                self._tables.interrupts.pop((thread.id, interrupt_id), None)
            if record.spent is not None:
                self._tables.spent.append((thread.id, record.spent))
        if facts.run_id is not None and facts.run_id != thread.facts.run_id:
            self._tables.runs.setdefault(facts.run_id, thread.id)
        thread.facts = facts

    # --- reading ---

    async def thread(self, thread_id: str) -> ThreadRow | None:
        with self._locked(thread_id):
            thread = self._tables.threads.get(thread_id)
            return None if thread is None else self._tables.row(thread)

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        with self._locked(thread_id, checkpoint_id):
            thread = self._tables.threads.get(thread_id)
            if thread is None:
                return None
            if checkpoint_id is None:
                lineage, ordinal = thread.lineage, thread.ordinal
            else:
                found = find_checkpoint(thread, checkpoint_id)
                if found is None:
                    return None
                lineage, ordinal = found
            chain = chain_of(lineage, ordinal)
            snapshot, records = since_snapshot(thread_id, chain)
            return Stored(
                thread=self._tables.row(thread),
                chain=tuple((step.number, cut) for step, cut in chain),
                snapshot=snapshot,
                records=tuple(map(bare, records)),
                target=last_of(chain),
            )

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        with self._locked(*[log.channel for log in logs]):
            lineages = [self._tables.lineages.get(number) for number, _ in chain]
            return [read_log([x for x in lineages if x is not None], log) for log in logs]

    async def list_checkpoints(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        with self._locked(thread_id, before):
            thread = self._tables.threads.get(thread_id)
            if thread is None:
                return []
            if all_lineages:
                scope = sorted(reach(thread).items(), key=lambda pair: -pair[0].order)
            else:
                scope = [*reversed(chain_of(thread.lineage, thread.ordinal))]
            out: list[ListedRecord] = []
            seen = before is None
            for lineage, upto in scope:
                for record in reversed(lineage.found(0, upto)):
                    if limit is not None and len(out) >= limit:
                        return out
                    if not record.checkpoint:
                        continue
                    if seen:
                        out.append(listed(lineage, record))
                    elif record.id == before:
                        seen = True
            if not seen:
                raise errors.unknown_checkpoint(thread_id, str(before))
            return out

    async def read_records(self, thread_id: str, *, lineage: int, after: int, upto: int) -> list[Record]:
        with self._locked(thread_id):
            thread, rows = self._tables.threads.get(thread_id), self._tables.lineages.get(lineage)
            if thread is None or rows is None:
                return []
            return [bare(record) for record in rows.found(after, min(upto, reach(thread).get(rows, 0)))]

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> list[Record]:
        out: list[Record] = []
        with self._locked(thread_id):
            thread = self._tables.threads.get(thread_id)
            tree = {} if thread is None else {rows.number: (rows, upto) for rows, upto in reach(thread).items()}
            for span in spans:
                if span.lineage in tree:
                    rows, upto = tree[span.lineage]
                    out += (bare(record) for record in rows.found(span.after, min(upto, span.upto)) if record.effect)
        return [msgspec.structs.replace(record, effect=True) for record in out]

    async def spent(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        agent_key: str | None = None,
        thread_id: str | None = None,
    ) -> list[Spent]:
        with self._locked(agent_key, thread_id):
            return summed(
                row
                for owner, row in self._tables.spent
                if (since is None or row.day >= since)
                and (until is None or row.day <= until)
                and agent_key in (None, row.agent_key)
                and thread_id in (None, owner)
            )

    async def threads(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
    ) -> list[ThreadRow]:
        with self._locked(cursor, status, agent_key, user):
            rows = sorted(self._tables.threads.values(), key=recency, reverse=True)
            if cursor is not None:
                last = self._tables.threads.get(cursor)
                if last is None:
                    raise errors.unknown_thread(cursor)
                rows = [row for row in rows if recency(row) < recency(last)]
            chosen = (
                row
                for row in rows
                if status in (None, row.facts.status)
                and agent_key in (None, row.facts.agent_key)
                and user in (None, row.facts.user)
            )
            return [self._tables.row(row) for row, _ in zip(chosen, range(limit), strict=False)]

    async def open_interrupts(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        role: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> list[OpenInterrupt]:
        after = None if cursor is None else parse_cursor(cursor)
        with self._locked(thread_id, owner, role, agent_key, user):
            rows = sorted(self._tables.interrupts.values(), key=age)
            if user is not None:
                rows = [row for row in rows if self._tables.threads[row.thread_id].facts.user == user]
        chosen = (
            row
            for row in rows
            if thread_id in (None, row.thread_id)
            and owner in (None, row.owner)
            and role in (None, row.role)
            and agent_key in (None, row.agent_key)
            and (after is None or age(row) > after)
        )
        return [row for row, _ in zip(chosen, range(limit), strict=False)]

    async def find_run(self, run_id: str) -> str | None:
        with self._locked(run_id):
            return self._tables.runs.get(run_id)

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> list[tuple[str, ThreadRow]]:
        with self._locked(thread_id, agent_key, user, cursor):
            rows = (
                (run, self._tables.threads[name])
                for run, name in sorted(self._tables.runs.items(), reverse=True)
                if name in self._tables.threads and thread_id in (None, name) and (cursor is None or run < cursor)
            )
            chosen = (
                (run, self._tables.row(row))
                for run, row in rows
                if agent_key in (None, row.facts.agent_key) and user in (None, row.facts.user)
            )
            return [found for found, _ in zip(chosen, range(limit), strict=False)]

    async def due(self, before: int) -> list[OpenInterrupt]:
        with self._lock:
            rows = [row for row in self._tables.interrupts.values() if row.due_at is not None and row.due_at <= before]
        return sorted(rows, key=lambda row: (row.due_at or 0, row.interrupt_id))

    # --- forks, deletion ---

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:  # fmt: skip
        with self._locked(checkpoint_id, source_id, thread_id):
            found = find_checkpoint(self._tables.known(source_id), checkpoint_id)
            if found is None:
                raise errors.unknown_checkpoint(source_id, checkpoint_id)
            if thread_id in self._tables.threads:
                raise errors.exists(thread_id)
            if number in self._tables.lineages:
                raise errors.number_taken(number)
            thread = self._tables.add_thread(thread_id, checked_facts(facts, facts), facts.updated_at)
            thread.lineage = self._tables.lineage(number, thread_id, *found)
            thread.head = checkpoint_id
            self._tables.keep(thread, thread.lineage)
            return self._tables.row(thread)

    async def delete_thread(self, thread_id: str) -> None:
        with self._locked(thread_id):
            _memory_pruning.delete_thread(self._tables, thread_id)

    async def delete_checkpoint(self, thread_id: str, checkpoint_id: str) -> None:
        with self._locked(thread_id, checkpoint_id):
            _memory_pruning.delete_checkpoint(self._tables, thread_id, checkpoint_id)

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        pruning.check_keep(thread_id, keep)
        with self._locked(thread_id):
            return _memory_pruning.prune(self._tables, thread_id, keep, dry_run=dry_run)

    async def compact(self) -> None:
        """Nothing is on a disk."""

    # --- documents, queue ---

    async def put_document(self, digest: str, document: bytes) -> None:
        with self._locked(digest):
            self._tables.documents.setdefault(digest, document)

    async def document(self, digest: str) -> bytes | None:
        with self._locked(digest):
            return self._tables.documents.get(digest)

    async def put_note(self, name: str, note: bytes) -> None:
        with self._locked(name):
            self._tables.notes[name] = note

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        with self._locked(name):
            fits = self._tables.notes.get(name) == instead_of
            if fits:
                self._tables.notes[name] = note
            return fits

    async def note(self, name: str) -> bytes | None:
        with self._locked(name):
            return self._tables.notes.get(name)

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        with self._lock:
            for lineage in self._tables.lineages.values():
                lineage.rewrite(change)
            for (name, interrupt_id), row in self._tables.interrupts.items():
                data = change(Place("interrupt", f"{name} {interrupt_id}"), row.data)
                self._tables.interrupts[name, interrupt_id] = msgspec.structs.replace(row, data=data)
            for digest, document in self._tables.documents.items():
                self._tables.documents[digest] = change(Place("document", digest), document)
            self._tables.queue.rewrite(change)
            for thread in self._tables.threads.values():
                thread.facts = changed_facts(thread.facts, thread.id, change)
        return None

    # --- export ---

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        with self._locked(thread_id):
            copy = _memory_copies.copy_thread(self._tables, thread_id)
        for line in export.to_lines(copy):
            yield line

    async def import_thread(
        self,
        lines: AsyncIterator[Mapping[str, Any]],
        *,
        thread_id: str | None = None,
        change: Rewrite | None = None,
    ) -> str:
        from graphflow.checkpoints.imports.readable import checked_copy

        exported = await checked_copy(lines)
        with self._lock:
            return _memory_copies.import_thread(self._tables, exported, thread_id, change)
