"""Reading threads from PostgreSQL: each function is one visit to the store and sees one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints.export import LooseItem, QueuedInput, StoredDocument, ThreadCopy, named_documents
from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.pool import Transaction
from graphflow.checkpoints.postgres.rows import (
    INTERRUPT_COLUMNS,
    INTERRUPT_TYPES,
    READ_THREAD,
    interrupt_row,
    thread_row,
)
from graphflow.checkpoints.rows import (
    SPENT_FIGURES,
    SPENT_KEY,
    Item,
    Lineage,
    ListedRecord,
    Log,
    Record,
    Span,
    Spent,
    Stored,
    spent_from,
)

_UPWARDS = """
WITH RECURSIVE chain (depth, number, cut, parent, parent_cut) AS (
  SELECT 0, l.number, {cut}, l.parent, l.cut FROM {start}
  UNION ALL
  SELECT c.depth + 1, l.number, c.parent_cut, l.parent, l.cut FROM chain c JOIN @.lineages l ON l.number = c.parent
)"""
_CHAIN_OF_HEAD = Statement(
    _UPWARDS.format(cut="t.ordinal", start="@.threads t JOIN @.lineages l ON l.number = t.lineage WHERE t.id = $1")  # noqa: S608 – constants only
    + " SELECT number, cut FROM chain ORDER BY depth DESC",
    "t",
    "ii",
)
_REACH = Statement(
    """
WITH RECURSIVE up (number, begun, cut, parent, parent_cut) AS (
  SELECT l.number, l.begun, NULL::integer, l.parent, l.cut FROM @.lineages l WHERE l.thread = $1
  UNION
  SELECT l.number, l.begun, u.parent_cut, l.parent, l.cut FROM up u JOIN @.lineages l ON l.number = u.parent
)
SELECT number, CASE WHEN bool_or(cut IS NULL) THEN 2147483647 ELSE max(cut) END, min(parent), min(parent_cut), min(begun)
FROM up GROUP BY number ORDER BY min(begun)""",
    "t",
    "iiiii",
)
_TREE = """
WITH RECURSIVE up (number, begun, cut, parent, parent_cut) AS (
  SELECT l.number, l.begun, NULL::integer, l.parent, l.cut FROM @.lineages l WHERE l.thread = $1
  UNION
  SELECT l.number, l.begun, u.parent_cut, l.parent, l.cut FROM up u JOIN @.lineages l ON l.number = u.parent
), found (number, ordinal) AS (
  SELECT r.lineage, r.ordinal FROM @.records r
  WHERE r.id = $2 AND r.checkpoint AND EXISTS (SELECT 1 FROM up WHERE number = r.lineage AND coalesce(cut >= r.ordinal, true))
  LIMIT 1
)"""
_FIND = Statement(f"{_TREE} SELECT number, ordinal FROM found", "tt", "ii")  # noqa: S608 – constants only
_CHAIN_OF_FOUND = Statement(
    f"""{_TREE}, chain (depth, number, cut, parent, parent_cut) AS (
  SELECT 0, l.number, f.ordinal, l.parent, l.cut FROM found f JOIN @.lineages l ON l.number = f.number
  UNION ALL
  SELECT c.depth + 1, l.number, c.parent_cut, l.parent, l.cut FROM chain c JOIN @.lineages l ON l.number = c.parent
) SELECT number, cut FROM chain ORDER BY depth DESC""",  # noqa: S608 – constants only
    "tt",
    "ii",
)
_SINCE_SNAPSHOT = Statement(
    """
