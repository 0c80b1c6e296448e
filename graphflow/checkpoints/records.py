"""Records as bytes: a commit of the engine to a row of the store, and rows back to a machine (E3, E4).

A record's `data` is `[format, tick source, node, frame, time, machine, frames, interrupts, facts]`, then
`[seq, tail, events]`: the first part is known, and known to be storable, before anything is sent.
State values are in it; entries of append channels are rows of their own and only counted here.
Field codes are part of the stored format: never reuse one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import codec, inputs
from graphflow.checkpoints.codec import storable
from graphflow.checkpoints.port import Item, OpenInterrupt
from graphflow.graph.machine import Commit, Frame, FramePatch, Interrupt, Machine, Operation, Patch, apply_patch
from graphflow.graph.state import ListView, LogEntry, State, Update, fold, freeze

FORMAT = 1

MACHINE_CODES = {
    "status": "s", "run_id": "r", "limits": "l", "usage": "u", "before": "b", "after": "a", "params": "p", "steps": "n",
    "begun": "g", "frames_made": "f", "active_ms": "m", "wrapping": "w", "finish_reason": "y", "error": "e", "durability": "d",
}  # fmt: skip
"""`last_at` is the record's own time."""
FRAME_CODES = {
    "graph": "g", "parent": "q", "path": "p", "node": "n", "visit": "v", "attempt": "a", "status": "s", "visits": "c", "input": "i",
    "scope": "x", "error": "e", "operations": "o", "passed": "b", "until": "u",
}  # fmt: skip
INPUT_BY_REFERENCE = "j"
"""Instead of `i`: `[input without its query, ordinal of the query's message in the frame's log]`; see `inputs`."""
_MACHINE_FIELDS = {code: field for field, code in MACHINE_CODES.items()}
_FRAME_FIELDS = {code: field for field, code in FRAME_CODES.items()}

Counts = dict[tuple[int, str], int]
"""(frame, channel) → log entries so far."""


# --- writing -------------------------------------------------------------------------------------


def encode_entry(entry: LogEntry, channel: str) -> bytes:
    """One log entry: its operation, then the item (and position)."""
    if entry[0] == "+":
        return b"+" + codec.encode(entry[1], channel=channel)
    return str(entry[0]).encode() + codec.encode(list(entry[1:]), channel=channel)


def decode_entry(data: bytes) -> LogEntry:
    operation = chr(data[0])
    value = codec.decode(data[1:])
    return ("+", freeze(value)) if operation == "+" else (operation, *(freeze(v) for v in value))


def encode_frames(
    frames: Mapping[int, FramePatch | None], counts: Counts, before: Machine | None = None
) -> tuple[list[Any], tuple[Item, ...]]:
    """The frames' changes to `before` as data, and the log rows beside them; `counts` goes on with the new rows.

    Raises:
        CodecError: names the channel and the type of the value that can't be stored.
    """
    out: list[Any] = []
    items: list[Item] = []
    for number, change in frames.items():
        if change is None:
            out.append([number])
            continue
        changed = change.fields
        if before is not None and len(changed) >= MANY and number in before.frames:
            changed = _changed(changed, before.frames[number])
        fields = {FRAME_CODES[field]: value for field, value in changed.items()}
        if not _PLAIN_FIELDS.issuperset(fields):
            fields = {FRAME_CODES[field]: _frame_value(field, value) for field, value in changed.items()}
        sets: dict[str, Any] = {}
        merges: dict[str, Any] = {}
        logs: dict[str, int] = {}
        if change.update is not None:
            sets = {k: storable(v, channel=k) for k, v in change.update.sets.items()}
            if change.update.merges:
                merges = {k: storable(v, channel=k) for k, v in change.update.merges.items()}
            for channel, entries in change.update.logs.items():
                first = counts.get((number, channel), 0)
                if channel == "messages" and "i" in fields:
                    _refer(fields, inputs.by_entries(change.fields["input"], entries, first))
                items += [Item(number, channel, first + i, encode_entry(e, channel)) for i, e in enumerate(entries)]
                logs[channel] = len(entries)
        operations = {}
        if change.operations:
            operations = {k: None if o is None else _operation(o) for k, o in change.operations.items()}
        row: list[Any] = [number, fields, sets, logs, merges, operations, change.visits or {}]
        while len(row) > 2 and not row[-1]:
            row.pop()
        out.append(row)
    return out, tuple(items)


MANY = 5
"""Fields from which on a change is looked through for those that stay as they were: a new input, the end of a run."""


def _changed(fields: Mapping[str, Any], before: Machine | Frame) -> dict[str, Any]:
    """The fields that differ from what was."""
    return {k: v for k, v in fields.items() if not _same(k, v, getattr(before, k))}


