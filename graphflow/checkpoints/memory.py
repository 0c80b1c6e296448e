"""`MemoryCheckpointer`: a store in this process's memory, for tests, notebooks and throw-away runs.

It keeps the promises of the port (fences, compare-and-swap, atomic commits, shared pasts); only durability
ends with the object. It may be used from several event loops and threads at once.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import export, pruning, refusals
from graphflow.checkpoints._memory_queue import QueueRows
from graphflow.checkpoints._memory_rows import (
    LineageRows,
    ThreadState,
    age,
    bare,
    branches_of,
    chain_of,
    check,
    check_parent,
    find_checkpoint,
    last_of,
    listed,
    reach,
    read_log,
    recency,
    refusal,
    since_snapshot,
)
from graphflow.checkpoints.owners import new_owner
from graphflow.checkpoints.port import (
    SEAL,
    Durable,
    Keep,
    Lineage,
    ListedRecord,
    Log,
    OpenInterrupt,
    Place,
    Pruned,
    Queued,
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
from graphflow.errors import GraphflowError, StoreError


class _Settled:
    """A promise that is settled when it is made."""

    __slots__ = ("error",)

    def __init__(self, error: GraphflowError | None = None) -> None:
        self.error = error

    @property
    def done(self) -> bool:
        return True

    def __await__(self) -> Generator[Any, None, None]:
        if self.error is not None:
            raise self.error
        yield from ()

    def when_done(self, callback: Callable[[], None]) -> None:
        callback()


_DURABLE = _Settled()


class MemoryCheckpointer:
    """A `Checkpointer` whose data lives in the object; a commit is durable when `commit` returns."""

    def __init__(self) -> None:
        self._owner = new_owner()
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadState] = {}
        self._lineages: dict[int, LineageRows] = {}
        self._begun = 0
        self._interrupts: dict[tuple[str, str], OpenInterrupt] = {}
        self._runs: dict[str, str] = {}
        self._spent: list[tuple[str, Spent]] = []
        self._documents: dict[str, bytes] = {}
        self._notes: dict[str, bytes] = {}
        self._queue = QueueRows()
        self._fences: dict[str, int] = {}
        """Fences of threads that were deleted while somebody drove them: a namesake goes on from there."""

    @property
    def owner(self) -> str:
        return self._owner

    async def setup(self, *, sealed: bool = False) -> None:
        """Nothing to open; refuses when the blobs are sealed and the caller does not open them."""
        if SEAL in self._notes and not sealed:
            raise refusals.sealed("in memory")

    async def close(self) -> None:
        """Nothing to release; the data stays with the object."""

    async def flush(self) -> None:
        """Everything is durable already."""

    # --- taking a thread (E2) ---

    async def take(
        self, thread_id: str, *, owner: str, now: int, lease_ms: int, create: bool = True
    ) -> ThreadRow:  # fmt: skip
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                if not create:
                    raise refusals.unknown_thread(thread_id)
                thread = self._new(thread_id, ThreadFacts(status="idle", updated_at=now), now)
            elif thread.owner is not None and thread.lease_until > now:
                raise refusals.busy(thread_id, thread.lease_until, now)
            thread.owner, thread.lease_until, thread.broken = owner, now + lease_ms, False
            thread.fence += 1
            return self._row(thread)

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                thread = self._new(thread_id, ThreadFacts(status="idle", updated_at=now, user=user), now)
            return thread.facts.user

    async def renew(self, owner: str, *, lease_until: int) -> None:
        with self._lock:
            for thread in self._threads.values():
                if thread.owner == owner:
                    thread.lease_until = max(thread.lease_until, lease_until)

    async def release(self, thread_id: str, fence: int) -> None:
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is not None and thread.fence == fence:
                thread.owner, thread.lease_until = None, 0

    def _new(self, thread_id: str, facts: ThreadFacts, created_at: int) -> ThreadState:
        thread = ThreadState(thread_id, facts, self._fences.pop(thread_id, 0), created_at)
        self._threads[thread_id] = thread
        return thread

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
            thread = self._threads.get(thread_id)
            try:
                if (
                    thread is None
                    or thread.fence != fence
                    or thread.head != expected_head
                    or thread.broken
                    or thread.owner is None
                ):
                    raise refusal(thread, thread_id, fence, expected_head)
                lineage = thread.lineage if begins is None else self._begin(thread, begins)
                if begins is not None and lineage is not None and lineage.parent is not None:
                    check_parent(lineage, lineage.parent)
                if records:
                    check(thread_id, lineage, 0 if begins else thread.ordinal, records)
                if consumes is not None and not self._queue.holds(thread_id, consumes):
                    raise refusals.queue_gone(thread_id, consumes)
            except StoreError as error:
                if thread is not None and thread.fence == fence:
                    thread.broken = True
                return _Settled(error)
            self._apply(thread, lineage, records, facts)
            if begins is not None and lineage is not None:
                self._keep(thread, lineage)
            if consumes is not None:
                self._queue.drop(consumes)
            if release:
                thread.owner, thread.lease_until = None, 0
        return _DURABLE

    def _begin(self, thread: ThreadState, begins: Lineage) -> LineageRows:
        """The new lineage, not yet known to anybody."""
        if begins.number in self._lineages:
            raise refusals.number_taken(begins.number)
        parent = None if begins.parent is None else self._lineages.get(begins.parent)
        if begins.parent is not None and parent is None:
            raise refusals.unknown_parent(begins.number, begins.parent)
        self._begun += 1
        return LineageRows(begins.number, self._begun, thread.id, parent, begins.cut)

    def _keep(self, thread: ThreadState, lineage: LineageRows) -> None:
        self._lineages[lineage.number] = lineage
        thread.lineages.append(lineage)

    def _apply(
        self, thread: ThreadState, lineage: LineageRows | None, records: Sequence[Record], facts: ThreadFacts
    ) -> None:  # fmt: skip
        if lineage is not thread.lineage:
            thread.lineage, thread.ordinal = lineage, 0
        for record in records:
            assert lineage is not None
            lineage.add(record)
            thread.head, thread.ordinal = record.id, record.ordinal
            for interrupt in record.opened:
                self._interrupts[thread.id, interrupt.interrupt_id] = interrupt
            for interrupt_id in record.closed:
                self._interrupts.pop((thread.id, interrupt_id), None)
            if record.spent is not None:
                self._spent.append((thread.id, record.spent))
        if facts.run_id is not None and facts.run_id != thread.facts.run_id:
            self._runs.setdefault(facts.run_id, thread.id)
        user = thread.facts.user
        thread.facts = facts if facts.user == user else msgspec.structs.replace(facts, user=user)

    # --- reading ---

    async def thread(self, thread_id: str) -> ThreadRow | None:
        with self._lock:
            thread = self._threads.get(thread_id)
            return None if thread is None else self._row(thread)

    def _row(self, thread: ThreadState) -> ThreadRow:
        row = thread.row()
        waits = any(self._queue.rows(row.thread_id, "input"))
        return msgspec.structs.replace(row, queued=True) if waits else row

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        with self._lock:
            thread = self._threads.get(thread_id)
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
                thread=thread.row(),
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
        with self._lock:
            lineages = [self._lineages.get(number) for number, _ in chain]
            return [read_log([x for x in lineages if x is not None], log) for log in logs]

    async def list(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        with self._lock:
            thread = self._threads.get(thread_id)
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
                raise refusals.unknown_checkpoint(thread_id, str(before))
            return out

    async def read_records(
        self, thread_id: str, *, lineage: int, after: int, upto: int
    ) -> builtins.list[Record]:  # fmt: skip
        with self._lock:
            thread, rows = self._threads.get(thread_id), self._lineages.get(lineage)
            if thread is None or rows is None:
                return []
            return [bare(record) for record in rows.found(after, min(upto, reach(thread).get(rows, 0)))]

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> builtins.list[Record]:
        out: builtins.list[Record] = []
        with self._lock:
            thread = self._threads.get(thread_id)
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
    ) -> builtins.list[Spent]:
        with self._lock:
            return summed(
                row
                for owner, row in self._spent
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
    ) -> builtins.list[ThreadRow]:
        with self._lock:
            rows = sorted(self._threads.values(), key=recency, reverse=True)
            if cursor is not None:
                last = self._threads.get(cursor)
                if last is None:
                    raise refusals.unknown_thread(cursor)
                rows = [row for row in rows if recency(row) < recency(last)]
            chosen = (
                row
                for row in rows
                if status in (None, row.facts.status)
                and agent_key in (None, row.facts.agent_key)
                and user in (None, row.facts.user)
            )
            return [row.row() for row, _ in zip(chosen, range(limit), strict=False)]

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
    ) -> builtins.list[OpenInterrupt]:
        after = None if cursor is None else parse_cursor(cursor)
        with self._lock:
            rows = sorted(self._interrupts.values(), key=age)
            if user is not None:
                rows = [row for row in rows if self._threads[row.thread_id].facts.user == user]
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
        return self._runs.get(run_id)

    async def due(self, before: int) -> builtins.list[OpenInterrupt]:
        with self._lock:
            rows = [row for row in self._interrupts.values() if row.due_at is not None and row.due_at <= before]
        return sorted(rows, key=lambda row: (row.due_at or 0, row.interrupt_id))

    # --- forks, deletion ---

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:  # fmt: skip
        with self._lock:
            source = self._threads.get(source_id)
            if source is None:
                raise refusals.unknown_thread(source_id)
            found = find_checkpoint(source, checkpoint_id)
            if found is None:
                raise refusals.unknown_checkpoint(source_id, checkpoint_id)
            if thread_id in self._threads:
                raise refusals.exists(thread_id)
            if number in self._lineages:
                raise refusals.number_taken(number)
            thread = self._new(thread_id, facts, facts.updated_at)
            self._begun += 1
            thread.lineage = LineageRows(number, self._begun, thread_id, *found)
            thread.head = checkpoint_id
            self._keep(thread, thread.lineage)
            return thread.row()

    async def delete_thread(self, thread_id: str) -> None:
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is not None:
                self._delete(thread)

    def _delete(self, thread: ThreadState) -> None:
        del self._threads[thread.id]
        if thread.owner is not None:
            self._fences[thread.id] = thread.fence
        for key in [key for key in self._interrupts if key[0] == thread.id]:
            del self._interrupts[key]
        self._queue.drop_thread(thread.id)
        for run_id in [run for run, owner in self._runs.items() if owner == thread.id]:
            del self._runs[run_id]
        self._spent = [("" if owner == thread.id else owner, row) for owner, row in self._spent]
        self._trim(reach(thread))

    def _trim(self, left: Iterable[LineageRows]) -> None:
        """Drops what only the deleted thread reached: whole lineages, and rows behind the last cut."""
        needed: dict[LineageRows, int] = {}
        for thread in self._threads.values():
            for lineage, upto in reach(thread).items():
                needed[lineage] = max(needed.get(lineage, 0), upto)
        for lineage in left:
            if lineage not in needed:
                del self._lineages[lineage.number]
            elif needed[lineage] < len(lineage.records):
                lineage.trim(needed[lineage])

    async def delete_checkpoint(self, thread_id: str, checkpoint_id: str) -> None:
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                raise refusals.unknown_thread(thread_id)
            found = find_checkpoint(thread, checkpoint_id)
            if found is None:
                raise refusals.unknown_checkpoint(thread_id, checkpoint_id)
            shown = (r.id for rows, upto in reach(thread).items() for r in rows.found(0, upto) if r.checkpoint)
            if all(shown_id == checkpoint_id for shown_id in shown):
                self._delete(thread)
                return
            branches = self._branches(thread)
            standing = next((other.id for other in self._threads.values() if other.head == checkpoint_id), None)
            pruning.check_deletion(thread_id, checkpoint_id, branches, standing, self._interrupts_of(thread_id))
            self._apply_plan(pruning.plan(branches, pruning.all_but(branches, checkpoint_id)))

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        pruning.check_keep(thread_id, keep)
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                raise refusals.unknown_thread(thread_id)
            branches = self._branches(thread, keep.records)
            kept = pruning.chosen(branches, keep, self._interrupts_of(thread_id))
            changes = pruning.plan(branches, kept)
            lineages = {rows.order: rows for rows in reach(thread)}
            dropped = [lineages[change.lineage].dropped(change) for change in changes]
            if not dry_run:
                self._apply_plan(changes)
        return pruning.summed(branches, kept, dropped)

    def _interrupts_of(self, thread_id: str) -> builtins.list[OpenInterrupt]:
        return [row for (owner, _), row in self._interrupts.items() if owner == thread_id]

    def _branches(self, thread: ThreadState, wanted: Sequence[tuple[int, int]] = ()) -> builtins.list[pruning.Branch]:
        return branches_of(thread, tuple(self._lineages.values()), self._threads.__contains__, wanted)

    def _apply_plan(self, changes: Sequence[pruning.Change]) -> None:
        lineages = {rows.order: rows for rows in self._lineages.values()}
        for change in changes:
            rows = lineages[change.lineage]
            if not change.gone:
                rows.apply(change)
                continue
            del self._lineages[rows.number]
            if (owner := self._threads.get(rows.thread_id)) is not None and rows in owner.lineages:
                owner.lineages.remove(rows)

    # --- documents, queue ---

    async def put_document(self, digest: str, document: bytes) -> None:
        self._documents.setdefault(digest, document)

    async def document(self, digest: str) -> bytes | None:
        return self._documents.get(digest)

    async def put_note(self, name: str, note: bytes) -> None:
        self._notes[name] = note

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        with self._lock:
            fits = self._notes.get(name) == instead_of
            if fits:
                self._notes[name] = note
            return fits

    async def note(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        with self._lock:
            for lineage in self._lineages.values():
                lineage.rewrite(change)
            for (name, interrupt_id), row in self._interrupts.items():
                data = change(Place("interrupt", f"{name} {interrupt_id}"), row.data)
                self._interrupts[name, interrupt_id] = msgspec.structs.replace(row, data=data)
            for digest, document in self._documents.items():
                self._documents[digest] = change(Place("document", digest), document)
            self._queue.rewrite(change)
            for thread in self._threads.values():
                if thread.facts.title is not None:
                    title = change(Place("title", thread.id), thread.facts.title.encode()).decode()
                    thread.facts = msgspec.structs.replace(thread.facts, title=title)
        return None

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        with self._lock:
            if thread_id not in self._threads:
                raise refusals.unknown_thread(thread_id)
            if run_id is not None:
                self._runs.setdefault(run_id, thread_id)
            return self._queue.push(thread_id, export.QueuedInput(body=body, at=now, kind=kind))

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> builtins.list[Queued]:
        with self._lock:
            rows = self._queue.rows(thread_id, kind)
            chosen = (row for row in rows if owner in (None, self._threads[row.thread_id].owner))
            return [row for row, _ in zip(chosen, range(limit), strict=False)]

    async def queues(self, now: int) -> builtins.list[str]:
        with self._lock:
            rows = (self._threads[name] for name in self._queue.threads())
            return [row.id for row in rows if row.owner is None or row.lease_until <= now]

    async def withdraw(self, thread_id: str, position: int, *, run_id: str | None = None) -> bool:
        with self._lock:
            if not self._queue.holds(thread_id, position):
                return False
            self._queue.drop(position)
            if run_id is not None:
                self._runs.pop(run_id, None)
            return True

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    async def dequeue(self, thread_id: str) -> bytes | None:
        entries = await self.queue(thread_id, kind="input", limit=1)
        return entries[0].body if entries and await self.withdraw(thread_id, entries[0].position) else None

    # --- export ---

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                raise refusals.unknown_thread(thread_id)
            copy = self._copy(thread)
        for line in export.to_lines(copy):
            yield line

    def _copy(self, thread: ThreadState) -> export.ThreadCopy:
        tree = sorted(reach(thread).items(), key=lambda pair: pair[0].order)
        copy = export.ThreadCopy(
            thread=thread.row(),
            lineages=[
                Lineage(
                    number=lineage.number,
                    thread_id=thread.id,
                    parent=None if lineage.parent is None else lineage.parent.number,
                    cut=lineage.cut,
                )
                for lineage, _ in tree
            ],
            records=[
                msgspec.structs.replace(record, opened=(), closed=(), spent=None)
                for lineage, upto in tree
                for record in lineage.found(0, upto)
            ],
            items=[item for lineage, upto in tree for item in lineage.loose(upto)],
            interrupts=[row for (owner, _), row in self._interrupts.items() if owner == thread.id],
            queue=self._queue.copies(thread.id),
            runs=[run for run, owner in self._runs.items() if owner == thread.id],
        )
        for digest in export.named_documents(copy):
            if digest in self._documents:
                copy.documents.append(export.StoredDocument(digest=digest, data=self._documents[digest]))
        return copy

    async def import_thread(
        self,
        lines: AsyncIterator[Mapping[str, Any]],
        *,
        thread_id: str | None = None,
        change: Rewrite | None = None,
    ) -> str:
        exported = await export.from_lines(lines)
        with self._lock:
            copy = export.placed(exported, thread_id, self._lineages.__contains__, change)
            row = copy.thread
            if row.thread_id in self._threads:
                raise refusals.exists(row.thread_id)
            thread = self._new(row.thread_id, row.facts, row.created_at)
            thread.fence = max(thread.fence, row.fence)
            for lineage in copy.lineages:
                self._keep(thread, self._begin(thread, lineage))
            for record in copy.records:
                self._lineages[record.lineage].add(record)
            for item in copy.items:
                self._lineages[item.lineage].keep_loose(item)
            thread.head, thread.ordinal = row.head, row.ordinal
            thread.lineage = None if row.lineage is None else self._lineages[row.lineage]
            for interrupt in copy.interrupts:
                self._interrupts[thread.id, interrupt.interrupt_id] = interrupt
            for queued in copy.queue:
                self._queue.push(thread.id, queued)
            for run_id in copy.runs:
                self._runs.setdefault(run_id, thread.id)
            for document in copy.documents:
                self._documents.setdefault(document.digest, document.data)
            return thread.id
