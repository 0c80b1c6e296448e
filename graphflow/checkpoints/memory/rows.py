"""What `MemoryCheckpointer` keeps, and how it is walked: lineages with their rows, threads, chains."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.blobs import changed_record, item_place, stored_size
from graphflow.checkpoints.ids import check_text, clean_title
from graphflow.checkpoints.pruning import PruneChange
from graphflow.checkpoints.rows import (
    ListedRecord,
    Log,
    LooseItem,
    OpenInterrupt,
    Record,
    Rewrite,
    ThreadFacts,
    ThreadRow,
)
from graphflow.errors import StoreError

_LOG = attrgetter("frame", "channel")


class LineageRows:
    """A lineage with its rows."""

    __slots__ = (
        "cut", "ids", "indexed", "logs", "number", "order", "parent", "pruned", "records", "snapshots", "thread_id"
    )  # fmt: skip

    def __init__(self, number: int, order: int, thread_id: str, parent: LineageRows | None, cut: int) -> None:
        self.number = number
        self.order = order
        self.thread_id = thread_id
        self.parent = parent
        self.cut = cut
        self.records: list[Record | None] = []
        """None in the place of one that was pruned."""
        self.pruned = 0
        """Ordinal of the last one that was."""
        self.snapshots: list[int] = []
        """Ordinals of the records with a snapshot."""
        self.logs: dict[tuple[int, str], dict[int, tuple[int, bytes]]] = {}
        """(frame, channel) → ordinal of the entry → (ordinal of the record that wrote it, the entry)."""
        self.ids: dict[str, int] = {}
        self.indexed = 0
        """Records that `ids` knows; it is filled when somebody looks, so that commits do not pay for it."""

    def checkpoint(self, checkpoint_id: str) -> int:
        """The ordinal of a checkpoint; 0 when there is none of this id."""
        for record in self.records[self.indexed :]:
            if record is not None and record.checkpoint:
                self.ids[record.id] = record.ordinal
        self.indexed = len(self.records)
        return self.ids.get(checkpoint_id, 0)

    def add(self, record: Record) -> None:
        if record.ordinal > len(self.records) + 1:  # an import of what was pruned
            self.pruned = record.ordinal - 1
            self.records += [None] * (self.pruned - len(self.records))
        self.records.append(record)
        ordinal = record.ordinal
        for (frame, channel), items in groupby(record.items, _LOG):  # a join may add tens of thousands to one list
            log = self.logs.get((frame, channel))
            if log is None:
                log = self.logs[frame, channel] = {}
            log.update([(item.ordinal, (ordinal, item.data)) for item in items])
        if record.snapshot is not None:
            self.snapshots.append(record.ordinal)

    def found(self, after: int, upto: int) -> list[Record]:
        """The records with ordinals in (after, upto] that were not pruned."""
        return [record for record in self.records[max(after, 0) : max(upto, 0)] if record is not None]

    def loadable(self, ordinal: int) -> bool:
        """Whether the thread can be read at this record: nothing from its snapshot on was pruned."""
        if ordinal > len(self.records):
            return False
        # A prune leaves whole stretches, so after the last pruned record nothing is missing.
        if not 0 < ordinal <= self.pruned:
            return True
        index = bisect_right(self.snapshots, ordinal)
        first = self.snapshots[index - 1] if index else 1
        return None not in self.records[first - 1 : ordinal]

    def keep_loose(self, item: LooseItem) -> None:
        """An entry whose record was pruned, from an import."""
        log = self.logs.setdefault((item.frame, item.channel), {})
        log[item.ordinal] = (item.record, item.data)
        # `read_log` takes the first key as the lowest ordinal, so the entries have to be in order.
        self.logs[item.frame, item.channel] = dict(sorted(log.items()))

    def loose(self, upto: int) -> list[LooseItem]:
        """The entries up to this record whose records were pruned."""
        return [
            LooseItem(lineage=self.number, record=written, frame=frame, channel=channel, ordinal=ordinal, data=data)
            for (frame, channel), log in self.logs.items()
            for ordinal, (written, data) in log.items()
            if written <= upto and (written > len(self.records) or self.records[written - 1] is None)
        ]

    def trim(self, upto: int) -> None:
        """Drops the rows that nobody reaches any more."""
        kept = self.records[:upto]
        self.records, self.snapshots, self.ids, self.indexed = [], [], {}, 0
        for record in kept:
            if record is not None:
                self.add(record)
        # The length is that before pruned records at the end, since ordinals are positions.
        self.records += [None] * (len(kept) - len(self.records))
        self.forget_entries(upto)

    def forget_entries(self, upto: int) -> None:
        """Drops the log entries of later records."""
        for log in self.logs.values():
            for ordinal in [n for n, (written, _) in log.items() if written > upto]:
                del log[ordinal]

    def apply(self, change: PruneChange) -> None:
        """Drops the records that a prune takes away."""
        # The last gap is open-ended: everything after the last record that stays.
        *gaps, (end, _) = change.gaps()
        for first, last in gaps:
            self.records[first - 1 : last] = [None] * (last - first + 1)
            self.pruned = max(self.pruned, last)
        del self.records[end - 1 :]
        self.forget_entries(change.last)
        for ordinal in change.islands:
            # Entries after `last` are gone from the logs, so a record beyond it must not list them either.
            self._replace(ordinal, snapshot=None, **({} if ordinal <= change.last else {"items": ()}))
        for ordinal in change.hidden:
            self._replace(ordinal, checkpoint=False)
        self.snapshots = [r.ordinal for r in self.records if r is not None and r.snapshot is not None]
        self.ids, self.indexed = {}, 0

    def dropped(self, change: PruneChange) -> tuple[int, int]:
        """How many records a change takes away, and their bytes; entries of logs are not counted, for most stay."""
        gone = [record for first, last in change.gaps() for record in self.found(first - 1, last)]
        return len(gone), sum(len(r.meta) + len(r.data) + len(r.snapshot or b"") for r in gone)

    def rewrite(self, change: Rewrite) -> None:
        """Replaces every blob by what `change` gives for it."""
        for index, record in enumerate(self.records):
            if record is not None:
                self.records[index] = changed_record(record, change)
        for (frame, channel), log in self.logs.items():
            for ordinal, (written, data) in log.items():
                place = item_place(self.number, ordinal, frame, channel, written)
                log[ordinal] = (written, change(place, data))

    def _replace(self, ordinal: int, **fields: Any) -> None:
        record = self.records[ordinal - 1]
        assert record is not None
        self.records[ordinal - 1] = msgspec.structs.replace(record, **fields)


class HeldThread:
    __slots__ = (
        "attempts", "broken", "created_at", "facts", "fence", "head", "id", "lease_until", "lineage", "lineages", "ordinal",
        "owner",
    )  # fmt: skip

    def __init__(self, thread_id: str, facts: ThreadFacts, fence: int, created_at: int) -> None:
        self.id = thread_id
        self.facts = facts
        self.fence = fence
        self.created_at = created_at
        self.head: str | None = None
        self.lineage: LineageRows | None = None
        self.ordinal = 0
        self.owner: str | None = None
        self.lease_until = 0
        self.attempts = ("", 0)
        """A checkpoint, and how often a run that lost its process was begun again there."""
        self.broken = False
        """A commit of this fence failed, so every later one does."""
        self.lineages: list[LineageRows] = []
        """Those that it began, oldest first."""

    def is_driven(self, now: int) -> bool:
        return self.owner is not None and self.lease_until > now

    def row(self) -> ThreadRow:
        return ThreadRow(
            thread_id=self.id,
            facts=self.facts,
            head=self.head,
            lineage=None if self.lineage is None else self.lineage.number,
            ordinal=self.ordinal,
            fence=self.fence,
            owner=self.owner,
            lease_until=self.lease_until,
            created_at=self.created_at,
        )


def recency(thread: HeldThread) -> tuple[int, str]:
    return thread.facts.updated_at, thread.id


def age(interrupt: OpenInterrupt) -> tuple[int, str]:
    return interrupt.opened_at, interrupt.interrupt_id


def refusal(thread: HeldThread | None, thread_id: str, fence: int, expected_head: str | None) -> StoreError:
    if thread is None:
        return errors.fenced_gone(thread_id, fence)
    if thread.fence != fence:
        return errors.fenced_epoch(thread_id, fence, thread.fence)
    if thread.broken:
        return errors.fenced_earlier(thread_id, fence)
    if thread.owner is None:
        return errors.fenced_released(thread_id, fence)
    return errors.fenced_head(thread_id, expected_head, thread.head)


def check(thread_id: str, lineage: LineageRows | None, ordinal: int, records: Sequence[Record]) -> None:
    """Refuses records that do not follow the head without a gap, before any of them is kept."""
    for record in records:
        ordinal += 1
        _check_texts(record)
        if lineage is None or record.lineage != lineage.number:
            raise errors.wrong_lineage(thread_id, record.lineage, None if lineage is None else lineage.number)
        if record.ordinal != ordinal:
            raise errors.wrong_ordinal(thread_id, record.ordinal, ordinal)
        for (frame, channel), items in groupby(record.items, _LOG):
            if log := lineage.logs.get((frame, channel)):
                for item in items:
                    if item.ordinal in log:
                        raise errors.item_taken(channel, item.ordinal)


def _check_texts(record: Record) -> None:
    check_text(record.id)
    if record.items:
        check_text(*{item.channel for item in record.items})
    if record.closed:
        check_text(*record.closed)
    for row in record.opened:
        check_text(row.interrupt_id, row.run_id, row.kind, row.node, row.owner, row.role, row.agent_key)
    if record.spent is not None:
        check_text(record.spent.agent_key, record.spent.model)


def checked_facts(facts: ThreadFacts, before: ThreadFacts) -> ThreadFacts:
    """The facts as a database would keep them, of a thread with those before.

    Raises:
        StoreError: `invalid_input` for a text in them that not every store can keep.
    """
    check_text(facts.status, facts.run_id, facts.document, facts.agent_key, before.user)
    title = clean_title(facts.title)
    # The same object where nothing changes: the next commit that carries it is then not looked through again.
    if title == facts.title and before.user == facts.user and before.about == facts.about:
        return facts
    return msgspec.structs.replace(facts, title=title, user=before.user, about=before.about)


def check_parent(lineage: LineageRows, parent: LineageRows) -> None:
    """Refuses a lineage that would go on from what was pruned meanwhile."""
    if not parent.loadable(lineage.cut):
        raise errors.pruned_parent(lineage.number, parent.number, lineage.cut)


def chain_of(lineage: LineageRows | None, ordinal: int) -> list[tuple[LineageRows, int]]:
    """(lineage, cut) from the oldest to the given one."""
    out: list[tuple[LineageRows, int]] = []
    while lineage is not None:
        out.append((lineage, ordinal))
        ordinal = lineage.cut
        lineage = lineage.parent
    out.reverse()
    return out


def reach(thread: HeldThread) -> dict[LineageRows, int]:
    """Every lineage of the thread's tree, with how many of its records belong to it."""
    out: dict[LineageRows, int] = {lineage: len(lineage.records) for lineage in thread.lineages}
    for own in thread.lineages:
        for lineage, cut in chain_of(own.parent, own.cut):
            out[lineage] = max(out.get(lineage, 0), cut)
    return out


