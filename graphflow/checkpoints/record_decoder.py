"""Stored records and snapshots back to a machine (E3, E4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints import input_references as inputs
from graphflow.checkpoints.codec import MISFITS, unreadable
from graphflow.checkpoints.ids import long_id
from graphflow.checkpoints.record_fields import (
    FORMAT,
    FRAME_CODES,
    INPUT_BY_REFERENCE,
    MACHINE_CODES,
    Counts,
    Starts,
    forget_frames,
)
from graphflow.checkpoints.rows import Record
from graphflow.errors import CodecError
from graphflow.graph.core.channels import Update
from graphflow.graph.core.immutable import ListView, LogEntry, copied, fold, freeze
from graphflow.graph.core.machine import (
    ROOT,
    BranchState,
    Frame,
    FramePatch,
    Interrupt,
    JoinState,
    Machine,
    Opened,
    Operation,
    Patch,
    all_frames,
)
from graphflow.graph.core.patches import apply_patch, branch_of, put, with_items
from graphflow.graph.definition.old_words import renewed_code, renewed_error


class Meta(msgspec.Struct, array_like=True):
    """The small part of a record that history lists without decoding the rest."""

    source: str
    at: int
    step: int
    node: str
    next: list[str]
    run_id: Any
    error: str | None = None


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
    if meta.error is not None:
        meta.error = renewed_code(meta.error)
    return meta


_MACHINE_FIELDS = {code: field for field, code in MACHINE_CODES.items()}

_FRAME_FIELDS = {**{code: field for field, code in FRAME_CODES.items()}, INPUT_BY_REFERENCE: "input"}


def decode_entry(data: bytes, channel: str = "") -> LogEntry:
    """The entry that was encoded.

    Args:
        channel: whose it is; errors name it.

    Raises:
        CodecError: as `codec.decode`.
    """
    try:
        operation = _OPERATIONS[data[0]]
        value = codec.decode(data[1:])
        return ("+", freeze(value)) if operation == "+" else (operation, *(freeze(v) for v in value))
    except (CodecError, *codec.MISFITS) as error:
        raise codec.unreadable(error, f"an entry of {channel!r}") from error


_OPERATIONS = {ord(operation): operation for operation in "+=-*"}

_INTERRUPT_FIELDS = dict.fromkeys(Interrupt.__struct_fields__, "")


class RecordBody(msgspec.Struct, gc=False):
    """A record's data, decoded."""

    source: str
    node: str
    frame: int
    at: int
    patch: Patch
    counts: dict[tuple[int, str], int]
    """Log entries that the record adds."""
    facts: dict[str, Any] | None
    seq: int
    tail: int
    events: list[Any]
    """Compact events; see `run_log`."""
    restarts: dict[str, int] = msgspec.field(default_factory=dict)
    """Logs of the root that it writes anew → which of its entries does."""


def decode_body(data: bytes, record_id: str = "") -> RecordBody:
    """The record's content; logs are in `counts`, not in the patch.

    Args:
        record_id: whose data it is; errors name it.

    Raises:
        CodecError: the data is damaged (`store_failed`), or a newer version wrote it (`store_version_unsupported`).
    """
    try:
        return _read_body(data)
    except (CodecError, *codec.MISFITS) as error:
        raise codec.unreadable(error, f"record {record_id!r}") from error


def _read_body(data: bytes) -> RecordBody:
    # The body's length comes first: it was encoded before the events were known (see `record_fields`).
    end = 4 + int.from_bytes(data[:4], "big")
    form, *content = codec.decode(data[4:end])
    _check_format(form)
    source, node, frame, at, machine, frames, interrupts, facts = content
    seq, tail, events = codec.decode(data[end:])
    if not (type(seq) is type(tail) is int and _LISTS.issuperset(map(type, events))):
        raise TypeError("its log is not a list of events")
    complete(events)
    _check_known(machine, _MACHINE_FIELDS)
    fields = {_MACHINE_FIELDS[code]: _machine_value(code, value) for code, value in machine.items()}
    fields["last_at"] = at
    changes: dict[int, FramePatch | None] = {}
    counts: Counts = {}
    renewed: dict[str, int] = {}
    for row in frames:
        number, *rest = row
        if not rest:
            changes[number] = None
            continue
        # The encoder leaves trailing empty parts out.
        parts: list[Any] = [*rest, *({} for _ in range(8 - len(rest)))]
        frame_fields, sets, logs, merges, operations, visits, raw, inherited = parts
        update = Update({k: freeze(v) for k, v in sets.items()}, {}, merges) if sets or merges else None
        changes[number] = FramePatch(
            _frame_fields(frame_fields),
            update,
            {k: None if o is None else _decode_operation(o) for k, o in operations.items()} or None,
            visits or None,
            {k: [freeze(v) for v in values] for k, values in raw.items()} or None,
            Update({k: freeze(v) for k, v in inherited[0].items()}, {}, inherited[1]) if inherited else None,
        )
        for channel, count in logs.items():
            # A pair marks an entry that writes the list anew; see `record_encoder.restarts`.
            if isinstance(count, list):
                count, renewed[channel] = count
            counts[number, channel] = count
    opened = {key: None if i is None else decode_interrupt(i) for key, i in interrupts.items()}
    return RecordBody(
        source, node, frame, at, Patch(fields, changes, opened), counts, facts, seq, tail, events, renewed
    )


