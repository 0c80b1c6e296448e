"""A thread's journal: what the executor commits to, and how a thread is read back.

Snapshot policy (spec 4.2): a record carries a snapshot once the patches since the last one outweigh it, so that
stored bytes stay within a small constant of the data and loading costs what the state costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer, Lineage, Log, Record, Stored, ThreadFacts, ThreadRow
from graphflow.checkpoints.codec import MISFITS, unreadable
from graphflow.checkpoints.event_log import CODES, LIFE, pack, references, resolve_message, unpack
from graphflow.checkpoints.ids import long_id, short_id
from graphflow.checkpoints.records import (
    Body,
    Counts,
    Folded,
    Starts,
    after_commit,
    decode_body,
    decode_entry,
    decode_snapshot,
    encode_commit,
    encode_data,
    encode_snapshot,
    first_read,
    fold_records,
    opened_rows,
    restarts,
    tells_of_effect,
    wanted_logs,
    with_logs,
)
from graphflow.checkpoints.usage import spent_by
from graphflow.errors import CodecError
from graphflow.events import CheckpointCreate, Event
from graphflow.graph.core.machine import Commit, Machine
from graphflow.graph.engine.announcements import ending_event, interrupt_event, next_of
from graphflow.graph.ports import Durable, Logged

SNAPSHOT_MIN_BYTES = 8192
"""Patches lighter than this are cheaper to read than to replace."""
SNAPSHOT_GROWTH = 1.1
"""How much heavier than the last a snapshot is thought to be: one that still outweighs its patches was made for nothing."""

SOURCES = {"failed": "node", "resumed": "node"}
"""Tick sources whose name in history differs (spec 3.2)."""


class Meta(msgspec.Struct, array_like=True):
    """The small part of a record that history lists without decoding the rest."""

    source: str
    at: int
    step: int
    node: str
    next: list[str]
    run_id: Any
    error: str | None = None


_meta_encoder = msgspec.msgpack.Encoder()
_meta_decoder = msgspec.msgpack.Decoder(Meta)


def decode_meta(data: bytes, record_id: str = "") -> Meta:
    """A record's metadata, ids as text.

    Args:
        record_id: whose it is; errors name it.

    Raises:
        CodecError: it is damaged.
    """
    try:
        meta = _meta_decoder.decode(data)
    except MISFITS as error:
        raise unreadable(error, f"the metadata of record {record_id!r}") from error
    meta.run_id = long_id(meta.run_id)
    return meta


class Loaded(msgspec.Struct):
    """A thread as it was read."""

    row: ThreadRow
    machine: Machine
    chain: tuple[tuple[int, int], ...]
    counts: Counts
    seq: int
    """Number of the run's last event, `pending` included."""
    pending: list[Logged]
    """What followed the last commit, still to be kept with the next record (E1)."""
    last: Record | None
    """The record that was loaded at; None for a thread that never left this process."""
    checkpoint_id: str | None
    """The newest checkpoint at or before it."""
    bytes_since: int
    """Size of the patches since the last snapshot."""
    snapshot_bytes: int
    mark: int
    """Number of the last event that clients may have as the log has it; the rest of `pending` is sent again."""
    starts: Starts = msgspec.field(default_factory=dict)


async def load_thread(
    store: Checkpointer, thread_id: str, checkpoint_id: str | None = None, *, logs: bool = True
) -> Loaded | None:
    """The thread at its head or at a checkpoint; None when the store has no such thread or checkpoint.

    Without `logs` the lists of append channels are left out, so that it costs the same however long they are: enough to
    go back to a checkpoint or to fork at it, not to run.
    """
    stored = await store.load(thread_id, checkpoint_id)
    if stored is None:
        return None
    start = Folded(Machine(), {}) if stored.snapshot is None else decode_snapshot(stored.snapshot, thread_id)
    folded = fold_records(start, (decode_body(record.data, record.id) for record in stored.records))
    wanted = [Log(n, key, count, first_read(folded, n, key)) for n, key, count in wanted_logs(folded)] if logs else []
    rows = await store.read_logs(stored.chain, wanted) if wanted else []
    entries = {(log.frame, log.channel): found for log, found in zip(wanted, rows, strict=True)}
    machine = with_logs(folded, entries)
    going_on = checkpoint_id is None and logs
    pending = await _pending(store, stored, machine, folded.seq) if going_on else []
    last_seq = pending[-1][0].seq if pending else folded.seq
    return Loaded(
        stored.thread,
        machine,
        stored.chain,
        folded.counts,
        last_seq,
        pending,
        stored.target,
        await _newest_checkpoint(store, stored),
        sum(len(record.data) for record in stored.records),
        len(stored.snapshot or b""),
        min(folded.seq + folded.tail, last_seq),
        folded.starts,
    )


async def _newest_checkpoint(store: Checkpointer, stored: Stored) -> str | None:
    for record in (stored.target, *reversed(stored.records)):
        if record is not None and record.checkpoint:
            return record.id
    listed = await store.list(stored.thread.thread_id, limit=1)
    return listed[0].id if listed else None


