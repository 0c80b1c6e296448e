"""What a commit of the engine changed, as the bytes of a record and its log rows (E3, E4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints import input_references as inputs
from graphflow.checkpoints.codec import storable
from graphflow.checkpoints.ids import short_id
from graphflow.checkpoints.record_fields import (
    FORMAT,
    FRAME_CODES,
    INPUT_BY_REFERENCE,
    MACHINE_CODES,
    Counts,
    Starts,
    forget_frames,
)
from graphflow.checkpoints.rows import LogItem, OpenInterrupt
from graphflow.graph.core.channels import Update
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.immutable import LogEntry, State
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
    all_frames,
)
from graphflow.graph.engine.announcements import next_of

_SCALARS = frozenset({str, float, bool, type(None), bytes, int})


def encode_entry(entry: LogEntry, channel: str) -> bytes:
    """One log entry: its operation, then the item (and position)."""
    if entry[0] == "+":
        return b"+" + codec.encode(entry[1], channel=channel)
    return str(entry[0]).encode() + codec.encode(list(entry[1:]), channel=channel)


def encode_frames(
    frames: Mapping[int, FramePatch | None], counts: Counts, before: Machine | None = None
) -> tuple[list[Any], tuple[LogItem, ...]]:
    """The frames' changes to `before` as data, and the log rows beside them; `counts` goes on with the new rows.

    Raises:
        CodecError: names the channel and the type of the value that can't be stored.
    """
    out: list[Any] = []
    items: list[LogItem] = []
    for number, change in frames.items():
        if change is None:
            out.append([number])
            continue
        changed = change.fields
        # Few fields are cheaper to store than to compare.
        if before is not None and len(changed) >= MANY and number in before.frames:
            changed = _changed(changed, before.frames[number])
        fields = {FRAME_CODES[field]: value for field, value in changed.items()}
        if not _WRITERS.keys().isdisjoint(changed):
            for field, write in _WRITERS.items():
                if changed.get(field) is not None:
                    fields[FRAME_CODES[field]] = write(changed[field])
        update = change.update
        sets: dict[str, Any] = {}
        logs: dict[str, Any] = {}
        merges: dict[str, Any] = {}
        if update is not None:
            sets = update.sets
            if not _SCALARS.issuperset(map(type, sets.values())):
                sets = {k: storable(v, channel=k) for k, v in sets.items()}
            if update.merges:
                merges = {k: storable(v, channel=k) for k, v in update.merges.items()}
            for channel, entries in update.logs.items():
                first = first_ordinal(counts, number, channel, change)
                # The query is stored once: as a message, which the input then refers to (E1).
                if channel == "messages" and "i" in fields:
                    referred = inputs.by_entries(change.fields["input"], entries, first)
                    if referred is not None:
                        fields[INPUT_BY_REFERENCE] = referred
                        del fields["i"]
                # Only the root's logs are read from where they were last written anew (`first_read`).
                logs[channel] = _counted(entries) if number == ROOT else len(entries)
                items += [LogItem(number, channel, first + i, encode_entry(e, channel)) for i, e in enumerate(entries)]
        operations = {}
        if change.operations:
            operations = {k: None if o is None else _operation(o) for k, o in change.operations.items()}
        row: list[Any] = [number, fields, sets, logs, merges, operations, change.visits]
        if change.raw or change.inherited is not None:
            raw = {k: storable(v, channel=k) for k, v in (change.raw or {}).items()}
            row += [raw, _inherited(number, change.inherited, logs, items)]
        # Trailing empty parts are left out: most rows have a field or two, and are written at every step.
        elif not change.visits:
            del row[6]
            while len(row) > 2 and not row[-1]:
                row.pop()
        out.append(row)
    return out, tuple(items)


def first_ordinal(counts: Counts, number: int, channel: str, change: FramePatch) -> int:
    """The ordinal of the first entry that the patch's update adds to a log; what a branch inherits comes before it."""
    inherited = () if change.inherited is None else change.inherited.logs.get(channel, ())
    return counts.get((number, channel), 0) + len(inherited)


def _counted(entries: Sequence[LogEntry]) -> int | list[int]:
    """How many entries; `[how many, offset of the last that writes the list anew]` where one does."""
    for offset in range(len(entries) - 1, -1, -1):
        if entries[offset][0] == "*":
            return [len(entries), offset]
    return len(entries)