WITH chain AS (SELECT * FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS c (number, cut, place)),
newest AS (
  SELECT c.place, s.ordinal FROM chain c CROSS JOIN LATERAL (
    SELECT ordinal FROM @.snapshots WHERE lineage = c.number AND ordinal <= c.cut ORDER BY ordinal DESC LIMIT 1
  ) s ORDER BY c.place DESC LIMIT 1
)
SELECT c.number, r.ordinal, r.id, r.checkpoint, r.meta, r.data FROM chain c LEFT JOIN newest n ON true CROSS JOIN LATERAL (
  SELECT * FROM @.records WHERE lineage = c.number AND ordinal <= c.cut
    AND ordinal > CASE WHEN n.place = c.place THEN n.ordinal ELSE 0 END OFFSET 0
) r WHERE n.place IS NULL OR c.place >= n.place ORDER BY c.place, r.ordinal""",
    "LL",
    "iitbyy",
)
_NEWEST_SNAPSHOT = Statement(
    """
SELECT c.place, s.ordinal, s.data
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS c (number, cut, place) CROSS JOIN LATERAL (
  SELECT ordinal, data FROM @.snapshots WHERE lineage = c.number AND ordinal <= c.cut ORDER BY ordinal DESC LIMIT 1
) s ORDER BY c.place DESC LIMIT 1""",
    "LL",
    "iiy",
)
_RECORDS = Statement(
    "SELECT ordinal, id, checkpoint, meta, data FROM @.records WHERE lineage = $1 AND ordinal > $2 AND ordinal <= $3"
    " ORDER BY ordinal",
    "lii",
    "itbyy",
)
_WHOLE_RECORDS = Statement(
    "SELECT r.ordinal, r.id, r.checkpoint, r.meta, r.data, s.data, r.effect FROM @.records r"
    " LEFT JOIN @.snapshots s ON s.lineage = r.lineage AND s.ordinal = r.ordinal"
    " WHERE r.lineage = $1 AND r.ordinal <= $2 ORDER BY r.ordinal",
    "li",
    "itbyyyb",
)
_WHOLE_ITEMS = Statement(
    "SELECT record, frame, channel, ordinal, data FROM @.items WHERE lineage = $1 AND record <= $2"
    " ORDER BY record, frame, channel, ordinal",
    "li",
    "iitiy",
)
_NEWEST = Statement(
    "SELECT (SELECT max(ordinal) FROM @.records WHERE lineage = $1), pruned FROM @.lineages WHERE number = $1",
    "l",
    "ii",
)
_EFFECTS = Statement(
    "SELECT ordinal, id, checkpoint, meta, data FROM @.records WHERE lineage = $1 AND ordinal > $2 AND ordinal <= $3"
    " AND effect ORDER BY ordinal",
    "lii",
    "itbyy",
)
_ITEMS = Statement(
    "SELECT lineage, ordinal, data FROM @.items WHERE lineage = ANY($1) AND frame = $2 AND channel = $3 AND ordinal >= $4"
    " AND ordinal < $5 ORDER BY ordinal",
    "Lltii",
    "iiy",
)
_LISTED = Statement(
    """
SELECT c.place, r.ordinal, r.id, r.size, r.meta
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS c (number, cut, place) CROSS JOIN LATERAL (
  SELECT * FROM @.records WHERE lineage = c.number AND ordinal <= c.cut AND checkpoint ORDER BY ordinal DESC LIMIT $3
) r ORDER BY c.place, r.ordinal DESC LIMIT $3""",
    "LLl",
    "iitiy",
)
_BEFORE = Statement(
    """
