"""Taking checkpoints out of the PostgreSQL store: what `pruning.py` decides, as rows.

Each function runs inside one transaction. What changes something holds the lock on all trees and the thread's row, so that
neither a new branch nor a commit of the thread comes between the decision and its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints import pruning
from graphflow.checkpoints.postgres.changes import DROP_LINEAGE, LOCK_THREAD, LOCK_TREES, delete_thread
from graphflow.checkpoints.postgres.pipeline import Call, Statement
from graphflow.checkpoints.postgres.pool import Transaction
from graphflow.checkpoints.postgres.reader import WHOLE, find_checkpoint, reach
from graphflow.checkpoints.postgres.rows import INTERRUPT_COLUMNS, INTERRUPT_TYPES, READ_THREAD, interrupt_row
from graphflow.checkpoints.pruning import Branch, Change
from graphflow.checkpoints.rows import Keep, OpenInterrupt, Pruned

_INTERRUPTS = Statement(
    f"SELECT {INTERRUPT_COLUMNS} FROM @.interrupts WHERE thread = $1",  # noqa: S608 – constants only
    "t",
    INTERRUPT_TYPES,
)
_BRANCHES = Statement(
    "SELECT number FROM @.lineages WHERE number = ANY($1) AND (thread IS NULL OR thread = $2)", "Lt", "i"
)
_FORKS = Statement(
    "SELECT parent, cut FROM @.lineages WHERE parent = ANY($1) AND NOT number = ANY($1)", "L", "ii"
)  # fmt: skip
_HEAD = Statement("SELECT lineage, ordinal FROM @.threads WHERE id = $1", "t", "ii")
_STANDING = Statement("SELECT id FROM @.threads WHERE head = $1 AND status IS NOT NULL LIMIT 1", "t", "t")
_CHECKPOINTS = Statement(
    "SELECT lineage, ordinal, id FROM @.records WHERE lineage = ANY($1) AND checkpoint ORDER BY lineage, ordinal",
    "L",
    "iit",
)
_SNAPSHOTS = Statement("SELECT lineage, ordinal FROM @.snapshots WHERE lineage = ANY($1) ORDER BY 1, 2", "L", "ii")
_EFFECTS = Statement(
    "SELECT lineage, ordinal FROM @.records WHERE lineage = ANY($1) AND effect ORDER BY 1, 2", "L", "ii"
)
_IS_THERE = Statement("SELECT 1 FROM @.records WHERE lineage = $1 AND ordinal = $2", "ll", "i")
_NEWEST = Statement(
    "SELECT l.number, (SELECT max(ordinal) FROM @.records r WHERE r.lineage = l.number) FROM @.lineages l"
    " WHERE l.number = ANY($1)",
    "L",
    "ii",
)

_IN = "lineage = $1 AND ordinal BETWEEN $2 AND $3"
_WEIGH = Statement(
    f"SELECT (SELECT count(*) FROM @.records WHERE {_IN}),"  # noqa: S608 – constants only
    f" (SELECT coalesce(sum(length(meta) + length(data)), 0)::bigint FROM @.records WHERE {_IN}),"
    f" (SELECT coalesce(sum(length(data)), 0)::bigint FROM @.snapshots WHERE {_IN})",
    "lll",
    "iii",
)
_DROP_RECORDS = Statement(f"DELETE FROM @.records WHERE {_IN}", "lll")  # noqa: S608 – constants only
_DROP_SNAPSHOTS = Statement(f"DELETE FROM @.snapshots WHERE {_IN}", "lll")  # noqa: S608 – constants only
_DROP_SNAPSHOTS_AT = Statement("DELETE FROM @.snapshots WHERE lineage = $1 AND ordinal = ANY($2)", "lL")
_HIDE = Statement("UPDATE @.records SET checkpoint = false WHERE lineage = $1 AND ordinal = ANY($2)", "lL")
_DROP_ITEMS = Statement("DELETE FROM @.items WHERE lineage = $1 AND record > $2", "li")
_MARK = Statement("UPDATE @.lineages SET pruned = greatest(pruned, $2) WHERE number = $1", "li")


async def prune(db: Transaction, thread_id: str, keep: Keep, *, dry_run: bool) -> Pruned:
    if not dry_run:
        await db.run(LOCK_TREES(), LOCK_THREAD(thread_id))
    if not await db.rows(READ_THREAD(thread_id)):
        raise refusals.unknown_thread(thread_id)
    tree = await _branches(db, thread_id, keep.records)
    kept = pruning.chosen(tree.branches, keep, await _interrupts(db, thread_id))
    changes = pruning.plan(tree.branches, kept)
    dropped = await _dropped(db, tree, changes)
    if not dry_run:
        await _apply(db, tree, changes)
    return pruning.summed(tree.branches, kept, dropped)


async def delete_checkpoint(db: Transaction, thread_id: str, checkpoint_id: str) -> None:
    await db.run(LOCK_TREES(), LOCK_THREAD(thread_id))
    if not await db.rows(READ_THREAD(thread_id)):
        raise refusals.unknown_thread(thread_id)
    if await find_checkpoint(db, thread_id, checkpoint_id) is None:
        raise refusals.unknown_checkpoint(thread_id, checkpoint_id)
    reached = {step.number: step.upto for step in await reach(db, thread_id)}
    shown = await db.rows(_CHECKPOINTS(list(reached)))
    if sum(ordinal <= reached[number] for number, ordinal, _ in shown) == 1:
        await delete_thread(db, thread_id)
        return
    tree = await _branches(db, thread_id)
    standing = await db.row(_STANDING(checkpoint_id))
    pruning.check_deletion(
        thread_id, checkpoint_id, tree.branches, standing[0] if standing else None, await _interrupts(db, thread_id)
    )
    await _apply(db, tree, pruning.plan(tree.branches, pruning.all_but(tree.branches, checkpoint_id)))


class _Tree:
    """The branches of a thread under the numbers by which `pruning` orders them, and the port's number of each."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers = numbers
        self.branches: list[Branch] = []
        self.newest: dict[int, int] = {}
        """The port's number → the last ordinal that is there."""


