"""The lineages of a thread's tree, and records read by lineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import Record, Span
from graphflow.checkpoints.sql.statement import SharedStatement, Work, one

REACH = SharedStatement(
    """
WITH RECURSIVE up (own, cut, parent, parent_cut) AS (
  SELECT l.@own, CAST(NULL AS integer), l.parent, l.cut FROM @.lineages l WHERE l.thread = $1
  UNION
  SELECT l.@own, u.parent_cut, l.parent, l.cut FROM up u JOIN @.lineages l ON l.@own = u.parent
)
SELECT l.number, CASE WHEN count(*) > count(u.cut) THEN NULL ELSE max(u.cut) END, p.number, l.cut, l.pruned, l.@begun,
  l.thread IS NULL OR l.thread = $1
FROM up u JOIN @.lineages l ON l.@own = u.own LEFT JOIN @.lineages p ON p.@own = l.parent
GROUP BY l.@own, p.number ORDER BY l.@begun""",
    "d",
    "iiiiiib",
)
CHILDREN = SharedStatement(
    """
WITH RECURSIVE up (own, parent) AS (
  SELECT l.@own, l.parent FROM @.lineages l WHERE l.thread = $1
  UNION
  SELECT l.@own, l.parent FROM up u JOIN @.lineages l ON l.@own = u.parent
)
SELECT p.number, c.number, c.cut FROM up u JOIN @.lineages c ON c.parent = u.own JOIN @.lineages p ON p.@own = u.own""",
    "d",
    "iii",
)
"""(parent, child, cut) for all children of the tree's lineages, of whatever thread."""
_RECORDS = SharedStatement(
    "SELECT @ordinal, id, checkpoint, meta, data FROM @.records WHERE @span ORDER BY @by", "lll", "idbyy"
)
NEWEST = SharedStatement("SELECT @ordinal FROM @.records WHERE @lineage ORDER BY @by DESC LIMIT 1", "l", "i")
EFFECTS = SharedStatement("SELECT @ordinal FROM @.records WHERE @effects ORDER BY @by", "lll", "i")
_WITH_EFFECT = SharedStatement(
    "SELECT @ordinal, id, checkpoint, meta, data FROM @.records WHERE @effects ORDER BY @by", "lll", "idbyy"
)


class Reached(NamedTuple):
    """A lineage of a thread's tree."""

    number: int
    upto: int | None
    """The last ordinal of it that belongs to the tree; None for those that the thread began."""
    parent: int | None
    cut: int
    pruned: int
    """Records up to this ordinal may be missing."""
    begun: int
    """Larger in children than in their parents."""
    free: bool
    """Begun by this thread, or by one that is deleted."""


def reach(thread_id: str) -> Work[list[Reached]]:
    """Every lineage of the thread's tree, in the order in which they began."""
    return [Reached(*row) for row in (yield from one(REACH(thread_id)))]


def record_of(number: int, row: Sequence[Any], *, effect: bool = False) -> Record:
    ordinal, id_, checkpoint, meta, data = row
    return Record(
        id=id_, lineage=number, ordinal=ordinal, checkpoint=checkpoint, meta=meta, data=data, effect=effect
    )  # fmt: skip


def read_records(thread_id: str, *, lineage: int, after: int, upto: int) -> Work[list[Record]]:
    tree = {step.number: step for step in (yield from reach(thread_id))}
    if lineage not in tree:
        return []
    limit, pruned = tree[lineage].upto, tree[lineage].pruned
    newest = yield from one(NEWEST(lineage))
    end, after = min(upto, newest[0][0] if newest else 0, upto if limit is None else limit), max(after, 0)
    if end <= after:
        return []
    rows = yield from one(_RECORDS(lineage, after + 1, end))
    whole = sum(row[0] > pruned for row in rows)  # up to there others may have been pruned
    wanted = max(end - max(after, pruned), 0)
    if whole != wanted:
        raise errors.missing_records(thread_id, wanted, whole)
    return [record_of(lineage, row) for row in rows]


def read_effects(thread_id: str, spans: Sequence[Span]) -> Work[list[Record]]:
    tree = {step.number: step.upto for step in (yield from reach(thread_id))}
    inside = [span for span in spans if span.lineage in tree]
    if not inside:
        return []
    limits = [span.upto if (upto := tree[span.lineage]) is None else min(span.upto, upto) for span in inside]
    found = yield [
        _WITH_EFFECT(span.lineage, span.after + 1, limit) for span, limit in zip(inside, limits, strict=True)
    ]
    return [record_of(span.lineage, row, effect=True) for span, rows in zip(inside, found, strict=True) for row in rows]
