"""Records as bytes: a commit of the engine to a row of the store, and rows back to a machine (E3, E4).

A record's `data` is `[format, tick source, node, frame, time, machine, frames, interrupts, facts]`, then
`[seq, tail, events]`: the first part is known, and known to be storable, before anything is sent.
State values are in it; entries of append channels are rows of their own and only counted here.
Field codes are part of the stored format: never reuse one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints import codec
from graphflow.checkpoints import input_references as inputs
from graphflow.checkpoints.checkpointer import Item, OpenInterrupt
from graphflow.checkpoints.codec import storable
from graphflow.checkpoints.ids import long_id, short_id
from graphflow.errors import CodecError
from graphflow.graph.core.channels import ListView, LogEntry, State, Update, fold, freeze
from graphflow.graph.core.frame_table import copied
from graphflow.graph.core.machine import (
    ROOT,
    Branch,
    Commit,
    Frame,
    Interrupt,
    Join,
    Machine,
    Opened,
    Operation,
    all_frames,
)
from graphflow.graph.core.patches import FramePatch, Patch, apply_patch, branch_of, put, with_items

FORMAT = 1

MACHINE_CODES = {
    "status": "s", "run_id": "r", "limits": "l", "usage": "u", "before": "b", "after": "a", "params": "p", "steps": "n",
    "begun": "g", "frames_made": "f", "active_ms": "m", "wrapping": "w", "finish_reason": "y", "error": "e", "durability": "d",
    "reuse": "x", "signals": "k", "document": "h", "granted": "t",
}  # fmt: skip
"""`last_at` is the record's own time."""
FRAME_CODES = {
    "graph": "g", "parent": "q", "path": "p", "node": "n", "visit": "v", "attempt": "a", "status": "s", "visits": "c", "input": "i",
    "scope": "x", "error": "e", "operations": "o", "passed": "b", "until": "u", "opened": "d", "join": "k", "branch": "r",
}  # fmt: skip
INPUT_BY_REFERENCE = "j"
"""Instead of `i`: `[input without its query, ordinal of the query's message in the frame's log]`; see `inputs`."""
_SCALARS = frozenset({str, float, bool, type(None), bytes, int})
_MACHINE_FIELDS = {code: field for field, code in MACHINE_CODES.items()}
_FRAME_FIELDS = {**{code: field for field, code in FRAME_CODES.items()}, INPUT_BY_REFERENCE: "input"}

Starts = dict[str, int]
"""Channel of the root → ordinal of the entry that wrote its list anew last; what comes before it is dead."""
Counts = dict[tuple[int, str], int]
"""(frame, channel) → log entries so far."""


# --- writing -------------------------------------------------------------------------------------


def encode_entry(entry: LogEntry, channel: str) -> bytes:
    """One log entry: its operation, then the item (and position)."""
    if entry[0] == "+":
        return b"+" + codec.encode(entry[1], channel=channel)
    return str(entry[0]).encode() + codec.encode(list(entry[1:]), channel=channel)


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
                if channel == "messages" and "i" in fields:
                    _refer(fields, inputs.by_entries(change.fields["input"], entries, first))
                items += [Item(number, channel, first + i, encode_entry(e, channel)) for i, e in enumerate(entries)]
                logs[channel] = _counted(entries) if number == ROOT else len(entries)
        operations = {}
        if change.operations:
            operations = {k: None if o is None else _operation(o) for k, o in change.operations.items()}
        row: list[Any] = [number, fields, sets, logs, merges, operations, change.visits]
        if change.raw or change.inherited is not None:
            raw = {k: storable(v, channel=k) for k, v in (change.raw or {}).items()}
            row += [raw, _inherited(number, change.inherited, logs, items)]
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


def _inherited(number: int, update: Update | None, logs: dict[str, Any], items: list[Item]) -> list[Any]:
    """What an opening branch inherits, as data; its log entries are the first rows of the frame's logs."""
    if update is None:
        return []
    for channel, entries in update.logs.items():
        items += [Item(number, channel, i, encode_entry(e, channel)) for i, e in enumerate(entries)]
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
        return value is old or (type(value) is dict and not value and not old)
    return bool(value == old)


_USER_FIELDS = frozenset({"input", "scope", "error", "operations", "params", "opened", "join", "branch"})


def _refer(fields: dict[str, Any], referred: list[Any] | None) -> None:
    """Puts a reference in the place of the input, if there is one."""
    if referred is not None:
        del fields["i"]
        fields[INPUT_BY_REFERENCE] = referred


_PLAIN_FIELDS = frozenset(FRAME_CODES.values()) - {
    FRAME_CODES[f] for f in ("operations", "input", "scope", "error", "opened", "join", "branch")
}
"""Codes of fields whose values are stored as they are."""