T = TypeVar("T")
LARGE = 128 * 1024
"""Bytes of records that are read without a turn of the event loop."""
SLICE = 100
"""Records that are read without a turn of the event loop: a few milliseconds."""


async def beside_loop(records: Sized, compute: Callable[..., T], *given: Any) -> T:
    """What is computed from a run's records, or from what they hold: in a thread, if they are many."""
    return compute(*given) if len(records) <= SLICE else await asyncio.to_thread(compute, *given)


async def by_size(size: int, compute: Callable[..., T], *given: Any) -> T:
    """What is computed from so many bytes: in a thread, if they are many."""
    return compute(*given) if size <= LARGE else await asyncio.to_thread(compute, *given)


async def decode_bodies(records: Sequence[Record]) -> list[RecordBody]:
    """The bodies of these records, however many and however large."""
    size = sum(len(record.data) for record in records)
    return await by_size(
        size if len(records) <= SLICE else LARGE + 1,
        lambda: [decode_body(record.data, record.id) for record in records],
    )


_LISTS = frozenset({list})


def _check_format(form: int) -> None:
    if form > FORMAT:
        raise CodecError(
            f"its format is {form}, this version knows up to {FORMAT}: update graphflow",
            code="store_version_unsupported",
        )


def named_documents(data: bytes, snapshot: bytes | None = None) -> list[str]:
    """Hashes of the documents that a record and its snapshot bring to a run; none for bytes that no journal wrote."""
    body = data[4 : 4 + int.from_bytes(data[:4], "big")]
    found = (_document_in(body, 5), _document_in(snapshot or b"", 1))
    return [digest for digest in found if digest]


def _document_in(blob: bytes, machine: int) -> str:
    """The document of the machine at this position of a blob, if it tells of one."""
    if not blob or blob[0] != codec.PLAIN:
        return ""
    try:
        # Not by the codec, which would need every type that the state has.
        digest = msgspec.msgpack.decode(blob[1:])[machine][MACHINE_CODES["document"]]
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return digest if isinstance(digest, str) else ""