WITH RECURSIVE up (place, depth, number, cut, parent, parent_cut) AS (
  SELECT c.place, 0, l.number, c.cut, l.parent, l.cut
  FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS c (number, cut, place) JOIN @.lineages l ON l.number = c.number
  UNION ALL
  SELECT u.place, u.depth + 1, l.number, u.parent_cut, l.parent, l.cut FROM up u JOIN @.lineages l ON l.number = u.parent
  WHERE NOT EXISTS (SELECT 1 FROM @.records r WHERE r.lineage = u.number AND r.ordinal <= u.cut AND r.checkpoint)
)
SELECT DISTINCT ON (u.place) u.place, r.id FROM up u LEFT JOIN LATERAL (
  SELECT id FROM @.records WHERE lineage = u.number AND ordinal <= u.cut AND checkpoint ORDER BY ordinal DESC LIMIT 1
) r ON true ORDER BY u.place, u.depth DESC""",
    "LL",
    "it",
)
"""The newest checkpoint at or before each place, in its lineage or what that was begun from."""
_INTERRUPTS = Statement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE thread = $1 ORDER BY opened_at, id",  # noqa: S608 – constants only
    "t",
    INTERRUPT_TYPES,
)
_INPUTS = Statement("SELECT body, at, kind FROM @.inputs WHERE thread = $1 ORDER BY position", "t", "yit")
_RUNS = Statement("SELECT run FROM @.runs WHERE thread = $1 ORDER BY run", "t", "t")
_DOCUMENT = Statement("SELECT data FROM @.documents WHERE digest = $1", "t", "y")


class Step(NamedTuple):
    """One lineage of a chain and the last ordinal that counts."""

    number: int
    cut: int


async def load(db: Transaction, thread_id: str, checkpoint_id: str | None) -> Stored | None:
    """Two round trips, however long the history is."""
    chain_of = _CHAIN_OF_HEAD(thread_id) if checkpoint_id is None else _CHAIN_OF_FOUND(thread_id, checkpoint_id)
    rows, chain_rows = await db.run(READ_THREAD(thread_id), chain_of)
    if not rows or (checkpoint_id is not None and not chain_rows):
        return None
    chain = [Step(*row) for row in chain_rows]
    snapshot, records, target = await _since_snapshot(db, thread_id, chain)
    return Stored(
        thread=thread_row(rows[0]),
        chain=tuple([(step.number, step.cut) for step in chain]),
        snapshot=snapshot,
        records=records,
        target=target,
    )


WHOLE = (1 << 31) - 1


class Reached(NamedTuple):
    """A lineage of a thread's tree, and the last ordinal of it that belongs to the tree."""

    number: int
    upto: int
    """`WHOLE` of those that the thread began."""
    parent: int | None
    cut: int
    begun: int


async def reach(db: Transaction, thread_id: str) -> list[Reached]:
    """Every lineage of the thread's tree, in the order in which they began."""
    return [Reached(*row) for row in await db.rows(_REACH(thread_id))]


async def find_checkpoint(db: Transaction, thread_id: str, checkpoint_id: str) -> Step | None:
    """The lineage and ordinal of a checkpoint in the thread's tree."""
    row = await db.row(_FIND(thread_id, checkpoint_id))
    return None if row is None else Step(*row)


async def _since_snapshot(
    db: Transaction, thread_id: str, chain: Sequence[Step]
) -> tuple[bytes | None, tuple[Record, ...], Record | None]:
    """The newest snapshot of the chain, the records after it, and the last record of the chain."""
    if not chain:
        return None, (), None
    numbers, cuts = [step.number for step in chain], [step.cut for step in chain]
    last = next((step for step in reversed(chain) if step.cut), Step(0, 1))
    found, rows, ends = await db.run(
        _NEWEST_SNAPSHOT(numbers, cuts), _SINCE_SNAPSHOT(numbers, cuts), _RECORDS(last.number, last.cut - 1, last.cut)
    )
    place, ordinal, snapshot = found[0] if found else (1, 0, None)
    wanted = sum(cuts[place - 1 :]) - ordinal
    if len(rows) != wanted or (last.number and not ends):
        raise refusals.missing_records(thread_id, max(wanted, 1), len(rows))
    records = tuple([_record(row[0], row[1:]) for row in rows])
    target = records[-1] if records else _record(last.number, ends[0]) if ends else None
    return snapshot, records, target


async def _records(db: Transaction, number: int, after: int, upto: int, thread_id: str) -> list[Record]:
    """Records with ordinals in (after, upto]; a missing one is damage."""
    rows = await db.rows(_RECORDS(number, after, upto))
    if len(rows) != max(upto - after, 0):
        raise refusals.missing_records(thread_id, upto - after, len(rows))
    return [_record(number, row) for row in rows]


