"""The stored form of a run's log (E1): compact events, with references to text that the state holds.

An event is `[code, seq, ms, …]`, its number and time relative to the record's. The frequent ones are positional (the end
of a node run that began just before names it no more); the rest carry their fields as a map (those of runs without the
record's own run id), and a block also how many numbers it spans. A text, argument or result that the same record appends
to a log of the state is stored as `[frame, channel, ordinal, what]` instead of twice.
Codes are part of the stored format: never reuse one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.codec import MISFITS, unreadable
from graphflow.checkpoints.ids import long_id, short_id
from graphflow.checkpoints.record_decoder import RecordBody, beside_loop, decode_bodies, decode_entry, decode_meta
from graphflow.checkpoints.record_encoder import first_ordinal
from graphflow.checkpoints.record_fields import Counts
from graphflow.checkpoints.rows import Record
from graphflow.errors import CodecError
from graphflow.events import (
    EVENT_TYPES,
    CheckpointCreate,
    ContentSnapshot,
    Event,
    NodeEnd,
    NodeStart,
    ReasoningSnapshot,
    RequestQuery,
    RunCancel,
    RunComplete,
    RunError,
    RunResume,
    RunStart,
    RunWaiting,
    ToolResultEvent,
    ToolSnapshot,
)
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.machine import Machine
from graphflow.graph.definition.old_words import renewed_error
from graphflow.graph.engine.announcements import ending_event, interrupt_event
from graphflow.graph.engine.ports import Logged
from graphflow.json_data import plain
from graphflow.messages import AIMessage, HumanMessage, Message, ToolMessage

CODES: dict[str, int] = {
    "node.start": 1, "node.end": 2, "checkpoint.create": 3, "node.error": 4, "interrupt.request": 5, "interrupt.resolve": 6,
    "run.start": 7, "run.complete": 8, "run.cancel": 9, "run.error": 10, "run.waiting": 11, "run.resume": 12,
    "request.query": 13, "request.submit": 14, "request.upload": 15, "chat.start": 16, "content.snapshot": 17,
    "reasoning.snapshot": 18, "tool.snapshot": 19, "tool.result": 20, "action.snapshot": 21, "action.param": 22,
    "action.result": 23, "source.snapshot": 24, "plan.create": 25, "plan.update": 26, "task.start": 27, "task.complete": 28,
    "task.cancel": 29, "task.fail": 30, "context.compact": 31,
}  # fmt: skip
_TYPES = {code: EVENT_TYPES[tag] for tag, code in CODES.items()}
_OF_RUNS = frozenset({RunStart, RunResume, RunWaiting, RunComplete, RunCancel, RunError})
"""Events whose run id is stored only where it is not the record's own."""
EPOCH = 0
"""Code of the row `[0, seq - mark, fence]` that begins the first record of an epoch: `mark` is the last number that
clients of earlier epochs have as the log has it (E1)."""

Ref = list[Any]
"""`[frame, channel, ordinal, what]`; `what` is a field of the message, or the position of a tool call."""
Resolve = Callable[[Ref], str]


def pack(events: Sequence[Logged], commit: Commit, seq: int, counts: Counts) -> list[Any]:
    """The events as the record keeps them; `seq` is the record's own last number, `counts` from before it."""
    if not events:
        return []
    held = None
    out: list[Any] = []
    at = commit.at
    for event, first in events:
        kind, back, later = type(event), seq - event.seq, event.timestamp - at
        if kind is NodeStart:
            assert isinstance(event, NodeStart)
            # Short rows for the usual case: an attempt of 1 and no path are left out.
            row = [1, back, later, event.node, event.node_run_id, event.step]
            if event.path is not None:
                row += (event.attempt, event.path)
            elif event.attempt != 1:
                row.append(event.attempt)
        elif kind is NodeEnd:
            assert isinstance(event, NodeEnd)
            last = out[-1] if out else None
            if last is not None and last[0] == 1 and last[4] == event.node_run_id:
                row = [2, back, later, None, None, event.duration_ms]  # `record_decoder.complete` puts both back
            else:
                row = [2, back, later, event.node, event.node_run_id, event.duration_ms]
            if event.usage is not None:
                row += (event.writes, event.usage)
            elif event.writes is not None:
                row.append(event.writes)
        elif kind is CheckpointCreate:
            assert isinstance(event, CheckpointCreate)
            ids = short_id(event.checkpoint_id), short_id(event.parent_id)
            row = [3, back, later, ids[0], event.step, event.next, ids[1]]
        else:
            if held is None:
                held = _Held(commit, counts)
            row = [CODES[event.type], back, later, _fields(event, held)]
            if first != event.seq:
                row.append(event.seq - first)
        out.append(row)
    return out


