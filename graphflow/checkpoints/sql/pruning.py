"""Taking checkpoints out of a store: what `checkpoints/pruning.py` decides, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphflow.checkpoints import errors, pruning
from graphflow.checkpoints.pruning import PruneBranch, PruneChange
from graphflow.checkpoints.rows import Keep, OpenInterrupt, Pruned
from graphflow.checkpoints.sql.changes import LAST, LOCK_THREAD, delete_thread, drop_lineage, record_drops
from graphflow.checkpoints.sql.lists import open_interrupts
from graphflow.checkpoints.sql.rows import READ_THREAD
from graphflow.checkpoints.sql.statement import Ask, Dialect, SharedStatement, Work, one
from graphflow.checkpoints.sql.trees import CHILDREN, EFFECTS, NEWEST, Reached, reach

_HEAD = SharedStatement("SELECT @number, t.ordinal FROM @.threads t WHERE t.id = $1", "d", "ii")
_STANDING = SharedStatement("SELECT id FROM @.threads WHERE head = $1 AND status IS NOT NULL LIMIT 1", "d", "d")
_CHECKPOINTS = SharedStatement(
    "SELECT @ordinal, id FROM @.records WHERE @lineage AND checkpoint ORDER BY @by", "l", "id"
)
_SNAPSHOTS = SharedStatement("SELECT @ordinal FROM @.snapshots WHERE @lineage ORDER BY @by", "l", "i")
_IS_THERE = SharedStatement("SELECT 1 FROM @.records WHERE @span", "lll", "i")
_WEIGHT = SharedStatement(
    "SELECT (SELECT count(*) FROM @.records WHERE @span),"
    " (SELECT CAST(coalesce(sum(length(meta) + length(data)), 0) AS bigint) FROM @.records WHERE @span),"
    " (SELECT CAST(coalesce(sum(length(data)), 0) AS bigint) FROM @.snapshots WHERE @span)",
    "lll",
    "iii",
)
_DROP_SNAPSHOT = SharedStatement("DELETE FROM @.snapshots WHERE @span", "lll")
_HIDE = SharedStatement("UPDATE @.records SET checkpoint = false WHERE @span", "lll")
_MARK = SharedStatement("UPDATE @.lineages SET pruned = @greatest(pruned, $2) WHERE number = $1", "li")


class _Tree(NamedTuple):
    """The branches of a thread under the numbers by which `pruning` orders them, and what the store knows them by."""

    branches: list[PruneBranch]
    numbers: dict[int, int]
    newest: dict[int, int]
    """Of each lineage the last ordinal that is there."""


def prune(db: Dialect, thread_id: str, keep: Keep, *, dry_run: bool) -> Work[Pruned]:
    # Whoever prunes holds the trees alone: a fork in between could build on rows that are about to go.
    locks = [] if dry_run else [*db.lock_trees, LOCK_THREAD(thread_id)]
    *_, there = yield [*locks, READ_THREAD(thread_id)]
    if not there:
        raise errors.unknown_thread(thread_id)
    tree = yield from _tree(thread_id, (yield from reach(thread_id)), keep.records)
    kept = pruning.chosen(tree.branches, keep, (yield from _interrupts(thread_id)))
    changes = pruning.plan(tree.branches, kept)
    gaps = [(tree.numbers[change.lineage], *gap) for change in changes for gap in change.gaps()]
    # Before anything is removed, or nothing would be left to weigh.
    weights = yield [_WEIGHT(*gap) for gap in gaps]
    if not dry_run:
        yield _asks(db, tree, changes)
    dropped = [(count, size + snapshots) for ((count, size, snapshots),) in weights]
    return pruning.summed(tree.branches, kept, dropped)


def delete_checkpoint(db: Dialect, thread_id: str, checkpoint_id: str) -> Work[None]:
    *_, there = yield [*db.lock_trees, LOCK_THREAD(thread_id), READ_THREAD(thread_id)]
    if not there:
        raise errors.unknown_thread(thread_id)
    if not (yield from one(db.find_checkpoint(thread_id, checkpoint_id))):
        raise errors.unknown_checkpoint(thread_id, checkpoint_id)
    reached = yield from reach(thread_id)
    shown = yield [_CHECKPOINTS(step.number) for step in reached]
    mine = zip(reached, shown, strict=True)
    if sum(step.upto is None or ordinal <= step.upto for step, rows in mine for ordinal, _ in rows) == 1:
        yield from delete_thread(db, thread_id)
        return
    tree = yield from _tree(thread_id, reached)
    standing = yield from one(_STANDING(checkpoint_id))
    interrupts = yield from _interrupts(thread_id)
    pruning.check_deletion(
        thread_id, checkpoint_id, tree.branches, standing[0][0] if standing else None, interrupts
    )  # fmt: skip
    yield _asks(db, tree, pruning.plan(tree.branches, pruning.all_but(tree.branches, checkpoint_id)))


EVERYTHING = 1 << 62


def _interrupts(thread_id: str) -> Work[list[OpenInterrupt]]:
    return (yield from open_interrupts(thread_id=thread_id, limit=EVERYTHING))


def _tree(thread_id: str, reached: Sequence[Reached], wanted: Sequence[tuple[int, int]] = ()) -> Work[_Tree]:
    """The thread's branches whose rows may go: its own, and those that deleted threads left.

    Args:
        wanted: `Keep.records`.
    """
    begun = {step.number: step.begun for step in reached}
    free = {step.number: step for step in reached if step.free}
    asks: list[Ask] = [_HEAD(thread_id), CHILDREN(thread_id)]
    asks += [_IS_THERE(number, ordinal, ordinal) for number, ordinal in wanted]
    for number in free:
        asks += [_CHECKPOINTS(number), _SNAPSHOTS(number), EFFECTS(number, 1, LAST), NEWEST(number)]
    heads, children, *rest = yield asks
    is_there, rows = rest[: len(wanted)], iter(rest[len(wanted) :])
    # `rows` has the four answers for each lineage, in the order in which they were asked for.
    branches: dict[int, PruneBranch] = {}
    newest: dict[int, int] = {}
    for number, step in free.items():
        checkpoints, snapshots, effects, last = next(rows), next(rows), next(rows), next(rows)
        branches[number] = PruneBranch(
            lineage=step.begun,
            parent=None if step.parent is None else begun[step.parent],
            cut=step.cut,
            upto=step.upto,
            checkpoints=dict(checkpoints),
            snapshots=[ordinal for (ordinal,) in snapshots],
            effects=[ordinal for (ordinal,) in effects],
            head=heads[0][1] if heads[0][0] == number else None,
        )
        newest[number] = last[0][0] if last else 0
    for parent, child, cut in children:
        if parent in branches and child not in free:
            branches[parent].forks.add(cut)
    for (number, ordinal), found in zip(wanted, is_there, strict=True):
        if found and number in branches:
            branches[number].wanted.add(ordinal)
    return _Tree(list(branches.values()), {place: number for number, place in begun.items()}, newest)


def _asks(db: Dialect, tree: _Tree, changes: Sequence[PruneChange]) -> list[Ask]:
    asks: list[Ask] = []
    for change in changes:
        number, gaps = tree.numbers[change.lineage], change.gaps()
        newest = tree.newest[number]
        last = newest if newest >= gaps[-1][0] else gaps[-2][1] if len(gaps) > 1 else 0
        asks.append(_MARK(number, last))  # says up to where records are missing, before they are
        asks += [statement(number, *gap) for gap in gaps for statement in record_drops(db)]
        asks += [_DROP_SNAPSHOT(number, ordinal, ordinal) for ordinal in change.islands]
        asks += [_HIDE(number, ordinal, ordinal) for ordinal in change.hidden]
        asks.append(db.drop_items(number, change.last))
        if change.gone:
            asks += drop_lineage(db, number)
    return asks
