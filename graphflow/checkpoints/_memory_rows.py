"""What `MemoryCheckpointer` keeps, and how it is walked: lineages with their rows, threads, chains."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from graphflow.checkpoints import refusals
from graphflow.checkpoints.port import ListedRecord, Log, OpenInterrupt, Record, ThreadFacts, ThreadRow
from graphflow.errors import StoreError


class LineageRows:
    """A lineage with its rows."""

    __slots__ = (
        "__weakref__",
        "cut",
        "ids",
        "indexed",
        "logs",
        "number",
        "order",
        "parent",
        "records",
        "snapshots",
        "thread_id",
    )

    def __init__(self, number: int, order: int, thread_id: str, parent: LineageRows | None, cut: int) -> None:
        self.number = number
        self.order = order
        self.thread_id = thread_id
        self.parent = parent
        self.cut = cut
        self.records: list[Record] = []
        self.snapshots: list[int] = []
        """Ordinals of the records with a snapshot."""
        self.logs: dict[tuple[int, str], dict[int, bytes]] = {}
        self.ids: dict[str, int] = {}
        self.indexed = 0
        """Records that `ids` knows; it is filled when somebody looks, so that commits do not pay for it."""

    def checkpoint(self, checkpoint_id: str) -> int:
        """The ordinal of a checkpoint; 0 when there is none of this id."""
        for record in self.records[self.indexed :]:
            if record.checkpoint:
                self.ids[record.id] = record.ordinal
        self.indexed = len(self.records)
        return self.ids.get(checkpoint_id, 0)

    def add(self, record: Record) -> None:
        self.records.append(record)
        for item in record.items:
            log = self.logs.get((item.frame, item.channel))
            if log is None:
                log = self.logs[item.frame, item.channel] = {}
            log[item.ordinal] = item.data
        if record.snapshot is not None:
            self.snapshots.append(record.ordinal)

    def trim(self, upto: int) -> None:
        """Drops the rows that nobody reaches any more."""
        kept = self.records[:upto]
        self.records, self.snapshots, self.logs, self.ids, self.indexed = [], [], {}, {}, 0
        for record in kept:
            self.add(record)


class ThreadState:
    __slots__ = (
        "broken", "created_at", "facts", "fence", "head", "id", "lease_until", "lineage", "lineages", "ordinal", "owner"
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
        self.broken = False
        """A commit of this fence failed, so every later one does."""
        self.lineages: list[LineageRows] = []
        """Those that it began, oldest first."""

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


def recency(thread: ThreadState) -> tuple[int, str]:
    return thread.facts.updated_at, thread.id


def age(interrupt: OpenInterrupt) -> tuple[int, str]:
    return interrupt.opened_at, interrupt.interrupt_id


def refusal(thread: ThreadState | None, thread_id: str, fence: int, expected_head: str | None) -> StoreError:
    if thread is None:
        return refusals.fenced_gone(thread_id, fence)
    if thread.fence != fence:
        return refusals.fenced_life(thread_id, fence, thread.fence)
    if thread.broken:
        return refusals.fenced_earlier(thread_id, fence)
    if thread.owner is None:
        return refusals.fenced_released(thread_id, fence)
    return refusals.fenced_head(thread_id, expected_head, thread.head)


def check(thread_id: str, lineage: LineageRows | None, ordinal: int, records: Sequence[Record]) -> None:
    """Refuses records that do not follow the head without a gap, before any of them is kept."""
    for record in records:
        ordinal += 1
        if lineage is None or record.lineage != lineage.number:
            raise refusals.wrong_lineage(thread_id, record.lineage, None if lineage is None else lineage.number)
        if record.ordinal != ordinal:
            raise refusals.wrong_ordinal(thread_id, record.ordinal, ordinal)
        for item in record.items:
            log = lineage.logs.get((item.frame, item.channel))
            if log is not None and item.ordinal in log:
                raise refusals.item_taken(item.channel, item.ordinal)


def chain_of(lineage: LineageRows | None, ordinal: int) -> list[tuple[LineageRows, int]]:
    """(lineage, cut) from the oldest to the given one."""
    out: list[tuple[LineageRows, int]] = []
    while lineage is not None:
        out.append((lineage, ordinal))
        ordinal = lineage.cut
        lineage = lineage.parent
    out.reverse()
    return out


def reach(thread: ThreadState) -> dict[LineageRows, int]:
    """Every lineage of the thread's tree, with how many of its records belong to it."""
    out: dict[LineageRows, int] = {lineage: len(lineage.records) for lineage in thread.lineages}
    for own in thread.lineages:
        for lineage, cut in chain_of(own.parent, own.cut):
            out[lineage] = max(out.get(lineage, 0), cut)
    return out


def find_checkpoint(thread: ThreadState, checkpoint_id: str) -> tuple[LineageRows, int] | None:
    for lineage, upto in reach(thread).items():
        if 0 < (ordinal := lineage.checkpoint(checkpoint_id)) <= upto:
            return lineage, ordinal
    return None


def since_snapshot(chain: Sequence[tuple[LineageRows, int]]) -> tuple[bytes | None, list[Record]]:
    """The newest snapshot of the chain, and the records after it."""
    parts: list[list[Record]] = []
    snapshot = None
    for lineage, cut in reversed(chain):
        index = bisect_right(lineage.snapshots, cut)
        base = lineage.snapshots[index - 1] if index else 0
        parts.append(lineage.records[base:cut])
        if index:
            snapshot = lineage.records[base - 1].snapshot
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


def read_log(lineages: Sequence[LineageRows], log: Log) -> list[bytes]:
    """Walks from the youngest lineage back: each has the entries before the first of its child."""
    parts: list[list[bytes]] = []
    upper = log.count
    for lineage in reversed(lineages):
        entries = lineage.logs.get((log.frame, log.channel))
        if not entries or upper <= log.start:
            continue
        first = min(next(iter(entries)), upper)
        parts.append([entries[n] for n in range(max(first, log.start), upper) if n in entries])
        upper = first
    out = [data for part in reversed(parts) for data in part]
    wanted = max(log.count - log.start, 0)
    if len(out) != wanted:
        raise refusals.missing_items(log.channel, wanted, len(out))
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
        for record in _backwards(lineage.records, upto):
            if record.checkpoint:
                return record.id
        upto = lineage.cut
        lineage = lineage.parent
    return None


def _backwards(records: Sequence[Record], upto: int) -> Iterator[Record]:
    for index in range(upto - 1, -1, -1):
        yield records[index]


def stored_size(record: Record) -> int:
    """Bytes of the record, its items and its snapshot."""
    return (
        len(record.meta)
        + len(record.data)
        + sum(len(item.data) for item in record.items)
        + (0 if record.snapshot is None else len(record.snapshot))
    )