class _Held:
    """Texts that a commit appends to logs of the state: text → reference."""

    def __init__(self, commit: Commit, counts: Counts) -> None:
        self.run_id = commit.machine.run_id if commit.machine is not None else None
        self.texts: dict[tuple[str, str], Ref] = {}
        for number, change in commit.patch.frames.items():
            if change is None or change.update is None:
                continue
            for channel, entries in change.update.logs.items():
                first = first_ordinal(counts, number, channel, change)
                for offset, entry in enumerate(entries):
                    if entry[0] == "+":
                        self._add(entry[1], [number, channel, first + offset])

    def _add(self, item: Any, place: Ref) -> None:
        # Keyed by kind or call id as well: the same text may stand in two places, and each event refers to its own.
        if isinstance(item, AIMessage):
            self._add_text("content", item, place)
            self.texts["reasoning", item.reasoning] = [*place, "reasoning"]
            for position, call in enumerate(item.tool_calls):
                self.texts[call.id, call.arguments] = [*place, position]
        elif isinstance(item, ToolMessage):
            self._add_text(f"result:{item.tool_call_id}", item, place)
        elif isinstance(item, HumanMessage):
            self._add_text("query", item, place)

    def _add_text(self, kind: str, message: Message, place: Ref) -> None:
        if isinstance(message.content, str):
            self.texts[kind, message.content] = [*place, "content"]
        else:
            self.texts[kind, message.text] = [*place, "text"]

    def reference(self, event: Event) -> tuple[str, Ref] | None:
        """(field, reference) of an event's long text, if the state holds it."""
        if isinstance(event, ContentSnapshot):
            found, field = self.texts.get(("content", event.text)), "text"
        elif isinstance(event, ReasoningSnapshot):
            found, field = self.texts.get(("reasoning", event.text)), "text"
        elif isinstance(event, ToolSnapshot):
            found, field = self.texts.get((event.tool_id, event.arguments or "")), "arguments"
        elif isinstance(event, ToolResultEvent):
            found, field = self.texts.get((f"result:{event.tool_id}", event.result)), "result"
        elif isinstance(event, RequestQuery):
            found, field = self.texts.get(("query", event.message)), "message"
        else:
            return None
        return None if found is None else (field, found)


def _fields(event: Event, held: _Held) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(event, enc_hook=plain)
    for key in ("type", "seq", "timestamp"):
        data.pop(key, None)
    if type(event) in _OF_RUNS and data["runId"] == held.run_id:
        del data["runId"]
    if (reference := held.reference(event)) is not None:
        field, place = reference
        del data[field]
        data["$"] = [field, *place]
    return data


def references(packed: Sequence[Any]) -> Iterator[Ref]:
    """Every reference in a record's events, for reading the rows that they name."""
    for row in packed:
        if row[0] > 3 and "$" in row[3]:
            yield row[3]["$"][1:]


def unpack(packed: Sequence[Any], seq: int, at: int, run_id: str, resolve: Resolve) -> list[Logged]:
    """The events of a record, in their order, as they were sent (blocks as snapshots).

    Args:
        run_id: the record's own.

    Raises:
        CodecError: `store_version_unsupported` for an event that this version does not know.
    """
    out = []
    for row in packed:
        if row[0] == EPOCH:
            continue
        event = _event(row, seq, at, run_id, resolve)
        span = row[4] if row[0] > 3 and len(row) > 4 else 0
        out.append((event, event.seq - span))
    return out


def _event(row: Sequence[Any], seq: int, at: int, run_id: str, resolve: Resolve) -> Event:
    code, number, time, *rest = row
    event: Event
    if code == 1:
        node, run, step, attempt, path = _padded(rest)
        event = NodeStart(node=node, node_run_id=run, step=step, attempt=attempt or 1, path=path)
    elif code == 2:
        node, run, duration, writes, usage = _padded(rest)
        event = NodeEnd(node=node, node_run_id=run, duration_ms=duration, writes=writes, usage=usage)
    elif code == 3:
        event = CheckpointCreate(checkpoint_id=long_id(rest[0]), step=rest[1], next=rest[2], parent_id=long_id(rest[3]))
    else:
        fields: Mapping[str, Any] = rest[0]
        if "$" in fields:
            field, *place = fields["$"]
            fields = {**{k: v for k, v in fields.items() if k != "$"}, field: resolve(place)}
        if code not in _TYPES:
            raise CodecError(
                f"an event has the unknown code {code}: a newer version wrote it, update graphflow",
                code="store_version_unsupported",
            )
        cls = _TYPES[code]
        if "error" in fields:
            fields = {**fields, "error": renewed_error(fields["error"])}
        if cls in _OF_RUNS and "runId" not in fields:
            fields = {**fields, "runId": run_id}
        event = msgspec.convert({**fields, "type": cls.__struct_config__.tag}, cls)
    event.seq, event.timestamp = seq - number, at + time
    return event