async def _pending(store: Checkpointer, stored: Stored, machine: Machine, seq: int) -> list[Logged]:
    """What followed the last commits and no record keeps: a function of the records, numbered as it was (E1)."""
    bodies = [(record, decode_body(record.data, record.id)) for record in stored.records]
    said = _said(body for _, body in bodies)
    if not any(_settled(record, body, said) for record, body in bodies[1:]):
        lineage, last = stored.chain[-1] if stored.chain else (0, 0)
        first = bodies[0][0].ordinal if bodies else last + 1
        earlier = await store.read_records(
            stored.thread.thread_id, lineage=lineage, after=max(0, first - PAGE), upto=first - 1
        )
        bodies = [*((record, decode_body(record.data, record.id)) for record in earlier), *bodies]
    return unsaid(bodies, machine, seq)


def unsaid(
    bodies: Sequence[tuple[Record, Body]], machine: Machine, seq: int, parent: str | None = None
) -> list[Logged]:
    """What followed the last of these records of one run and none of them keeps, numbered from `seq` on (E1).

    Args:
        machine: after the last of them; its logs and states are not looked at.
        parent: the checkpoint before the first of them.
    """
    if not bodies:
        return []
    said = _said(body for _, body in bodies)
    since = max((i for i, (record, body) in enumerate(bodies) if _settled(record, body, said)), default=0)
    parent = next((record.id for record, body in reversed(bodies[:since]) if was_checkpoint(record, body)), parent)
    events: list[tuple[Event, int]] = []
    for record, body in bodies[since:]:
        if (shown := was_checkpoint(record, body)) and record.id not in said:
            meta = decode_meta(record.meta, record.id)
            create = CheckpointCreate(checkpoint_id=record.id, parent_id=parent, step=meta.step, next=meta.next)
            events.append((create, body.at))
        parent = record.id if shown else parent
        opened = (i for i in body.patch.interrupts.values() if i is not None and i.id not in said)
        events += [(interrupt_event(i), body.at) for i in opened]
    last_body = bodies[-1][1]
    if (end := ending_event(machine, last_body.source)) is not None:
        events.append((end, last_body.at))
    stamp = max((last_body.at + row[2] for row in last_body.events if row[0] != LIFE), default=0)
    pruned = max(0, last_body.tail - len(events))  # events of records that are gone: the oldest ones
    for number, (event, at) in enumerate(events, seq + pruned + 1):
        event.seq, event.timestamp = number, max(at, stamp)
    return [(event, event.seq) for event, _ in events]


def was_checkpoint(record: Record, body: Body) -> bool:
    """Whether it is a checkpoint, or was one until it was pruned from the history (its row stays as a part of later ones')."""
    kept_signal = body.source == "signal" and not body.patch.frames
    return record.checkpoint or not (body.source in NO_CHECKPOINT or kept_signal)


def _said(bodies: Iterable[Body]) -> set[str]:
    """Ids of the checkpoints and interrupts that these records' events announce."""
    out: set[str] = set()
    for body in bodies:
        for row in body.events:
            if row[0] == CODES["checkpoint.create"]:
                out.add(long_id(row[3]))
            elif row[0] == CODES["interrupt.request"]:
                out.add(row[3]["interruptId"])
    return out


NO_CHECKPOINT = frozenset({"operation", "paused", "recovered", "resumed", "retry", "undo"})
"""Sources of records that history never showed; beside them a signal that waits for its node."""
PAGE = 600
"""More than the executor ever leaves unacknowledged."""
STARTS_RUN = frozenset({"input", "edit", "rewind", "fork", "migrate"})


def _settled(record: Record, body: Body, said: set[str]) -> bool:
    """Whether nothing before this record can be unannounced: it is announced itself, or begins a run."""
    return body.source in STARTS_RUN or record.id in said


AWAITED: dict[str, Any] = {"awaited": True}
"""For stores that have a `hurry`."""


class Prepared(msgspec.Struct):
    commit: Commit
    body: bytes
    items: tuple[Any, ...]