def _check_known(fields: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuses fields that were added to the format after this version."""
    # A field that is skipped would be lost with the next snapshot, so a newer format is refused instead.
    if not fields.keys() <= known.keys():
        raise CodecError(
            f"it has the field {min(fields.keys() - known.keys())!r}, which a newer version wrote: update graphflow",
            code="store_version_unsupported",
        )


def complete(events: list[Any]) -> None:
    """Puts back what the end of a node run shares with its start, when that is the row before it."""
    begun: list[Any] = []
    for row in events:
        if row[0] == _NODE_END and row[3] is None:
            row[3:5] = begun[3:5]
        begun = row


_NODE_END = 2
"""Code of `node.end`, see `event_log`."""


def put_entries(patch: Patch, number: int, channel: str, entries: Sequence[LogEntry], first: int) -> None:
    """Makes a patch that was read whole: puts back the entries that its record adds to one log.

    Args:
        first: ordinal of the first of them.
    """
    change = patch.frames[number]
    assert change is not None
    fields = change.fields
    branch = fields.get("branch") if "parent" in fields else None
    inherited = 0 if branch is None else branch.inherited.get(channel, 0)
    if change.inherited is not None and inherited:
        change.inherited.logs[channel] = list(entries[:inherited])
    if len(entries) > inherited or not inherited:
        change.update = change.update or Update({}, {}, {})
        change.update.logs[channel] = list(entries[inherited:])
    if channel == "messages" and isinstance(given := fields.get("input"), inputs.Referenced):
        fields["input"] = given.resolved(entries, first)


def _machine_value(code: str, value: Any) -> Any:
    if code == "k":
        return tuple([(name, freeze(payload)) for name, payload in value])
    if code == "v":
        return {key: freeze(note) for key, note in value.items()}
    if code == "r":
        return long_id(value)
    if code == "e":
        return renewed_error(value)
    return tuple(value) if code in ("b", "a") else freeze(value) if code == "p" else value


def _frame_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    _check_known(fields, _FRAME_FIELDS)
    referred = fields.get(INPUT_BY_REFERENCE)
    out = {_FRAME_FIELDS[code]: value for code, value in fields.items()}
    if referred is not None:
        out["input"] = inputs.Referenced(freeze(referred[0]), referred[1])
    elif "input" in out:
        out["input"] = freeze(out["input"])
    if "error" in out:
        out["error"] = renewed_error(out["error"])
    if "operations" in out:
        out["operations"] = {k: _decode_operation(o) for k, o in out["operations"].items()}
    for field in _FRAME_PARTS.keys() & out.keys():
        if out[field] is not None:
            out[field] = _FRAME_PARTS[field](*out[field])
    return out


def _read_opened(node_run_id: str, items: Any, binds: str, at_once: int | None = None) -> Opened:
    return Opened(node_run_id, freeze(items), binds, at_once)


def _read_join(total: int, pending: int | Sequence[int], running: int, counted: int, waiting: int = 0) -> JoinState:
    left = range(pending, total) if isinstance(pending, int) else tuple(pending)
    return JoinState(total, left, running, counted, waiting)


def _read_branch(index: int, inherited: dict[str, int], out: Any) -> BranchState:
    return BranchState(index, inherited, freeze(out))


_FRAME_PARTS: dict[str, Callable[..., Any]] = {"opened": _read_opened, "join": _read_join, "branch": _read_branch}


def decode_interrupt(data: Mapping[str, Any]) -> Interrupt:
    """The interrupt that `interrupt_data` made plain.

    Raises:
        CodecError: `store_version_unsupported` when it has fields that this version does not know.
    """
    _check_known(data, _INTERRUPT_FIELDS)
    return Interrupt(**{k: freeze(v) for k, v in data.items()})


def _decode_operation(row: Sequence[Any]) -> Operation:
    kind, digest, effects, state, result, idempotent = row
    return Operation(kind, digest, effects, state, freeze(result), idempotent)


class Folded(msgspec.Struct):
    """A machine in the making: everything but the entries of its logs."""

    machine: Machine
    counts: Counts
    seq: int = 0
    tail: int = 0
    at: int = 0
    starts: Starts = msgspec.field(default_factory=dict)


def decode_snapshot(data: bytes, thread_id: str = "") -> Folded:
    """The machine that `encode_snapshot` was given, without its logs.

    Args:
        thread_id: whose snapshot it is; errors name it.

    Raises:
        CodecError: as `decode_body`.
    """
    try:
        return _read_snapshot(data)
    except (CodecError, *codec.MISFITS) as error:
        raise codec.unreadable(error, f"a snapshot of thread {thread_id!r}") from error


def _read_snapshot(data: bytes) -> Folded:
    form, *content = codec.decode(data)
    _check_format(form)
    fields, last_at, frames, interrupts, seq, tail, *starts = content
    counts: Counts = {}
    table: dict[int, Frame] = {}
    for number, values, state, logs, *own in frames:
        frame = Frame(number=number, **_frame_fields(values))
        if frame.branch is not None:
            writes = {k: tuple(freeze(v) for v in row) for k, row in own[0].items()} if own else None
            branch = msgspec.structs.replace(frame.branch, own=writes)
            # A branch is built on its parent, which therefore comes first in a snapshot.
            frame = branch_of(table[frame.parent], msgspec.structs.replace(frame, branch=branch))
        put(table, msgspec.structs.replace(frame, state=frame.state.evolve({k: freeze(v) for k, v in state.items()})))
        counts |= {(number, channel): count for channel, count in logs.items()}
    opened = {i["id"]: decode_interrupt(i) for i in interrupts}
    _check_known(fields, _MACHINE_FIELDS)
    values = {_MACHINE_FIELDS[code]: _machine_value(code, value) for code, value in fields.items()}
    machine = Machine(**values, last_at=last_at, frames=table, interrupts=opened)
    return Folded(machine, counts, seq, tail, last_at, *starts)


def fold_records(start: Folded, bodies: Iterable[RecordBody]) -> Folded:
    """The machine after these records."""
    machine, counts, starts = start.machine, dict(start.counts), dict(start.starts)
    seq, tail, at = start.seq, start.tail, start.at
    for body in bodies:
        machine = apply_patch(machine, body.patch)
        if closed := {number for number, change in body.patch.frames.items() if change is None}:
            forget_frames(counts, closed)
        for channel, offset in body.restarts.items():
            starts[channel] = counts.get((ROOT, channel), 0) + offset
        for key, count in body.counts.items():
            counts[key] = counts.get(key, 0) + count
        seq, tail, at = body.seq, body.tail, body.at
    return Folded(machine, counts, seq, tail, at, starts)


def wanted_logs(folded: Folded) -> list[tuple[int, str, int]]:
    """`(frame, channel, entries)` of every log that the machine needs to be whole."""
    numbers = {frame.number for frame in all_frames(folded.machine)}
    return [(number, channel, count) for (number, channel), count in folded.counts.items() if number in numbers]


def first_read(folded: Folded, number: int, channel: str) -> int:
    """From which entry on a log has to be read: the last that writes it anew, unless the input refers to an earlier one."""
    start = folded.starts.get(channel, 0) if number == ROOT else 0
    given = folded.machine.root.input if start and channel == "messages" else None
    return 0 if isinstance(given, inputs.Referenced) and given.ordinal < start else start


def with_logs(folded: Folded, logs: Mapping[tuple[int, str], Sequence[bytes]]) -> Machine:
    """The whole machine: every log's entries folded into the list that the state shows (E4).

    Args:
        logs: their entries, whole or from `first_read` on.
    """
    machine = folded.machine
    for made in filling(folded, logs):
        machine = made or machine
    return machine


PAUSE_EVERY = 200
"""Frames that are filled without a pause."""


def filling(folded: Folded, logs: Mapping[tuple[int, str], Sequence[bytes]]) -> Iterator[Machine | None]:
    """Makes the machine of `with_logs`: yields None where the caller may do something else, and at last the machine."""
    rows: dict[int, dict[str, Sequence[bytes]]] = {}
    for (number, channel), entries in logs.items():
        rows.setdefault(number, {})[channel] = entries
    if not rows:
        return
    table: dict[int, Frame] = {}
    for place, frame in enumerate(all_frames(folded.machine), 1):
        if place % PAUSE_EVERY == 0:
            yield None
        if frame.join is not None:
            # `put` appends the ended branches to the join again, so it begins empty.
            frame = msgspec.structs.replace(frame, join=msgspec.structs.replace(frame.join, ended=ListView([])))
        put(table, _with_logs(frame, table.get(frame.parent), rows.get(frame.number, {}), folded.counts))
    yield msgspec.structs.replace(folded.machine, frames=copied(table))


def _with_logs(frame: Frame, parent: Frame | None, rows: Mapping[str, Sequence[bytes]], counts: Counts) -> Frame:
    """The frame with its logs; those of a branch begin with what its parent's have."""
    given, changes, branch = frame.input, dict[str, Any](), frame.branch
    if branch is not None and parent is not None and parent.graph == frame.graph:
        given = parent.input
        changes = {key: view for key, view in parent.state.items() if isinstance(view, ListView)}
    for channel, data in rows.items():
        entries = [decode_entry(row, channel) for row in data]
        items: list[Any] = list(changes.get(channel, ()))
        for entry in entries:
            fold(items, entry)
        changes[channel] = ListView(items, len(items), counts[frame.number, channel])
        if channel == "messages" and type(given) is inputs.Referenced:
            # The log may have been read from a later entry on, so its first ordinal follows from the count.
            given = given.resolved(entries, counts[frame.number, channel] - len(entries))
        inherited = 0 if branch is None else branch.inherited.get(channel, 0)
        if branch is not None and branch.own is not None and len(entries) > inherited:
            own = with_items(None, entries[inherited:])
            branch = msgspec.structs.replace(branch, own={**branch.own, channel: own})
    if not changes and given is frame.input:
        return frame
    return msgspec.structs.replace(frame, state=frame.state.evolve(changes), input=given, branch=branch)