def _same(field: str, value: Any, old: Any) -> bool:
    """A user's values are not compared: their `==` is not ours to call."""
    if field in _USER_FIELDS:
        return value is old or (type(value) is dict and not value and not old)
    return bool(value == old)


_USER_FIELDS = frozenset({"input", "scope", "error", "operations", "params"})


def _refer(fields: dict[str, Any], referred: list[Any] | None) -> None:
    """Puts a reference in the place of the input, if there is one."""
    if referred is not None:
        del fields["i"]
        fields[INPUT_BY_REFERENCE] = referred


_PLAIN_FIELDS = frozenset(FRAME_CODES.values()) - {FRAME_CODES[f] for f in ("operations", "input", "scope", "error")}
"""Codes of fields that never hold a user's value."""


def _frame_value(field: str, value: Any) -> Any:
    if field == "operations":
        return {k: _operation(o) for k, o in value.items()}
    return storable(value, channel=field) if field in ("input", "scope", "error") else value


def _operation(operation: Operation) -> list[Any]:
    kind, digest, effects, state, result, idempotent = msgspec.structs.astuple(operation)
    return [kind, digest, effects, state, storable(result, channel="a recorded operation"), idempotent]


def interrupt_data(interrupt: Interrupt) -> dict[str, Any]:
    """The interrupt as plain data, defaults left out."""
    fields = msgspec.structs.asdict(interrupt)
    defaults = _INTERRUPT_DEFAULTS
    return {k: storable(v, channel=k) for k, v in fields.items() if k not in defaults or defaults[k] != v}


_INTERRUPT_DEFAULTS = {
    f.name: f.default for f in msgspec.structs.fields(Interrupt) if f.default is not msgspec.NODEFAULT
}


def encode_commit(commit: Commit, counts: Counts) -> tuple[bytes, tuple[Item, ...]]:
    """The record's body, encoded, and its log rows.

    Raises:
        CodecError: names the channel and the type of the value that can't be stored.
    """
    patch = commit.patch
    changed, before = patch.machine, commit.before
    if before is not None and len(changed) >= MANY:
        changed = _changed(changed, before)
    machine = {MACHINE_CODES[field]: value for field, value in changed.items() if field != "last_at"}
    if "p" in machine:
        machine["p"] = storable(machine["p"], channel="params")
    frames, items = encode_frames(patch.frames, counts, before)
    interrupts = {}
    if patch.interrupts:
        interrupts = {key: None if i is None else interrupt_data(i) for key, i in patch.interrupts.items()}
    body = [FORMAT, commit.source, commit.node, commit.frame, commit.at, machine, frames, interrupts, commit.facts]
    return codec.encode_parts(body), items


def after_commit(frames: Mapping[int, FramePatch | None], counts: Counts) -> None:
    """Moves the counts on, once the commit is surely written; a closed frame's logs are gone."""
    for number, change in frames.items():
        if change is None:
            for key in [k for k in counts if k[0] == number]:
                del counts[key]
        elif change.update is not None:
            for channel, entries in change.update.logs.items():
                key = (number, channel)
                counts[key] = counts.get(key, 0) + len(entries)


def opened_rows(commit: Commit, thread_id: str, agent_key: str | None) -> tuple[OpenInterrupt, ...]:
    """The rows of the inbox that this commit opens."""
    return tuple(
        OpenInterrupt(
            interrupt_id=i.id,
            thread_id=thread_id,
            run_id=i.run_id,
            kind=i.kind,
            node=i.node,
            owner=i.owner,
            role=i.role,
            agent_key=agent_key,
            opened_at=i.opened_at,
            due_at=i.expires_at,
            data=codec.encode(interrupt_data(i)),
        )
        for i in commit.patch.interrupts.values()
        if i is not None
    )


def encode_snapshot(machine: Machine, seq: int, tail: int, counts: Counts) -> bytes:
    """The whole machine but its logs, which are only counted."""
    fields = {
        code: getattr(machine, field)
        for field, code in MACHINE_CODES.items()
        if getattr(machine, field) != _MACHINE_DEFAULTS.get(field, ...)
    }
    frames = []
    for frame in machine.frames.values():
        values = {
            code: _frame_value(field, getattr(frame, field))
            for field, code in FRAME_CODES.items()
            if getattr(frame, field) != _FRAME_DEFAULTS.get(field, ...)
        }
        if (frame.number, "messages") in counts and "i" in values:
            _refer(values, inputs.by_view(frame.input, frame.state.get("messages")))
        state = {k: v for k, v in frame.state.items() if (frame.number, k) not in counts}
        logs = {channel: n for (number, channel), n in counts.items() if number == frame.number}
        frames.append([frame.number, values, state, logs])
    interrupts = [interrupt_data(i) for i in machine.interrupts.values()]
    return codec.encode([FORMAT, fields, machine.last_at, frames, interrupts, seq, tail])