class ThreadJournal:
    """The journal of one life of one thread.

    Args:
        row: the thread as it was taken; its fence goes with every commit.
        begins: a lineage that the first commit begins (a new thread, a rewind, an edit).
        loaded: what was read of the thread; None for a new one.
        keep: the thread stays taken when a run ends; somebody goes on with it at once.
    """

    def __init__(
        self,
        store: Checkpointer,
        row: ThreadRow,
        facts: ThreadFacts,
        *,
        loaded: Loaded | None = None,
        begins: Lineage | None = None,
        keep: bool = False,
    ) -> None:
        self.store, self.row, self.facts = store, row, facts
        self._begins = begins
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
        """Position of the queued entry that the next record takes up, and with it out of the queue."""
        self._mark = loaded.mark if loaded is not None else 0
        self._begun = False
        self._released = keep
        self._keep = keep
        self._last: Durable | None = None
        self._hurry: Callable[[], None] | None = getattr(store, "hurry", None)

    def hurry(self) -> None:
        """The run goes no further before its last record is durable: a store that can writes it at once."""
        if self._hurry is not None:
            self._hurry()

    def prepare(self, commit: Commit) -> Prepared:
        return Prepared(commit, *encode_commit(commit, self._counts))

    def write(self, prepared: Prepared, events: list[Logged], seq: int, tail: int, release: bool) -> Durable:
        commit = prepared.commit
        machine = commit.machine
        assert machine is not None
        packed = pack(events, commit, seq, self._counts)
        if not self._begun:
            self._begun = True
            packed.insert(0, [LIFE, seq - self._mark, self.row.fence])
        data = encode_data(prepared.body, seq, tail, packed)
        restarts(commit.patch.frames, self._counts, self._starts)
        after_commit(commit.patch.frames, self._counts)
        self._bytes_since += len(data)
        snapshot = self._snapshot(machine, seq, tail) if commit.checkpoint else None
        self._ordinal += 1
        interrupts = commit.patch.interrupts
        record = Record(
            id=commit.id,
            lineage=self.lineage,
            ordinal=self._ordinal,
            checkpoint=commit.checkpoint,
            meta=encode_meta(commit, machine),
            data=data,
            items=prepared.items,
            snapshot=snapshot,
            opened=opened_rows(commit, self.row.thread_id, self.facts.agent_key) if interrupts else (),
            closed=tuple([key for key, value in interrupts.items() if value is None]) if interrupts else (),
            effect=tells_of_effect(commit),
            spent=spent_by(commit.spent, commit.at, commit.facts, self.facts.agent_key) if commit.spent else None,
        )
        release = release and not self._keep
        status, run_id = machine.status, machine.run_id
        if status != self.facts.status or run_id != self.facts.run_id or commit.at - self.facts.updated_at > 1000:
            self.facts = msgspec.structs.replace(self.facts, status=status, run_id=run_id, updated_at=commit.at)
        begins, self._begins = self._begins, None
        consumes, self.consumes = self.consumes, None
        durable = self.store.commit(
            self.row.thread_id, self.row.fence, self.head, (record,),
            facts=self.facts, begins=begins, release=release, consumes=consumes,
            **(AWAITED if self._hurry is not None and machine.durability == "sync" else {}),
        )  # fmt: skip
        self.head, self._last = commit.id, durable
        self._released = release or self._keep
        if commit.checkpoint:
            self.checkpoint_id = commit.id
        return durable

    def _snapshot(self, machine: Machine, seq: int, tail: int) -> bytes | None:
        if self._bytes_since < max(SNAPSHOT_MIN_BYTES, self._snapshot_bytes * SNAPSHOT_GROWTH):
            return None
        data = encode_snapshot(machine, seq, tail, self._counts, self._starts)
        self._snapshot_bytes = len(data)
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

    async def release(self) -> None:
        """Gives the thread back, unless the last record did; a record that was not kept did not."""
        lost = self._last is not None and self._last.error is not None and not self._keep
        if lost or not self._released:
            self._released = True
            await self.store.release(self.row.thread_id, self.row.fence)

    async def flush(self) -> None:
        if self._last is not None:
            await self._last


def encode_meta(commit: Commit, machine: Machine) -> bytes:
    """The fields of `Meta`; a plain tuple is quicker to write."""
    source = commit.source
    error = machine.error.get("code") if machine.status == "failed" and machine.error else None
    return _meta_encoder.encode(
        (
            SOURCES.get(source, source),
            commit.at,
            machine.steps,
            commit.node,
            next_of(commit),
            short_id(machine.run_id),
            error,
        )
    )


async def read_events(
    store: Checkpointer, loaded_chain: Sequence[tuple[int, int]], records: Sequence[Record]
) -> list[Logged]:
    """The stored log of these records, oldest first, texts read from the state's logs."""
    bodies = [decode_body(record.data, record.id) for record in records]
    texts = await _read_references(store, loaded_chain, bodies)
    out: list[Logged] = []
    for record, body in zip(records, bodies, strict=True):
        run_id = decode_meta(record.meta, record.id).run_id
        try:
            out += unpack(
                body.events,
                body.seq,
                body.at,
                run_id,
                lambda ref: resolve_message(texts[ref[0], ref[1]][ref[2]], ref[3]),
            )
        except (CodecError, *MISFITS) as error:
            raise unreadable(error, f"the log of record {record.id!r}") from error
    return out


async def _read_references(
    store: Checkpointer, chain: Sequence[tuple[int, int]], bodies: Sequence[Body]
) -> dict[tuple[int, str], dict[int, Any]]:
    wanted: dict[tuple[int, str], set[int]] = {}
    for body in bodies:
        for frame, channel, ordinal, _ in references(body.events):
            wanted.setdefault((frame, channel), set()).add(ordinal)
    out: dict[tuple[int, str], dict[int, Any]] = {}
    for (frame, channel), ordinals in wanted.items():
        first = min(ordinals)
        rows = await store.read_items(chain, frame, channel, max(ordinals) + 1, start=first)
        out[frame, channel] = {o: decode_entry(rows[o - first], channel)[1] for o in ordinals}
    return out