def _frame_value(field: str, value: Any) -> Any:
    if FRAME_CODES[field] in _PLAIN_FIELDS:
        return value
    if field == "operations":
        return {k: _operation(o) for k, o in value.items()}
    if field in ("input", "scope", "error"):
        return storable(value, channel=field)
    if value is None:
        return None
    match value:
        case Opened(node_run_id, items, binds):
            return [node_run_id, storable(items, channel="the items of a map"), binds]
        case Join(total, pending, running, counted):
            return [total, pending.start if isinstance(pending, range) else pending, running, counted]
        case Branch(index, inherited, out):
            return [index, inherited, storable(out, channel="out")]
    return value


def _operation(operation: Operation) -> list[Any]:
    kind, digest, effects, state, result, idempotent = msgspec.structs.astuple(operation)
    return [kind, digest, effects, state, storable(result, channel="a recorded operation"), idempotent]


def interrupt_data(interrupt: Interrupt) -> dict[str, Any]:
    """The interrupt as plain data, defaults left out."""
    fields = msgspec.structs.asdict(interrupt)
    defaults = _INTERRUPT_DEFAULTS
    return {k: storable(v, channel=k) for k, v in fields.items() if k not in defaults or defaults[k] != v}


_INTERRUPT_FIELDS = dict.fromkeys(Interrupt.__struct_fields__, "")
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
    if "r" in machine:
        machine["r"] = short_id(machine["r"])
    if "p" in machine:
        machine["p"] = storable(machine["p"], channel="params")
    if "k" in machine:
        machine["k"] = storable(machine["k"], channel="signals")
    frames, items = encode_frames(patch.frames, counts, before)
    interrupts = {}
    if patch.interrupts:
        interrupts = {key: None if i is None else interrupt_data(i) for key, i in patch.interrupts.items()}
    facts = commit.facts
    if facts is not None and not _USER_FACTS.isdisjoint(facts):
        facts = storable(facts, channel="a recorded operation")
    body = [FORMAT, commit.source, commit.node, commit.frame, commit.at, machine, frames, interrupts, facts]
    return codec.encode_parts(body), items


_USER_FACTS = frozenset({"arguments", "done", "moves", "seen"})
"""Facts of a record that hold a user's values."""


def tells_of_effect(commit: Commit) -> bool:
    """Whether it bears on a `write` effect: its intent, its outcome, its undoing, or that it did not happen."""
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
    closed: set[int] = set()
    for number, change in frames.items():
        if change is None:
            closed.add(number)
        elif change.update is not None or change.inherited is not None:
            for update in (change.inherited, change.update):
                for channel, entries in {} if update is None else update.logs.items():
                    counts[number, channel] = counts.get((number, channel), 0) + len(entries)
    _forget(counts, closed)


def _forget(counts: Counts, closed: set[int]) -> None:
    if closed:
        for key in [key for key in counts if key[0] in closed]:
            del counts[key]


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
    body = [FORMAT, storable(fields), machine.last_at, frames, interrupts, seq, tail]
    return codec.encode_parts([*body, starts] if starts else body)


def _snapshot_of(frame: Frame, machine: Machine, logs: dict[str, int]) -> list[Any]:
    """`[number, fields, values, log lengths, a branch's writes]`; of a branch without what it has of its parent."""
    parent = machine.frames.get(frame.parent) if frame.branch is not None else None
    shares = parent is not None and parent.graph == frame.graph
    values = {
        code: _frame_value(field, value)
        for (field, code, default), value in zip(_FRAME_ROW, msgspec.structs.astuple(frame), strict=True)
        if code and value != default and not (shares and field in _FROM_PARENT)
    }
    if "messages" in logs and "i" in values:
        _refer(values, inputs.by_view(frame.input, frame.state.get("messages")))
    above = parent.state if parent is not None and shares else State()
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
    restarts: dict[str, int] = msgspec.field(default_factory=dict)
    """Logs of the root that it writes anew → which of its entries does."""


def encode_data(body: bytes, seq: int, tail: int, events: Sequence[Any]) -> bytes:
    """A record's data: the length of the body, the body, then the numbers and events that came with it."""
    return len(body).to_bytes(4, "big") + body + codec.encode_parts([seq, tail, events])


def decode_body(data: bytes, record_id: str = "") -> Body:
    """The record's content; logs are in `counts`, not in the patch.

    Args:
        record_id: whose data it is; errors name it.

    Raises:
        CodecError: the data is damaged (`store_failed`), or a newer version wrote it (`store_newer`).
    """
    try:
        return _read_body(data)
    except (CodecError, *codec.MISFITS) as error:
        raise codec.unreadable(error, f"record {record_id!r}") from error