async def _interrupts(db: Transaction, thread_id: str) -> list[OpenInterrupt]:
    return [interrupt_row(row) for row in await db.rows(_INTERRUPTS(thread_id))]


async def _branches(db: Transaction, thread_id: str, wanted: Sequence[tuple[int, int]] = ()) -> _Tree:
    """The thread's branches whose rows may go: its own, and those that deleted threads left.

    Args:
        wanted: `Keep.records`.
    """
    reached = {step.number: step for step in await reach(db, thread_id)}
    scope = {row[0] for row in await db.rows(_BRANCHES(list(reached), thread_id))}
    numbers = [number for number in reached if number in scope]  # in the order in which they began
    heads, forks, checkpoints, snapshots, effects, newest = await db.run(
        _HEAD(thread_id),
        _FORKS(numbers),
        _CHECKPOINTS(numbers),
        _SNAPSHOTS(numbers),
        _EFFECTS(numbers),
        _NEWEST(numbers),
    )
    begun = {number: step.begun for number, step in reached.items()}
    head_lineage, head_ordinal = heads[0]
    branches = {
        number: Branch(
            lineage=begun[number],
            parent=None if reached[number].parent is None else begun[reached[number].parent or 0],
            cut=reached[number].cut,
            upto=None if reached[number].upto == WHOLE else reached[number].upto,
            head=head_ordinal if head_lineage == number else None,
        )
        for number in numbers
    }
    for number, cut in forks:
        branches[number].forks.add(cut)
    for number, ordinal, name in checkpoints:
        branches[number].checkpoints[ordinal] = name
    for number, ordinal in snapshots:
        branches[number].snapshots.append(ordinal)
    for number, ordinal in effects:
        branches[number].effects.append(ordinal)
    for number, ordinal in wanted:
        if number in branches and await db.rows(_IS_THERE(number, ordinal)):
            branches[number].wanted.add(ordinal)
    tree = _Tree({place: number for number, place in begun.items()})
    tree.newest = {number: ordinal or 0 for number, ordinal in newest}
    tree.branches = list(branches.values())
    return tree


async def _dropped(db: Transaction, tree: _Tree, changes: Sequence[Change]) -> list[tuple[int, int]]:
    """How many records each gap takes away, and their bytes; entries of logs are not counted, for most stay."""
    gaps = [(tree.numbers[change.lineage], *gap) for change in changes for gap in change.gaps()]
    rows = await db.run(*[_WEIGH(*gap) for gap in gaps]) if gaps else []
    return [(count, size + snapshots) for ((count, size, snapshots),) in rows]


async def _apply(db: Transaction, tree: _Tree, changes: Sequence[Change]) -> None:
    calls: list[Call] = []
    for change in changes:
        number = tree.numbers[change.lineage]
        calls.append(_mark(tree, change))  # before the rows are missing
        for gap in change.gaps():
            calls += [_DROP_RECORDS(number, *gap), _DROP_SNAPSHOTS(number, *gap)]
        calls += [
            _DROP_SNAPSHOTS_AT(number, change.islands),
            _HIDE(number, change.hidden),
            _DROP_ITEMS(number, change.last),
        ]
        if change.gone:
            calls.append(DROP_LINEAGE(number))
    if calls:
        await db.run(*calls)


def _mark(tree: _Tree, change: Change) -> Call:
    """Says up to where records are missing."""
    number, gaps = tree.numbers[change.lineage], change.gaps()
    newest = tree.newest.get(number, 0)
    last = newest if newest >= gaps[-1][0] else gaps[-2][1] if len(gaps) > 1 else 0
    return _MARK(number, last)
