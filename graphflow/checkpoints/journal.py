"""A thread's journal: what the executor commits to, and how a thread is read back.

Snapshot policy (spec 4.2): a record carries a snapshot once the patches since the last one outweigh it, so that
stored bytes stay within a small constant of the data and loading costs what the state costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints.checkpointer import Checkpointer, eager_commits
from graphflow.checkpoints.event_log import EPOCH, pack
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.media.large_bytes import Found, TakenBytes, read_bytes, stored_media
from graphflow.checkpoints.record_encoder import (
    after_commit,
    encode_commit,
    encode_data,
    encode_meta,
    encode_snapshot,
    has_write_effect,
    opened_rows,
    restarts,
)
from graphflow.checkpoints.record_fields import Counts, Starts
from graphflow.checkpoints.rows import Lineage, Record, ThreadFacts, ThreadRow
from graphflow.checkpoints.usage import spent_by
from graphflow.content import LARGE_BYTES
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.machine import Machine
from graphflow.graph.engine.ports import Durable, Logged

T = TypeVar("T")
_FROM_OUTSIDE = frozenset({"input", "answer", "signal"})
"""Sources of records whose values no node has made."""
SNAPSHOT_MIN_BYTES = 8192
"""Patches lighter than this are cheaper to read than to replace."""
SNAPSHOT_FRAMES = 1_000
"""Frames beyond which no snapshot is made, because it would hold the event loop: a wide fan is loaded from its patches,
which say what its snapshot would."""
SNAPSHOT_GROWTH = 1.1
"""How much heavier than the last a snapshot is thought to be: one that still outweighs its patches was made for nothing."""


class PreparedRecord(msgspec.Struct):
    commit: Commit
    body: bytes
    items: tuple[Any, ...]
    media: bool
    """Messages with media are in it, perhaps with bytes that do not belong there; see `without_bytes`."""
    new: Found | None = None
    """The large bytes that it brings."""


class _Promise:
    """The promise of a commit that is made once its last record is known; nothing waits before that."""

    def __init__(self) -> None:
        self._made: Durable | None = None
        self._callbacks: list[Callable[[], None]] = []

    def keep(self, made: Durable) -> None:
        self._made = made
        for callback in self._callbacks:
            made.when_done(callback)

    @property
    def done(self) -> bool:
        return self._made is not None and self._made.done

    @property
    def error(self) -> BaseException | None:
        return None if self._made is None else self._made.error

    def when_done(self, callback: Callable[[], None]) -> None:
        if self._made is None:
            self._callbacks.append(callback)
        else:
            self._made.when_done(callback)

    def __await__(self) -> Any:
        assert self._made is not None
        return self._made.__await__()


class _Gathered:
    """Records that become one commit after this head."""

    def __init__(self, head: str | None) -> None:
        self.head, self.promise = head, _Promise()
        self.records: list[Record] = []
        self.options: dict[str, Any] = {}

    def add(self, record: Record, options: dict[str, Any]) -> Durable:
        self.records.append(record)
        # The newest facts, and whatever else one of the records needs.
        for name, value in options.items():
            if name == "facts" or value or name not in self.options:
                self.options[name] = value
        return self.promise


class ThreadJournal:
    """The journal of one epoch of one thread.

    Args:
        row: the thread as it was taken; its fence goes with every commit.
        begins: a lineage that the first commit begins (a new thread, a rewind, an edit).
        closes: ids of the open interrupts that the first commit leaves behind.
        loaded: what was read of the thread; None for a new one.
        keep: the thread stays taken when a run ends; the caller goes on with it at once.
    """

    def __init__(
        self,
        store: Checkpointer,
        row: ThreadRow,
        facts: ThreadFacts,
        *,
        loaded: Loaded | None = None,
        begins: Lineage | None = None,
        closes: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        self.store, self.row, self.facts = store, row, facts
        self._begins, self._closes = begins, closes
        self.head = row.head
        self.lineage = begins.number if begins is not None else row.lineage or 0
        self._ordinal = 0 if begins is not None else row.ordinal
        chain = loaded.chain if loaded is not None else ()
        self._chain = chain if begins is not None else tuple(entry for entry in chain if entry[0] != self.lineage)
        self._counts: Counts = dict(loaded.counts) if loaded is not None else {}
        self._starts: Starts = dict(loaded.starts) if loaded is not None else {}
        self._bytes_since = loaded.bytes_since if loaded is not None else 0
        self._snapshot_bytes = loaded.snapshot_bytes if loaded is not None else 0
        self.checkpoint_id: str | None = None
        """The newest checkpoint; the parent of the next."""
        if loaded is not None:
            self.checkpoint_id = loaded.checkpoint_id
        self.consumes: int | None = None
        """Position of the queued entry that leaves the queue with the next record."""
        self._mark = loaded.mark if loaded is not None else 0
        self._begun = False
        self._released = keep
        self._keep = keep
        self._last: Durable | None = None
        self._gathered: _Gathered | None = None
        self._found: Found | None = None
        """The large bytes that the thread has stored; None until somebody asks."""

    @contextmanager
    def together(self) -> Iterator[None]:
        gathered = self._gathered = _Gathered(self.head)
        try:
            yield
        finally:
            self._gathered = None
            if gathered.records:
                gathered.promise.keep(
                    self.store.commit(
                        self.row.thread_id, self.row.fence, gathered.head, gathered.records, **gathered.options
                    )
                )

    def hurry(self) -> None:
        """The run goes no further before its last record is durable: a store that can writes it at once."""
        if (eager := eager_commits(self.store)) is not None:
            eager.hurry()

    def prepare(self, commit: Commit, taken: TakenBytes | None = None) -> PreparedRecord:
        met = codec.media_met[0]
        body, items = encode_commit(commit, self._counts)
        if taken is not None:
            return PreparedRecord(commit, body, (*items, *taken.items), False, taken.new)
        # What comes from outside may have messages in their JSON form, which are no messages yet.
        is_large = len(body) > LARGE_BYTES and commit.source in _FROM_OUTSIDE
        return PreparedRecord(commit, body, items, is_large or met is not codec.media_met[0])

    def without_bytes(self, value: T, machine: Machine) -> tuple[T, TakenBytes]:
        taken = TakenBytes(lambda: self._stored(machine))
        return taken.value(value), taken

    def _stored(self, machine: Machine) -> Found:
        if self._found is None:
            self._found = stored_media(machine)
        return self._found

    async def read_bytes(self, name: str, machine: Machine) -> bytes | None:
        number = self._stored(machine).get(name)
        if number is None:
            return None
        await self.flush()  # reads see what is durable
        return await read_bytes(self.store, self.chain, name, number)

    def write(self, prepared: PreparedRecord, events: list[Logged], seq: int, tail: int, release: bool) -> Durable:
        commit = prepared.commit
        machine = commit.machine
        assert machine is not None
        # The counts are those before this commit; `after_commit` moves them on once the record has its data.
        packed = pack(events, commit, seq, self._counts)
        # The epoch is marked in its first record, so that readers know from which number on clients of older epochs may
        # differ (E1).
        if not self._begun:
            self._begun = True
            packed.insert(0, [EPOCH, seq - self._mark, self.row.fence])
        data = encode_data(prepared.body, seq, tail, packed)
        if prepared.new:
            self._found = {**self._stored(machine), **prepared.new}
        restarts(commit.patch.frames, self._counts, self._starts)
        after_commit(commit.patch.frames, self._counts)
        self._bytes_since += len(data)
        snapshot = None
        if commit.checkpoint and self._bytes_since >= max(SNAPSHOT_MIN_BYTES, self._snapshot_bytes * SNAPSHOT_GROWTH):
            snapshot = self._snapshot(machine, seq, tail)
        self._ordinal += 1
        interrupts = commit.patch.interrupts
        closed = tuple([key for key, value in interrupts.items() if value is None]) if interrupts else ()
        if self._closes:
            closed, self._closes = tuple({*closed, *self._closes}), ()
        record = Record(
            id=commit.id,
            lineage=self.lineage,
            ordinal=self._ordinal,
            checkpoint=commit.checkpoint,
            effect=has_write_effect(commit),
            meta=encode_meta(commit, machine),
            data=data,
            items=prepared.items,
            snapshot=snapshot,
            opened=opened_rows(commit, self.row.thread_id, self.facts.agent_key) if interrupts else (),
            closed=closed,
            spent=spent_by(commit.spent, commit.at, commit.facts, self.facts.agent_key) if commit.spent else None,
        )
        release = release and not self._keep
        status, run_id = machine.status, machine.run_id
        # The thread row is written anew at most once a second while nothing but its time changes: every indexed column
        # that changes costs a page.
        if status != self.facts.status or run_id != self.facts.run_id or commit.at - self.facts.updated_at > 1000:
            self.facts = msgspec.structs.replace(self.facts, status=status, run_id=run_id, updated_at=commit.at)
        begins, self._begins = self._begins, None
        consumes, self.consumes = self.consumes, None
        options: Any = {"facts": self.facts, "begins": begins, "release": release, "consumes": consumes}
        if machine.durability == "sync" and eager_commits(self.store) is not None:
            options["awaited"] = True
        if self._gathered is not None:
            durable = self._gathered.add(record, options)
        else:
            durable = self.store.commit(self.row.thread_id, self.row.fence, self.head, (record,), **options)
        self.head, self._last = commit.id, durable
        self._released = release or self._keep
        if commit.checkpoint:
            self.checkpoint_id = commit.id
        return durable

    def _snapshot(self, machine: Machine, seq: int, tail: int) -> bytes | None:
        frames = machine.frames.values()
        if sum(1 + (0 if frame.join is None else len(frame.join.ended)) for frame in frames) > SNAPSHOT_FRAMES:
            self._snapshot_bytes = self._bytes_since  # looked at again once the patches have outgrown that
            return None
        data = encode_snapshot(machine, seq, tail, self._counts, self._starts)
        # Remembered even if the snapshot is dropped: the next attempt waits until the patches outweigh this size.
        self._snapshot_bytes = len(data)
        # A snapshot that weighs more than the patches it replaces makes loading slower and the store larger.
        if len(data) > self._bytes_since:
            return None
        self._bytes_since = 0
        return data

    def as_loaded(self, machine: Machine, seq: int, pending: list[Logged]) -> Loaded:
        """The thread as `load_thread` would find it, from what this process knows already."""
        row = msgspec.structs.replace(
            self.row, facts=self.facts, head=self.head, lineage=self.lineage, ordinal=self._ordinal, owner=None
        )
        return Loaded(
            row,
            machine,
            self.chain,
            self._counts,
            seq,
            pending,
            None,
            self.checkpoint_id,
            self._bytes_since,
            self._snapshot_bytes,
            seq,
            self._starts,
        )

    @property
    def chain(self) -> tuple[tuple[int, int], ...]:
        """(lineage, last ordinal) from the oldest lineage to the present."""
        return (*self._chain, (self.lineage, self._ordinal))

    @property
    def owes_release(self) -> bool:
        """Whether the thread is still to be given back: the last record did not do it, or was not kept."""
        # A commit that failed did not give the thread back, whatever it was told to do.
        lost = self._last is not None and self._last.error is not None and not self._keep
        return lost or not self._released

    async def release(self) -> None:
        """Gives the thread back, unless that is done."""
        if self.owes_release:
            self._released = True
            await self.store.release(self.row.thread_id, self.row.fence)

    async def flush(self) -> None:
        if self._last is not None:
            await self._last