def _record(number: int, row: Any, *, effect: bool = False) -> Record:
    ordinal, id_, checkpoint, meta, data = row
    return Record(
        id=id_, lineage=number, ordinal=ordinal, checkpoint=checkpoint, meta=meta, data=data, effect=effect
    )  # fmt: skip


async def read_logs(db: Transaction, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
    lineages = [number for number, _ in chain]
    found = await db.run(*[_ITEMS(lineages, log.frame, log.channel, log.start, log.count) for log in logs])
    return [_fold(rows, lineages, log) for rows, log in zip(found, logs, strict=True)]


def _fold(rows: Sequence[Any], lineages: Sequence[int], log: Log) -> list[bytes]:
    """From the youngest lineage back: each has the entries before the first of its child."""
    per_lineage: dict[int, list[tuple[int, bytes]]] = {}
    for number, ordinal, data in rows:
        per_lineage.setdefault(number, []).append((ordinal, data))
    parts: list[list[bytes]] = []
    upper = log.count
    for number in reversed(lineages):
        entries = [(ordinal, data) for ordinal, data in per_lineage.get(number, ()) if ordinal < upper]
        if entries:
            parts.append([data for _, data in entries])
            upper = entries[0][0]
    out = [data for part in reversed(parts) for data in part]
    wanted = max(log.count - log.start, 0)
    if len(out) != wanted:
        raise refusals.missing_items(log.channel, wanted, len(out))
    return out


async def list_records(
    db: Transaction, thread_id: str, before: str | None, limit: int | None, *, all_lineages: bool
) -> list[ListedRecord]:
    """Metadata of checkpoints, newest first. Lineages of one tree are begun one after the other, so their order is theirs."""
    head = _REACH(thread_id) if all_lineages else _CHAIN_OF_HEAD(thread_id)
    rows, scope_rows, found = await db.run(READ_THREAD(thread_id), head, _FIND(thread_id, before or ""))
    if not rows:
        return []
    scope = [Step(*row[:2]) for row in reversed(scope_rows)]
    if before is not None:
        scope = _older(thread_id, scope, before, found)
    listed = await db.rows(_LISTED([step.number for step in scope], [step.cut for step in scope], limit))
    by_place: dict[int, list[Any]] = {}
    for row in listed:
        by_place.setdefault(row[0], []).append(row)
    # Behind the last one of each lineage: where the page ends, or where the lineage was begun.
    ends = {place: Step(scope[place - 1].number, rows[-1][1] - 1) for place, rows in by_place.items()}
    before_them = await db.rows(_BEFORE([end.number for end in ends.values()], [end.cut for end in ends.values()]))
    parents = dict(zip(ends, (id_ for _, id_ in before_them), strict=True))
    out = []
    for place, rows in by_place.items():
        following = [row[2] for row in rows[1:]] + [parents[place]]
        out += [
            ListedRecord(id=id_, parent=parent, lineage=scope[place - 1].number, ordinal=ordinal, meta=meta, size=size)
            for (_, ordinal, id_, size, meta), parent in zip(rows, following, strict=True)
        ]
    return out


def _older(thread_id: str, scope: Sequence[Step], before: str, found: Sequence[Any]) -> list[Step]:
    for number, ordinal in found:
        for index, step in enumerate(scope):
            if step.number == number and ordinal <= step.cut:
                return [Step(number, ordinal - 1), *scope[index + 1 :]]
    raise refusals.unknown_checkpoint(thread_id, before)


async def read_records(db: Transaction, thread_id: str, number: int, after: int, upto: int) -> list[Record]:
    limit = next((step.upto for step in await reach(db, thread_id) if step.number == number), None)
    if limit is None:
        return []
    newest, pruned = (await db.rows(_NEWEST(number)))[0]
    end, after = min(upto, newest or 0, limit), max(after, 0)
    middle = min(max(after, pruned), end)  # up to there others may have been pruned
    left = [_record(number, row) for row in await db.rows(_RECORDS(number, after, middle))] if middle > after else []
    return left + await _records(db, number, middle, end, thread_id) if end > middle else left


async def read_effects(db: Transaction, thread_id: str, spans: Sequence[Span]) -> list[Record]:
    tree = {step.number: step.upto for step in await reach(db, thread_id)}
    inside = [span for span in spans if span.lineage in tree]
    if not inside:
        return []
    found = await db.run(*[_EFFECTS(x.lineage, x.after, min(x.upto, tree[x.lineage])) for x in inside])
    return [_record(span.lineage, row, effect=True) for span, rows in zip(inside, found, strict=True) for row in rows]


async def copy_thread(db: Transaction, thread_id: str) -> ThreadCopy:
    """Everything of the thread, for an export."""
    row = await db.row(READ_THREAD(thread_id))
    if row is None:
        raise refusals.unknown_thread(thread_id)
    thread = thread_row(row)
    interrupts, inputs, runs = await db.run(_INTERRUPTS(thread_id), _INPUTS(thread_id), _RUNS(thread_id))
    copy = ThreadCopy(
        thread=thread,
        interrupts=[interrupt_row(row) for row in interrupts],
        queue=[QueuedInput(body=body, at=at, kind=kind) for body, at, kind in inputs],
        runs=[run for (run,) in runs],
    )
    for step in await reach(db, thread_id):
        copy.lineages.append(Lineage(number=step.number, thread_id=thread_id, parent=step.parent, cut=step.cut))
        records, entries = await db.run(_WHOLE_RECORDS(step.number, step.upto), _WHOLE_ITEMS(step.number, step.upto))
        copy.records += _whole(records, entries, step.number)
        there = {record[0] for record in records}
        copy.items += [
            LooseItem(lineage=step.number, record=record, frame=frame, channel=channel, ordinal=ordinal, data=data)
            for record, frame, channel, ordinal, data in entries
            if record not in there
        ]
    for digest in named_documents(copy):
        for (data,) in await db.rows(_DOCUMENT(digest)):
            copy.documents.append(StoredDocument(digest=digest, data=data))
    return copy


def _whole(records: Sequence[Any], entries: Sequence[Any], number: int) -> list[Record]:
    """The lineage's records with their items and snapshots."""
    items: dict[int, list[Item]] = {}
    for record, frame, channel, ordinal, data in entries:
        items.setdefault(record, []).append(Item(frame, channel, ordinal, data))
    return [
        Record(
            id=id_, lineage=number, ordinal=ordinal, checkpoint=checkpoint, meta=meta, data=data,
            items=tuple(items.get(ordinal, ())), snapshot=snapshot, effect=effect,
        )
        for ordinal, id_, checkpoint, meta, data, snapshot, effect in records
    ]  # fmt: skip


_SPENT_KEY = ", ".join(SPENT_KEY)
_SPENT = Statement(
    f"SELECT {_SPENT_KEY}, {', '.join(f'sum({figure})::bigint' for figure in SPENT_FIGURES)} FROM @.spent"  # noqa: S608 – constants only
    " WHERE day >= coalesce($1, day) AND day <= coalesce($2, day) AND agent_key = coalesce($3, agent_key)"
    f" AND thread = coalesce($4, thread) GROUP BY {_SPENT_KEY} ORDER BY {_SPENT_KEY}",
    "lltt",
    "itt" + "i" * len(SPENT_FIGURES),
)


async def read_spent(
    db: Transaction, since: int | None, until: int | None, agent_key: str | None, thread_id: str | None
) -> list[Spent]:
    return [spent_from(row) for row in await db.rows(_SPENT(since, until, agent_key, thread_id))]
