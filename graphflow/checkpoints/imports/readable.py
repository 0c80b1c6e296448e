"""Whether an exported thread can be read, before a store takes it: every checkpoint, every log, every waiting input.

Reading goes over the same ways as `loading.py` and `event_log.py`, once along each lineage instead of once a checkpoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from graphflow.checkpoints import codec, event_log
from graphflow.checkpoints.export import ThreadCopy, from_lines
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.media import large_bytes
from graphflow.checkpoints.record_decoder import (
    Folded,
    RecordBody,
    decode_body,
    decode_entry,
    decode_interrupt,
    decode_meta,
    decode_snapshot,
    first_read,
    fold_records,
    wanted_logs,
    with_logs,
)
from graphflow.checkpoints.rows import Record
from graphflow.errors import CodecError, DefinitionError, StoreError
from graphflow.graph.core.machine import ROOT, Machine
from graphflow.graph.definition.document import decode_document
from graphflow.graph.definition.old_words import renewed
from graphflow.messages import MESSAGE_TYPES, HumanMessage, address_misfit, misfit

_LARGEST = (1 << 63) - 1
"""What a column of a database holds."""


async def checked_copy(lines: AsyncIterator[Mapping[str, Any]]) -> ThreadCopy:
    """The copy that was exported, every part of it readable.

    Raises:
        StoreError: as `from_lines` and `check_readable`.
    """
    copy = await from_lines(lines)
    check_readable(copy)
    return copy


def check_readable(copy: ThreadCopy) -> None:
    """Reads everything of the copy; one of records that no journal wrote holds bytes that only their writer can read.

    Raises:
        StoreError: a part is damaged or missing, or of a newer version.
    """
    _check_rows(copy)
    if any(_is_of_journal(record) for record in copy.records):
        try:
            _Reading(copy).check()
        except StoreError as error:
            raise StoreError(
                f"the exported thread could not be read again: {error.message}", code=error.code, **error.detail
            ) from error


def _check_rows(copy: ThreadCopy) -> None:
    """Every name and number is one that each store can keep."""
    pending: list[Any] = [msgspec.to_builtins(row, builtin_types=(bytes,)) for row in (copy.thread, *copy.records)]
    pending += [msgspec.to_builtins(row, builtin_types=(bytes,)) for row in (*copy.lineages, *copy.items)]
    pending += [msgspec.to_builtins(row, builtin_types=(bytes,)) for row in (*copy.interrupts, *copy.queue)]
    pending += [document.digest for document in copy.documents]
    # Cleaned by the store, as a title that anybody gives.
    pending[0]["facts"].pop("title")
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
        elif isinstance(value, str):
            check_text(value)
        elif type(value) is int and not 0 <= value <= _LARGEST:
            raise StoreError(f"the export has the number {value}, which no row has: export it again")


def _is_of_journal(record: Record) -> bool:
    for read, data in ((decode_meta, record.meta), (decode_body, record.data)):
        try:
            read(data)
        except CodecError:
            continue
        return True
    return False


class _Reading:
    def __init__(self, copy: ThreadCopy) -> None:
        self._copy = copy
        self._records: dict[int, list[Record]] = defaultdict(list)
        self._logs: dict[tuple[int, int, str], dict[int, tuple[int, bytes]]] = defaultdict(dict)
        """(lineage, frame, channel) → ordinal of the entry → (ordinal of the record that wrote it, the entry)."""
        self._chains: dict[int, tuple[tuple[int, int], ...]] = {}
        """Lineage → its ancestors with their cuts, the oldest first."""
        self._cuts: dict[int, set[int]] = defaultdict(set)
        self._folded: dict[tuple[int, int], Folded | None] = {}
        """The state at the cuts; None where the records before it were pruned."""
        for record in copy.records:
            self._records[record.lineage].append(record)
            for item in record.items:
                self._add(record.lineage, record.ordinal, item.frame, item.channel, item.ordinal, item.data)
        for loose in copy.items:
            self._add(loose.lineage, loose.record, loose.frame, loose.channel, loose.ordinal, loose.data)
        for lineage in copy.lineages:
            before = () if lineage.parent is None else (*self._chains[lineage.parent], (lineage.parent, lineage.cut))
            self._chains[lineage.number] = before
            if lineage.parent is not None:
                self._cuts[lineage.parent].add(lineage.cut)

    def _add(self, lineage: int, record: int, frame: int, channel: str, ordinal: int, data: bytes) -> None:
        log = self._logs[lineage, frame, channel]
        if ordinal in log:
            _damaged(f"entry {ordinal} of {channel!r} stands twice in lineage {lineage}")
        if frame >= large_bytes.FIRST and channel == large_bytes.CHANNEL:
            large_bytes.checked_bytes(data)
        else:
            _check_entry(decode_entry(data, channel), channel, ordinal)
        log[ordinal] = record, data

    def check(self) -> None:
        copy = self._copy
        for number in self._chains:
            self._check_lineage(number)
        for interrupt in copy.interrupts:
            _read(
                f"interrupt {interrupt.interrupt_id!r}",
                lambda data: decode_interrupt(codec.decode(data)),
                interrupt.data,
            )
        for queued in copy.queue:
            if queued.kind not in ("input", "signal", "stop"):
                _damaged(f"an input that waits has kind {queued.kind!r}")
            if not isinstance(_read("an input that waits", codec.decode, queued.body), dict):
                _damaged("an input that waits is no mapping")
        there = {document.digest for document in copy.documents}
        for document in copy.documents:
            _read(f"document {document.digest}", _check_document, document.data)
        pinned = copy.thread.facts.document
        if pinned is not None and pinned not in there:
            _damaged(f"document {pinned} is missing")

    def _check_lineage(self, number: int) -> None:
        chain = self._chains[number]
        folded = self._folded.get(chain[-1]) if chain else Folded(Machine(), {})
        cuts, reached = self._cuts[number], 0
        if 0 in cuts:
            self._folded[number, 0] = folded
        for record in self._records[number]:
            whole = record.ordinal == reached + 1
            folded = self._after(record, folded if whole else None)
            # A prune leaves gaps before records that no checkpoint needs, and nowhere else.
            if record.checkpoint and (folded is None or (folded.machine.frames and ROOT not in folded.machine.frames)):
                _damaged(f"records before checkpoint {record.id!r} are missing")
            reached = record.ordinal
            if reached in cuts:
                self._folded[number, reached] = folded
                self._check_logs(folded, number, reached)
        self._check_logs(folded, number, reached)
        thread = self._copy.thread
        if number == thread.lineage and thread.head is not None and (folded is None or thread.ordinal != reached):
            _damaged(f"records of lineage {number}, at whose end the thread stands, are missing")

    def _after(self, record: Record, before: Folded | None) -> Folded | None:
        """The state after a record, read as a loader reads it: from its snapshot where it has one."""
        meta, body = decode_meta(record.meta, record.id), decode_body(record.data, record.id)
        folded = before
        if before is not None:
            self._check_items(record, body, before)
            folded = _read(f"record {record.id!r}", lambda bodies: fold_records(before, bodies), [body])
        if record.snapshot is not None:
            folded = decode_snapshot(record.snapshot, self._copy.thread.thread_id)
        run_id: Any = meta.run_id
        if run_id is not None and not isinstance(run_id, str):
            _damaged(f"record {record.id!r} names no run")
        _read(
            f"the log of record {record.id!r}",
            lambda events: event_log.unpack(events, body.seq, body.at, meta.run_id, self._text_at(record)),
            body.events,
        )
        return folded

    def _check_items(self, record: Record, body: RecordBody, before: Folded) -> None:
        """A record brings exactly the entries that it counts."""
        expected = {
            (frame, channel, before.counts.get((frame, channel), 0) + n)
            for (frame, channel), count in body.counts.items()
            for n in range(count)
        }
        # Large bytes are no entries of a list, and belong to no frame.
        if expected != {(i.frame, i.channel, i.ordinal) for i in record.items if i.frame < large_bytes.FIRST}:
            _damaged(f"record {record.id!r} has other entries of its lists than it counts")

    def _check_logs(self, folded: Folded | None, number: int, ordinal: int) -> None:
        if folded is None:
            return
        entries = {
            (frame, channel): self._entries(
                number, ordinal, frame, channel, range(first_read(folded, frame, channel), count)
            )
            for frame, channel, count in wanted_logs(folded)
        }
        machine = _read(
            f"the lists at record {ordinal} of lineage {number}", lambda logs: with_logs(folded, logs), entries
        )
        for stored in large_bytes.stored_media(machine).values():
            self._entries(number, ordinal, stored, large_bytes.CHANNEL, (0,))

    def _entries(self, number: int, upto: int, frame: int, channel: str, ordinals: Sequence[int]) -> list[bytes]:
        logs = [
            (self._logs.get((lineage, frame, channel), {}), cut)
            for lineage, cut in ((number, upto), *reversed(self._chains[number]))
        ]
        found = []
        for ordinal in ordinals:
            data = next((log[ordinal][1] for log, cut in logs if ordinal in log and log[ordinal][0] <= cut), None)
            if data is None:
                _damaged(f"entry {ordinal} of {channel!r} at record {upto} of lineage {number} is missing")
            found.append(data)
        return found

    def _text_at(self, record: Record) -> event_log.Resolve:
        def resolve(ref: event_log.Ref) -> str:
            frame, channel, ordinal, what = ref
            (data,) = self._entries(record.lineage, record.ordinal, frame, channel, [ordinal])
            return event_log.resolve_message(decode_entry(data, channel)[1], what)

        return resolve


def _check_entry(entry: Any, channel: str, ordinal: int) -> None:
    """A message is one that an edit would take."""
    written = entry[-1]
    for message in written if isinstance(written, list | tuple) else (written,):
        if not isinstance(message, MESSAGE_TYPES):
            continue
        wrong = misfit(message)
        if wrong is None and isinstance(message, HumanMessage):
            wrong = address_misfit(message)
        if wrong is not None:
            raise StoreError(
                f"entry {ordinal} of {channel!r} is a message that no thread takes: {wrong}; correct it by an edit where it was"
                " exported, and export the thread again"
            )


def _check_document(data: bytes) -> None:
    pending = [msgspec.json.decode(data)]
    while pending:
        packed = pending.pop()
        decode_document(dict(renewed(packed["document"])[0]))
        pending += packed.get("graphs", {}).values()


def _read(place: str, read: Any, data: Any) -> Any:
    try:
        return read(data)
    # AssertionError: what the core takes for granted of patches that it made itself.
    except (AssertionError, CodecError, RecursionError, *codec.MISFITS) as error:
        raise codec.unreadable(error, place) from error
    except DefinitionError as error:
        _damaged(f"{place} is not valid: {error}")


def _damaged(why: str) -> NoReturn:
    raise StoreError(f"{why}: export it again")