def restarts(frames: Mapping[int, FramePatch | None], counts: Counts, starts: Starts) -> None:
    """Moves the starts of the root's logs on; `counts` is from before the commit."""
    change = frames.get(ROOT)
    if change is not None and change.update is not None:
        for channel, entries in change.update.logs.items():
            counted = _counted(entries)
            if isinstance(counted, list):
                starts[channel] = counts.get((ROOT, channel), 0) + counted[1]


def _inherited(number: int, update: Update | None, logs: dict[str, Any], items: list[LogItem]) -> list[Any]:
    """What an opening branch inherits, as data; its log entries are the first rows of the frame's logs."""
    if update is None:
        return []
    for channel, entries in update.logs.items():
        items += [LogItem(number, channel, i, encode_entry(e, channel)) for i, e in enumerate(entries)]
        logs[channel] = logs.get(channel, 0) + len(entries)
    values = {k: storable(v, channel=k) for k, v in update.sets.items()}
    return [values, {k: storable(v, channel=k) for k, v in update.merges.items()}]


MANY = 5
"""Fields from which on a change is looked through for those that stay as they were: a new input, the end of a run."""


def _changed(fields: Mapping[str, Any], before: Machine | Frame) -> dict[str, Any]:
    """The fields that differ from what was."""
    return {k: v for k, v in fields.items() if not _same(k, v, getattr(before, k))}


def _same(field: str, value: Any, old: Any) -> bool:
    """A user's values are not compared: their `==` is not ours to call."""
    if field in _USER_FIELDS:
        # Two empty dicts are equal without a look at any value.
        return value is old or (type(value) is dict and not value and not old)
    return bool(value == old)


_USER_FIELDS = frozenset({"input", "scope", "error", "operations", "params", "opened", "join", "branch", "kept"})


def _operations(operations: Mapping[str, Operation]) -> dict[str, Any]:
    return {k: _operation(o) for k, o in operations.items()}


def _opened(opened: Opened) -> list[Any]:
    row = [opened.node_run_id, storable(opened.items, channel="the items of a map"), opened.binds]
    return row if opened.at_once is None else [*row, opened.at_once]


def _join(join: JoinState) -> list[Any]:
    pending = join.pending
    row = [join.total, pending.start if isinstance(pending, range) else pending, join.running, join.counted]
    return [*row, join.waiting] if join.waiting else row


def _branch(branch: BranchState) -> list[Any]:
    return [branch.index, branch.inherited, storable(branch.out, channel="out")]


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "operations": _operations,
    "input": partial(storable, channel="input"),
    "scope": partial(storable, channel="scope"),
    "error": partial(storable, channel="error"),
    "opened": _opened,
    "join": _join,
    "branch": _branch,
}
"""The frame's fields whose values, where there is one, are not stored as they are."""


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


def encode_commit(commit: Commit, counts: Counts) -> tuple[bytes, tuple[LogItem, ...]]:
    """The record's body, encoded, and its log rows.

    Raises:
        CodecError: names the channel and the type of the value that can't be stored.
    """
    patch = commit.patch
    changed, before = patch.machine, commit.before
    if before is not None and len(changed) >= MANY:
        changed = _changed(changed, before)
    machine = {MACHINE_CODES[field]: value for field, value in changed.items() if field != "last_at"}
    if "r" in machine:
        machine["r"] = short_id(machine["r"])
    if "p" in machine:
        machine["p"] = storable(machine["p"], channel="params")
    if "o" in machine:
        machine["o"] = storable(machine["o"], channel="the options of a request")
    if "k" in machine:
        machine["k"] = storable(machine["k"], channel="signals")
    if "v" in machine:
        machine["v"] = storable(machine["v"], channel="notes of tools")
    frames, items = encode_frames(patch.frames, counts, before)
    interrupts = {}
    if patch.interrupts:
        interrupts = {key: None if i is None else interrupt_data(i) for key, i in patch.interrupts.items()}
    facts = commit.facts
    # Facts are plain but for these keys, so the walk is skipped for most records.
    if facts is not None and not _USER_FACTS.isdisjoint(facts):
        facts = storable(facts, channel="a recorded operation")
    body = [FORMAT, commit.source, commit.node, commit.frame, commit.at, machine, frames, interrupts, facts]
    return codec.encode_parts(body), items


_USER_FACTS = frozenset({"arguments", "done", "moves", "seen"})
"""Facts of a record that hold a user's values."""