def find_checkpoint(thread: HeldThread, checkpoint_id: str) -> tuple[LineageRows, int] | None:
    for lineage, upto in reach(thread).items():
        if 0 < (ordinal := lineage.checkpoint(checkpoint_id)) <= upto:
            return lineage, ordinal
    return None


def since_snapshot(thread_id: str, chain: Sequence[tuple[LineageRows, int]]) -> tuple[bytes | None, list[Record]]:
    """The newest snapshot of the chain, and the records after it."""
    parts: list[list[Record]] = []
    snapshot = None
    for lineage, cut in reversed(chain):
        index = bisect_right(lineage.snapshots, cut)
        base = lineage.snapshots[index - 1] if index else 0
        part = lineage.found(base, cut)
        if len(part) != cut - base:
            raise errors.missing_records(thread_id, cut - base, len(part))
        parts.append(part)
        if index:
            snapshot = lineage.found(base - 1, base)[0].snapshot
            break
    return snapshot, [record for part in reversed(parts) for record in part]


def bare(record: Record) -> Record:
    """The record as `load` gives it: patch and metadata only."""
    return Record(
        id=record.id,
        lineage=record.lineage,
        ordinal=record.ordinal,
        checkpoint=record.checkpoint,
        meta=record.meta,
        data=record.data,
    )