def _padded(fields: list[Any], length: int = 5) -> list[Any]:
    return [*fields, *[None] * (length - len(fields))]


def resolve_message(item: Any, what: Any) -> str:
    """The text that a reference names in a message."""
    if isinstance(what, int):
        return str(item.tool_calls[what].arguments)
    return str(getattr(item, what))


# --- reading a stored log ---


def unannounced_events(
    bodies: Sequence[tuple[Record, RecordBody]], machine: Machine, seq: int, parent: str | None = None
) -> list[Logged]:
    """What followed the last of these records of one run and none of them keeps, numbered from `seq` on (E1).

    Args:
        machine: after the last of them; its logs and states are not looked at.
        parent: the checkpoint before the first of them.
    """
    if not bodies:
        return []
    # Only checkpoints and interrupts can be unannounced, so their ids tell how far the log was sent.
    said = announced_ids(body for _, body in bodies)
    since = max((i for i, (record, body) in enumerate(bodies) if is_announced(record, body, said)), default=0)
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
    # No event is older than the one before it, also where the clock went back between two epochs.
    stamp = max((last_body.at + row[2] for row in last_body.events if row[0] != EPOCH), default=0)
    pruned = max(0, last_body.tail - len(events))  # events of records that are gone: the oldest ones
    for number, (event, at) in enumerate(events, seq + pruned + 1):
        event.seq, event.timestamp = number, max(at, stamp)
    return [(event, event.seq) for event, _ in events]


def was_checkpoint(record: Record, body: RecordBody) -> bool:
    """Whether it is a checkpoint, or was one until it was pruned from the history (its row stays as a part of later ones')."""
    kept_signal = body.source == "signal" and not body.patch.frames
    return record.checkpoint or not (body.source in NO_CHECKPOINT or kept_signal)


def announced_ids(bodies: Iterable[RecordBody]) -> set[str]:
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

STARTS_RUN = frozenset({"input", "edit", "rewind", "fork", "migrate"})


def is_announced(record: Record, body: RecordBody, said: set[str]) -> bool:
    """Whether nothing before this record can be unannounced: it is announced itself, or begins a run."""
    return body.source in STARTS_RUN or record.id in said


async def read_events(
    store: Checkpointer,
    loaded_chain: Sequence[tuple[int, int]],
    records: Sequence[Record],
    bodies: Sequence[RecordBody] | None = None,
) -> list[Logged]:
    """The stored log of these records, oldest first, texts read from the state's logs.

    Args:
        bodies: of the records, if somebody has decoded them.
    """
    bodies = await decode_bodies(records) if bodies is None else bodies
    texts = await _read_references(store, loaded_chain, bodies)
    return await beside_loop(records, _unpacked, records, bodies, texts)


def _unpacked(records: Sequence[Record], bodies: Sequence[RecordBody], texts: _Texts) -> list[Logged]:
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


_Texts = Mapping[tuple[int, str], Mapping[int, Any]]
"""Frame and channel → ordinal → entry."""


async def _read_references(
    store: Checkpointer, chain: Sequence[tuple[int, int]], bodies: Sequence[RecordBody]
) -> _Texts:
    out: dict[tuple[int, str], dict[int, Any]] = {}
    for (frame, channel), ordinals in (await beside_loop(bodies, _wanted, bodies)).items():
        # One read for each log, from its first wanted entry to its last, however many references lie in between.
        first = min(ordinals)
        rows = await store.read_items(chain, frame, channel, max(ordinals) + 1, start=first)
        out[frame, channel] = await beside_loop(ordinals, _entries, rows, channel, ordinals, first)
    return out


def _wanted(bodies: Sequence[RecordBody]) -> dict[tuple[int, str], set[int]]:
    """The entries that these records' events refer to, by log."""
    out: dict[tuple[int, str], set[int]] = {}
    for body in bodies:
        for frame, channel, ordinal, _ in references(body.events):
            out.setdefault((frame, channel), set()).add(ordinal)
    return out


def _entries(rows: Sequence[bytes], channel: str, ordinals: Iterable[int], first: int) -> dict[int, Any]:
    return {ordinal: decode_entry(rows[ordinal - first], channel)[1] for ordinal in ordinals}