def _read_body(data: bytes) -> Body:
    end = 4 + int.from_bytes(data[:4], "big")
    form, *content = codec.decode(data[4:end])
    _check_format(form)
    source, node, frame, at, machine, frames, interrupts, facts = content
    seq, tail, events = codec.decode(data[end:])
    if not (type(seq) is type(tail) is int and _LISTS.issuperset(map(type, events))):
        raise TypeError("its log is no list of events")
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
            if isinstance(count, list):
                count, renewed[channel] = count
            counts[number, channel] = count
    opened = {key: None if i is None else decode_interrupt(i) for key, i in interrupts.items()}
    return Body(source, node, frame, at, Patch(fields, changes, opened), counts, facts, seq, tail, events, renewed)


_LISTS = frozenset({list})


def _check_format(form: int) -> None:
    if form > FORMAT:
        raise CodecError(
            f"its format is {form}, this version knows up to {FORMAT}: update graphflow", code="store_newer"
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
    if not fields.keys() <= known.keys():
        raise CodecError(
            f"it has the field {min(fields.keys() - known.keys())!r}, which a newer version wrote: update graphflow",
            code="store_newer",
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
    if code == "r":
        return long_id(value)
    return tuple(value) if code in ("b", "a") else freeze(value) if code == "p" else value


def _frame_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    _check_known(fields, _FRAME_FIELDS)
    referred = fields.get(INPUT_BY_REFERENCE)
    out = {_FRAME_FIELDS[code]: value for code, value in fields.items()}
    if referred is not None:
        out["input"] = inputs.Referenced(freeze(referred[0]), referred[1])
    elif "input" in out:
        out["input"] = freeze(out["input"])
    if "operations" in out:
        out["operations"] = {k: _decode_operation(o) for k, o in out["operations"].items()}
    for field in _FRAME_PARTS.keys() & out.keys():
        if out[field] is not None:
            out[field] = _FRAME_PARTS[field](*out[field])
    return out


def _read_opened(node_run_id: str, items: Any, binds: str) -> Opened:
    return Opened(node_run_id, freeze(items), binds)


def _read_join(total: int, pending: int | Sequence[int], running: int, counted: int) -> Join:
    left = range(pending, total) if isinstance(pending, int) else tuple(pending)
    return Join(total, left, running, counted)


def _read_branch(index: int, inherited: dict[str, int], out: Any) -> Branch:
    return Branch(index, inherited, freeze(out))


_FRAME_PARTS: dict[str, Callable[..., Any]] = {"opened": _read_opened, "join": _read_join, "branch": _read_branch}


def decode_interrupt(data: Mapping[str, Any]) -> Interrupt:
    """The interrupt that `interrupt_data` made plain.

    Raises:
        CodecError: `store_newer` when it has fields that this version does not know.
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
            frame = branch_of(table[frame.parent], msgspec.structs.replace(frame, branch=branch))
        put(table, msgspec.structs.replace(frame, state=frame.state.evolve({k: freeze(v) for k, v in state.items()})))
        counts |= {(number, channel): count for channel, count in logs.items()}
    opened = {i["id"]: decode_interrupt(i) for i in interrupts}
    _check_known(fields, _MACHINE_FIELDS)
    values = {_MACHINE_FIELDS[code]: _machine_value(code, value) for code, value in fields.items()}
    machine = Machine(**values, last_at=last_at, frames=table, interrupts=opened)
    return Folded(machine, counts, seq, tail, last_at, *starts)


def fold_records(start: Folded, bodies: Iterable[Body]) -> Folded:
    """The machine after these records."""
    machine, counts, starts = start.machine, dict(start.counts), dict(start.starts)
    seq, tail, at = start.seq, start.tail, start.at
    for body in bodies:
        machine = apply_patch(machine, body.patch)
        _forget(counts, {number for number, change in body.patch.frames.items() if change is None})
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
    rows: dict[int, dict[str, Sequence[bytes]]] = {}
    for (number, channel), entries in logs.items():
        rows.setdefault(number, {})[channel] = entries
    if not rows:
        return folded.machine
    table: dict[int, Frame] = {}
    for frame in all_frames(folded.machine):
        if frame.join is not None:
            frame = msgspec.structs.replace(frame, join=msgspec.structs.replace(frame.join, ended=ListView([])))
        put(table, _with_logs(frame, table.get(frame.parent), rows.get(frame.number, {}), folded.counts))
    return msgspec.structs.replace(folded.machine, frames=copied(table))


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
            given = given.resolved(entries, counts[frame.number, channel] - len(entries))
        inherited = 0 if branch is None else branch.inherited.get(channel, 0)
        if branch is not None and branch.own is not None and len(entries) > inherited:
            own = with_items(None, entries[inherited:])
            branch = msgspec.structs.replace(branch, own={**branch.own, channel: own})
    if not changes and given is frame.input:
        return frame
    return msgspec.structs.replace(frame, state=frame.state.evolve(changes), input=given, branch=branch)