def last_of(chain: Sequence[tuple[LineageRows, int]]) -> Record | None:
    """The record that the chain ends with, as `load` gives it."""
    for lineage, cut in reversed(chain):
        if cut:
            return bare(lineage.found(cut - 1, cut)[0])
    return None


def read_log(lineages: Sequence[LineageRows], log: Log) -> list[bytes]:
    """Walks from the youngest lineage back: each has the entries before the first of its child."""
    parts: list[list[bytes]] = []
    upper = log.count
    for lineage in reversed(lineages):
        entries = lineage.logs.get((log.frame, log.channel))
        if not entries or upper <= log.start:
            continue
        # The first entry of a lineage hides the parent's entries from that ordinal on.
        first = min(next(iter(entries)), upper)
        parts.append([entries[n][1] for n in range(max(first, log.start), upper) if n in entries])
        upper = first
    out = [data for part in reversed(parts) for data in part]
    wanted = max(log.count - log.start, 0)
    # A missing entry is damage: a shorter list would look like valid state.
    if len(out) != wanted:
        raise errors.missing_items(log.channel, wanted, len(out))
    return out


def listed(lineage: LineageRows, record: Record) -> ListedRecord:
    return ListedRecord(
        id=record.id,
        parent=_parent(lineage, record.ordinal),
        lineage=lineage.number,
        ordinal=record.ordinal,
        meta=record.meta,
        size=stored_size(record),
    )


def _parent(lineage: LineageRows | None, ordinal: int) -> str | None:
    """The id of the newest checkpoint before this ordinal."""
    upto = ordinal - 1
    while lineage is not None:
        for index in range(min(upto, len(lineage.records)) - 1, -1, -1):
            record = lineage.records[index]
            if record is not None and record.checkpoint:
                return record.id
        upto = lineage.cut
        lineage = lineage.parent
    return None
