"""Reading threads from PostgreSQL: each function is one visit to the store and sees one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphflow.checkpoints import errors
from graphflow.checkpoints.postgres.driver import native
from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.pool import Transaction
from graphflow.checkpoints.rows import ListedRecord, Log, Record, Stored
from graphflow.checkpoints.sql.rows import READ_THREAD as _READ_THREAD
from graphflow.checkpoints.sql.rows import thread_row
from graphflow.checkpoints.sql.trees import REACH, record_of

READ_THREAD = native(_READ_THREAD)
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
FIND_CHECKPOINT = Statement(f"{_TREE} SELECT number, ordinal FROM found", "tt", "ii")  # noqa: S608 – constants only
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


WHOLE = (1 << 31) - 1


class LineageSpan(NamedTuple):
    """One lineage of a chain and the last ordinal that counts."""

    number: int
    cut: int


async def load(db: Transaction, thread_id: str, checkpoint_id: str | None) -> Stored | None:
    """Two round trips, however long the history is."""
    chain_of = _CHAIN_OF_HEAD(thread_id) if checkpoint_id is None else _CHAIN_OF_FOUND(thread_id, checkpoint_id)
    rows, chain_rows = await db.run(READ_THREAD(thread_id), chain_of)
    if not rows or (checkpoint_id is not None and not chain_rows):
        return None
    chain = [LineageSpan(*row) for row in chain_rows]
    snapshot, records, target = await _since_snapshot(db, thread_id, chain)
    return Stored(
        thread=thread_row(rows[0]),
        chain=tuple([(step.number, step.cut) for step in chain]),
        snapshot=snapshot,
        records=records,
        target=target,
    )


async def _since_snapshot(
    db: Transaction, thread_id: str, chain: Sequence[LineageSpan]
) -> tuple[bytes | None, tuple[Record, ...], Record | None]:
    """The newest snapshot of the chain, the records after it, and the last record of the chain."""
    if not chain:
        return None, (), None
    numbers, cuts = [step.number for step in chain], [step.cut for step in chain]
    last = next((step for step in reversed(chain) if step.cut), LineageSpan(0, 1))
    found, rows, ends = await db.run(
        _NEWEST_SNAPSHOT(numbers, cuts), _SINCE_SNAPSHOT(numbers, cuts), _RECORDS(last.number, last.cut - 1, last.cut)
    )
    place, ordinal, snapshot = found[0] if found else (1, 0, None)
    wanted = sum(cuts[place - 1 :]) - ordinal
    if len(rows) != wanted or (last.number and not ends):
        raise errors.missing_records(thread_id, max(wanted, 1), len(rows))
    records = tuple([record_of(row[0], row[1:]) for row in rows])
    target = records[-1] if records else record_of(last.number, ends[0]) if ends else None
    return snapshot, records, target


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
        raise errors.missing_items(log.channel, wanted, len(out))
    return out


async def list_records(
    db: Transaction, thread_id: str, before: str | None, limit: int | None, *, all_lineages: bool
) -> list[ListedRecord]:
    """Metadata of checkpoints, newest first. Lineages of one tree are begun one after the other, so their order is theirs."""
    head = native(REACH)(thread_id) if all_lineages else _CHAIN_OF_HEAD(thread_id)
    rows, scope_rows, found = await db.run(READ_THREAD(thread_id), head, FIND_CHECKPOINT(thread_id, before or ""))
    if not rows:
        return []
    scope = [LineageSpan(row[0], WHOLE if row[1] is None else row[1]) for row in reversed(scope_rows)]
    if before is not None:
        scope = _older(thread_id, scope, before, found)
    listed = await db.rows(_LISTED([step.number for step in scope], [step.cut for step in scope], limit))
    by_place: dict[int, list[Any]] = {}
    for row in listed:
        by_place.setdefault(row[0], []).append(row)
    # Behind the last one of each lineage: where the page ends, or where the lineage was begun.
    ends = {place: LineageSpan(scope[place - 1].number, rows[-1][1] - 1) for place, rows in by_place.items()}
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


def _older(thread_id: str, scope: Sequence[LineageSpan], before: str, found: Sequence[Any]) -> list[LineageSpan]:
    for number, ordinal in found:
        for index, step in enumerate(scope):
            if step.number == number and ordinal <= step.cut:
                return [LineageSpan(number, ordinal - 1), *scope[index + 1 :]]
    raise errors.unknown_checkpoint(thread_id, before)