def _defaults(struct: type[msgspec.Struct]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if field.default is not msgspec.NODEFAULT:
            out[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            out[field.name] = field.default_factory()
    return out


_MACHINE_DEFAULTS, _FRAME_DEFAULTS = _defaults(Machine), _defaults(Frame)


# --- reading -------------------------------------------------------------------------------------


class Body(msgspec.Struct):
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


def encode_data(body: bytes, seq: int, tail: int, events: Sequence[Any]) -> bytes:
    """A record's data: the length of the body, the body, then the numbers and events that came with it."""
    return len(body).to_bytes(4, "big") + body + codec.encode_parts([seq, tail, events])


def decode_body(data: bytes) -> Body:
    """The record's content; logs are in `counts`, not in the patch."""
    end = 4 + int.from_bytes(data[:4], "big")
    _, source, node, frame, at, machine, frames, interrupts, facts = codec.decode(data[4:end])
    seq, tail, events = codec.decode(data[end:])
    fields = {_MACHINE_FIELDS[code]: _machine_value(code, value) for code, value in machine.items()}
    fields["last_at"] = at
    changes: dict[int, FramePatch | None] = {}
    counts: Counts = {}
    for row in frames:
        number, *rest = row
        if not rest:
            changes[number] = None
            continue
        parts: list[dict[str, Any]] = [*rest, *({} for _ in range(6 - len(rest)))]
        frame_fields, sets, logs, merges, operations, visits = parts
        update = Update({k: freeze(v) for k, v in sets.items()}, {}, merges) if sets or merges else None
        changes[number] = FramePatch(
            _frame_fields(frame_fields),
            update,
            {k: None if o is None else _decode_operation(o) for k, o in operations.items()} or None,
            visits or None,
        )
        for channel, count in logs.items():
            counts[number, channel] = count
    opened = {key: None if i is None else decode_interrupt(i) for key, i in interrupts.items()}
    return Body(source, node, frame, at, Patch(fields, changes, opened), counts, facts, seq, tail, events)


def _machine_value(code: str, value: Any) -> Any:
    return tuple(value) if code in ("b", "a") else freeze(value) if code == "p" else value


def _frame_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    referred = fields.get(INPUT_BY_REFERENCE)
    out = {_FRAME_FIELDS[code]: value for code, value in fields.items() if code != INPUT_BY_REFERENCE}
    if referred is not None:
        out["input"] = inputs.Referenced(freeze(referred[0]), referred[1])
    elif "input" in out:
        out["input"] = freeze(out["input"])
    if "operations" in out:
        out["operations"] = {k: _decode_operation(o) for k, o in out["operations"].items()}
    return out


def decode_interrupt(data: Mapping[str, Any]) -> Interrupt:
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


def decode_snapshot(data: bytes) -> Folded:
    _, fields, last_at, frames, interrupts, seq, tail = codec.decode(data)
    counts: Counts = {}
    table: dict[int, Frame] = {}
    for number, values, state, logs in frames:
        table[number] = Frame(
            number=number, **_frame_fields(values), state=State({k: freeze(v) for k, v in state.items()})
        )
        counts |= {(number, channel): count for channel, count in logs.items()}
    opened = {i["id"]: decode_interrupt(i) for i in interrupts}
    values = {_MACHINE_FIELDS[code]: _machine_value(code, value) for code, value in fields.items()}
    machine = Machine(**values, last_at=last_at, frames=table, interrupts=opened)
    return Folded(machine, counts, seq, tail, last_at)


def fold_records(start: Folded, bodies: Iterable[Body]) -> Folded:
    """The machine after these records."""
    machine, counts = start.machine, dict(start.counts)
    seq, tail, at = start.seq, start.tail, start.at
    for body in bodies:
        machine = apply_patch(machine, body.patch)
        for number, change in body.patch.frames.items():
            if change is None:
                for key in [k for k in counts if k[0] == number]:
                    del counts[key]
        for key, count in body.counts.items():
            counts[key] = counts.get(key, 0) + count
        seq, tail, at = body.seq, body.tail, body.at
    return Folded(machine, counts, seq, tail, at)


def with_logs(folded: Folded, logs: Mapping[tuple[int, str], Sequence[bytes]]) -> Machine:
    """The whole machine: every log's entries folded into the list that the state shows (E4)."""
    frames = dict(folded.machine.frames)
    for (number, channel), rows in logs.items():
        items: list[Any] = []
        entries = [decode_entry(row) for row in rows]
        for entry in entries:
            fold(items, entry)
        frame = frames[number]
        view = ListView(items, len(items), folded.counts[number, channel])
        given = frame.input
        if channel == "messages" and type(given) is inputs.Referenced:
            given = given.resolved(entries)
        frames[number] = msgspec.structs.replace(frame, state=frame.state.evolve({channel: view}), input=given)
    return msgspec.structs.replace(folded.machine, frames=frames)