def has_write_effect(commit: Commit) -> bool:
    """Whether it concerns a `write` effect: its intent, its outcome, its undoing, or that it did not happen."""
    # A write that ends its node has no record of its own: the node's commit names it in the fact `done` (E5).
    if commit.facts is not None and "done" in commit.facts:
        return True
    for change in commit.patch.frames.values():
        if change is not None and change.operations:
            for operation in change.operations.values():
                if operation is None or operation.effects == "write":
                    return True
    return False


def after_commit(frames: Mapping[int, FramePatch | None], counts: Counts) -> None:
    """Moves the counts on, once the commit is surely written; a closed frame's logs are gone."""
    closed = {number for number, change in frames.items() if change is None}
    for number, change in frames.items():
        if change is not None and (change.update is not None or change.inherited is not None):
            for update in (change.inherited, change.update):
                for channel, entries in {} if update is None else update.logs.items():
                    counts[number, channel] = counts.get((number, channel), 0) + len(entries)
    if closed:
        forget_frames(counts, closed)


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


def encode_snapshot(machine: Machine, seq: int, tail: int, counts: Counts, starts: Starts | None = None) -> bytes:
    """The whole machine but its logs, which are only counted."""
    fields = {
        code: getattr(machine, field)
        for field, code in MACHINE_CODES.items()
        if getattr(machine, field) != _MACHINE_DEFAULTS.get(field, ...)
    }
    if "r" in fields:
        fields["r"] = short_id(fields["r"])
    logs: dict[int, dict[str, int]] = {}
    for (number, channel), count in counts.items():
        logs.setdefault(number, {})[channel] = count
    frames = [_snapshot_of(frame, machine, logs.get(frame.number, {})) for frame in all_frames(machine)]
    interrupts = [interrupt_data(i) for i in machine.interrupts.values()]
    # Without append channels: their entries are rows that a snapshot need not repeat.
    body = [FORMAT, storable(fields), machine.last_at, frames, interrupts, seq, tail]
    return codec.encode_parts([*body, starts] if starts else body)


def _snapshot_of(frame: Frame, machine: Machine, logs: dict[str, int]) -> list[Any]:
    """`[number, fields, values, log lengths, a branch's writes]`; of a branch without what it has of its parent."""
    parent = machine.frames.get(frame.parent) if frame.branch is not None else None
    shares = parent is not None and parent.graph == frame.graph
    values = {
        code: _WRITERS[field](value) if value is not None and field in _WRITERS else value
        for (field, code, default), value in zip(_FRAME_ROW, msgspec.structs.astuple(frame), strict=True)
        if code and value != default and not (shares and field in _FROM_PARENT)
    }
    if "messages" in logs and "i" in values:
        referred = inputs.by_view(frame.input, frame.state.get("messages"))
        if referred is not None:
            values[INPUT_BY_REFERENCE] = referred
            del values["i"]
    above = parent.state if parent is not None and shares else State()
    # By identity: a branch shares its parent's values until it writes them.
    state = {k: storable(v, channel=k) for k, v in frame.state.items() if k not in logs and v is not above.get(k, ...)}
    row: list[Any] = [frame.number, values, state, logs]
    if frame.branch is not None and frame.branch.own is not None:
        own = frame.branch.own
        row.append({k: [storable(v, channel=k) for v in values] for k, values in own.items() if k not in logs})
    return row


_FROM_PARENT = ("input", "scope")
"""Fields that a branch has of its parent."""


def _defaults(struct: type[msgspec.Struct]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if field.default is not msgspec.NODEFAULT:
            out[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            out[field.name] = field.default_factory()
    return out


_MACHINE_DEFAULTS, _FRAME_DEFAULTS = _defaults(Machine), _defaults(Frame)

_FRAME_ROW = [(field, FRAME_CODES.get(field, ""), _FRAME_DEFAULTS.get(field, ...)) for field in Frame.__struct_fields__]
"""`(field, code, default)` in the order of the struct; without a code are `number` and `state`."""


def encode_data(body: bytes, seq: int, tail: int, events: Sequence[Any]) -> bytes:
    """A record's data: the length of the body, the body, then the numbers and events that came with it."""
    return len(body).to_bytes(4, "big") + body + codec.encode_parts([seq, tail, events])


SOURCES = {"failed": "node", "resumed": "node"}
"""Tick sources whose name in history differs (spec 3.2)."""

_meta_encoder = msgspec.msgpack.Encoder()


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
