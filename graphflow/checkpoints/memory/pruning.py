"""Taking threads and checkpoints out of the memory store: what `pruning.py` decides, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphflow.checkpoints import errors, pruning
from graphflow.checkpoints.memory.rows import HeldThread, LineageRows, find_checkpoint, reach
from graphflow.checkpoints.memory.tables import Tables
from graphflow.checkpoints.pruning import PruneBranch, PruneChange
from graphflow.checkpoints.rows import Keep, Pruned


def delete_thread(tables: Tables, thread_id: str) -> None:
    thread = tables.threads.get(thread_id)
    if thread is not None:
        tables.drop_thread(thread)
        # Lineages that other threads share stay; only what nobody reaches any more is dropped.
        _trim(tables, reach(thread))


def _trim(tables: Tables, left: Iterable[LineageRows]) -> None:
    """Drops what only the deleted thread reached: whole lineages, and rows behind the last cut."""
    needed: dict[LineageRows, int] = {}
    for thread in tables.threads.values():
        for lineage, upto in reach(thread).items():
            needed[lineage] = max(needed.get(lineage, 0), upto)
    for lineage in left:
        if lineage not in needed:
            del tables.lineages[lineage.number]
        elif needed[lineage] < len(lineage.records):
            lineage.trim(needed[lineage])


def delete_checkpoint(tables: Tables, thread_id: str, checkpoint_id: str) -> None:
    thread = tables.known(thread_id)
    if find_checkpoint(thread, checkpoint_id) is None:
        raise errors.unknown_checkpoint(thread_id, checkpoint_id)
    shown = (r.id for rows, upto in reach(thread).items() for r in rows.found(0, upto) if r.checkpoint)
    if all(shown_id == checkpoint_id for shown_id in shown):
        delete_thread(tables, thread_id)
        return
    branches = branches_of(tables, thread)
    standing = next((other.id for other in tables.threads.values() if other.head == checkpoint_id), None)
    pruning.check_deletion(thread_id, checkpoint_id, branches, standing, tables.interrupts_of(thread_id))
    _apply(tables, pruning.plan(branches, pruning.all_but(branches, checkpoint_id)))


def prune(tables: Tables, thread_id: str, keep: Keep, *, dry_run: bool) -> Pruned:
    thread = tables.known(thread_id)
    branches = branches_of(tables, thread, keep.records)
    kept = pruning.chosen(branches, keep, tables.interrupts_of(thread_id))
    changes = pruning.plan(branches, kept)
    # `pruning` knows lineages by the order of their beginning, not by the port's numbers.
    lineages = {rows.order: rows for rows in reach(thread)}
    # Weighed before anything is removed.
    dropped = [lineages[change.lineage].dropped(change) for change in changes]
    if not dry_run:
        _apply(tables, changes)
    return pruning.summed(branches, kept, dropped)


def branches_of(tables: Tables, thread: HeldThread, wanted: Sequence[tuple[int, int]] = ()) -> list[PruneBranch]:
    """The thread's branches whose rows may go: its own, and those that deleted threads left.

    Args:
        wanted: `Keep.records`.
    """
    scope = {
        rows: None if rows.thread_id == thread.id else upto
        for rows, upto in reach(thread).items()
        if rows.thread_id == thread.id or rows.thread_id not in tables.threads
    }
    others = [rows for rows in tables.lineages.values() if rows not in scope]
    return [
        PruneBranch(
            lineage=lineage.order,
            parent=None if lineage.parent is None else lineage.parent.order,
            cut=lineage.cut,
            upto=upto,
            checkpoints={r.ordinal: r.id for r in lineage.found(0, len(lineage.records)) if r.checkpoint},
            snapshots=lineage.snapshots,
            effects=[r.ordinal for r in lineage.found(0, len(lineage.records)) if r.effect],
            head=thread.ordinal if lineage is thread.lineage else None,
            forks={other.cut for other in others if other.parent is lineage},
            wanted={n for number, n in wanted if number == lineage.number and lineage.found(n - 1, n)},
        )
        for lineage, upto in scope.items()
    ]


def _apply(tables: Tables, changes: Sequence[PruneChange]) -> None:
    lineages = {rows.order: rows for rows in tables.lineages.values()}
    for change in changes:
        rows = lineages[change.lineage]
        if not change.gone:
            rows.apply(change)
            continue
        del tables.lineages[rows.number]
        if (owner := tables.threads.get(rows.thread_id)) is not None and rows in owner.lineages:
            owner.lineages.remove(rows)
