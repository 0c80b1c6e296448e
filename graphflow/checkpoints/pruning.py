"""What a prune may take away: decided here for every store, without reading a row's content.

A store gathers the branches of a thread (`PruneBranch`), asks `chosen` which checkpoints are left and `plan` what follows
from that, and removes the rows of each `PruneChange`. A checkpoint is loaded from the newest snapshot at or before it
and the records after that, so the rows that have to stay are stretches that end in something that must be loadable and
begin with its snapshot. Everything between them goes; a checkpoint whose row has to stay as a part of a later one's
stretch stays as a record that history does not show.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import Keep, OpenInterrupt, Pruned

Range = tuple[int, int]
"""First and last ordinal, both included."""
END = (1 << 32) - 1
"""Beyond every ordinal."""


class PruneBranch(msgspec.Struct, kw_only=True):
    """One lineage whose rows may go: begun by the thread, or by one that is deleted."""

    lineage: int
    """Any number of the store's that is larger in children than in their parents."""
    parent: int | None
    cut: int
    upto: int | None = None
    """None where the thread itself began it; else the last record that belongs to the thread's tree: what follows
    belongs to other threads."""
    checkpoints: dict[int, str] = msgspec.field(default_factory=dict)
    """Ordinal → id, oldest first."""
    snapshots: list[int] = msgspec.field(default_factory=list)
    """Ordinals with a snapshot, sorted."""
    effects: list[int] = msgspec.field(default_factory=list)
    """Ordinals of records with `effect`, sorted."""
    head: int | None = None
    """Where the thread stands, if it stands in this lineage; 0 when it is still empty."""
    forks: set[int] = msgspec.field(default_factory=set)
    """Cuts of the lineages that others began from this one."""
    wanted: set[int] = msgspec.field(default_factory=set)
    """Ordinals of `Keep.records`."""


class PruneChange(msgspec.Struct, kw_only=True):
    """What happens to a lineage's rows."""

    lineage: int
    gone: bool = False
    """Nothing is left of it, nor of its row."""
    ranges: list[Range] = msgspec.field(default_factory=list)
    """Records that stay, with their snapshots; sorted."""
    islands: list[int] = msgspec.field(default_factory=list)
    """Single records that stay for the effects in them, without their snapshots; sorted, outside the ranges."""
    last: int = 0
    """Log entries of later records go."""
    hidden: list[int] = msgspec.field(default_factory=list)
    """Checkpoints whose rows stay but that history no longer shows."""

    def gaps(self) -> list[Range]:
        """The records that go, as ranges; the last one is that of all that follow what stays."""
        out, after = [], 0
        for first, last in sorted([*self.ranges, *((n, n) for n in self.islands)]):
            if first > after + 1:
                out.append((after + 1, first - 1))
            after = last
        return [*out, (after + 1, END)]


def check_keep(thread_id: str, keep: Keep) -> None:
    """Refuses a `Keep` that names nothing.

    Raises:
        GraphflowError: `invalid_input`.
    """
    if (keep.newest is None and keep.since is None) or min(keep.newest or 0, keep.since or 0) < 0:
        raise errors.nothing_to_keep(thread_id, keep.newest, keep.since)


def chosen(branches: Sequence[PruneBranch], keep: Keep, interrupts: Iterable[OpenInterrupt]) -> set[str]:
    """Ids of the checkpoints that stay in the history."""
    needed = {checkpoint_of(interrupt.interrupt_id) for interrupt in interrupts}
    out: set[str] = set()
    left = keep.newest or 0
    # A thread only writes to its newest lineage, so later lineages have the newer checkpoints.
    for branch in sorted(branches, key=lambda branch: branch.lineage, reverse=True):
        anchors = {*branch.forks, branch.head}
        for ordinal, checkpoint_id in reversed(branch.checkpoints.items()):
            if branch.upto is not None and ordinal > branch.upto:
                # What follows the cut belongs to other threads: it stays, and does not count as this one's newest.
                out.add(checkpoint_id)
                continue
            if left > 0 or _is_since(checkpoint_id, keep.since) or ordinal in anchors or checkpoint_id in needed:
                out.add(checkpoint_id)
            left -= 1
    # A resume goes on from the head, so its checkpoint stays whatever `keep` says.
    head = newest_at_head(branches)
    return out if head is None else {*out, head}


def newest_at_head(branches: Sequence[PruneBranch]) -> str | None:
    """The newest checkpoint at or before the head, where that lies in these branches."""
    by_lineage = {branch.lineage: branch for branch in branches}
    branch = next((branch for branch in branches if branch.head is not None), None)
    upto = 0 if branch is None else branch.head or 0
    while branch is not None:
        found = [ordinal for ordinal in branch.checkpoints if ordinal <= upto]
        if found:
            return branch.checkpoints[found[-1]]
        upto = branch.cut
        branch = None if branch.parent is None else by_lineage.get(branch.parent)
    return None


def all_but(branches: Sequence[PruneBranch], checkpoint_id: str) -> set[str]:
    """Ids of all checkpoints but one."""
    return {name for branch in branches for name in branch.checkpoints.values()} - {checkpoint_id}


def check_deletion(
    thread_id: str,
    checkpoint_id: str,
    branches: Sequence[PruneBranch],
    standing: str | None,
    interrupts: Iterable[OpenInterrupt],
) -> None:
    """Refuses to delete a checkpoint that somebody needs as such.

    Args:
        standing: the thread whose head it is.

    Raises:
        GraphflowError: `invalid_input`.
    """
    why = None
    if standing is not None:
        why = f"thread {standing!r} stands on it; rewind that thread or delete it first"
    elif any(checkpoint_of(interrupt.interrupt_id) == checkpoint_id for interrupt in interrupts):
        why = "it opened an interrupt that still waits; answer that first"
    elif all(checkpoint_id not in branch.checkpoints.values() for branch in branches):
        why = "it belongs to the thread that this one was forked from; delete it there"
    if why is not None:
        raise errors.checkpoint_in_use(thread_id, checkpoint_id, why)


def summed(branches: Sequence[PruneBranch], kept: Collection[str], dropped: Iterable[tuple[int, int]]) -> Pruned:
    """The report of a prune; `dropped` has the records and bytes of each change."""
    rows = list(dropped)
    total = sum(len(branch.checkpoints) for branch in branches)
    left = sum(name in kept for branch in branches for name in branch.checkpoints.values())
    return Pruned(checkpoints=total - left, records=sum(n for n, _ in rows), size=sum(n for _, n in rows), kept=left)


def checkpoint_of(interrupt_id: str) -> str:
    """The checkpoint that opened an interrupt: its id stands before the last dot of the interrupt's (E8)."""
    return interrupt_id.rpartition(".")[0]


def _is_since(checkpoint_id: str, since: int | None) -> bool:
    """Whether the id's time (the first 48 bits of a UUIDv7) is not before that moment; True for an id without time."""
    if since is None:
        return False
    # Ids of other forms carry no time (an import may bring them); when in doubt a checkpoint stays.
    if len(checkpoint_id) != 36 or checkpoint_id[14] != "7":
        return True
    try:
        return int(checkpoint_id[:8] + checkpoint_id[9:13], 16) >= since
    except ValueError:
        return True


def plan(branches: Sequence[PruneBranch], kept: Collection[str]) -> list[PruneChange]:
    """What happens to each branch when only these checkpoints are left, children before parents."""
    children: dict[int, list[PruneBranch]] = {}
    for branch in branches:
        if branch.parent is not None:
            children.setdefault(branch.parent, []).append(branch)
    own = {branch.lineage for branch in branches if branch.upto is None}
    changes: dict[int, PruneChange] = {}
    needy: set[int] = set()
    # Children before parents: what a child still needs of its parent is known then.
    for branch in sorted(branches, key=lambda branch: branch.lineage, reverse=True):
        alive = [child for child in children.get(branch.lineage, ()) if not changes[child.lineage].gone]
        needed = {n for n, checkpoint_id in branch.checkpoints.items() if checkpoint_id in kept}
        # A child without a snapshot of its own is loaded from its parent's rows up to the cut.
        needed |= branch.forks | {child.cut for child in alive if child.lineage in needy}
        if branch.head is not None:
            needed.add(branch.head)
        shared = [child.cut for child in alive]
        # An empty branch of a past that other threads began is the tie to that past, without which it is not reached.
        tied = branch.lineage in own and branch.parent is not None and branch.parent not in own
        gone = not (needed or alive or tied or branch.wanted)
        change = PruneChange(lineage=branch.lineage, gone=gone, last=max([*needed, *shared], default=0))
        change.ranges, needs_parent = stretches(sorted(needed), branch.snapshots)
        if needs_parent:
            needy.add(branch.lineage)
        changes[branch.lineage] = change
    _keep_effects(branches, changes, kept)
    for branch in branches:
        change = changes[branch.lineage]
        stays = set(change.islands)
        change.hidden = [
            n
            for n, checkpoint_id in branch.checkpoints.items()
            if checkpoint_id not in kept and (n in stays or _is_in(n, change.ranges))
        ]
    return list(changes.values())


def stretches(needed: Sequence[int], snapshots: Sequence[int]) -> tuple[list[Range], bool]:
    """The ranges that these ordinals are loaded from, and whether one of them needs what lies before the lineage."""
    out: list[Range] = []
    before = False
    for ordinal in needed:
        index = bisect_right(snapshots, ordinal)
        # A snapshot replaces all records before it; without one, the stretch begins with the lineage.
        first = snapshots[index - 1] if index else 1
        before = before or not index
        # Ordinal 0 is the cut itself: an empty lineage needs only its parent.
        if not ordinal:
            continue
        if out and out[-1][1] >= first - 1:
            out[-1] = (min(out[-1][0], first), ordinal)
        else:
            out.append((first, ordinal))
    return out, before


def _keep_effects(branches: Sequence[PruneBranch], changes: dict[int, PruneChange], kept: Collection[str]) -> None:
    """Leaves the effects that a rewind to a kept checkpoint would pass over."""
    by_lineage = {branch.lineage: branch for branch in branches}
    covered: dict[int | None, bool] = {}
    for branch in sorted(branches, key=lambda branch: branch.lineage):
        shown = [n for n, checkpoint_id in branch.checkpoints.items() if checkpoint_id in kept]
        parent = by_lineage.get(branch.parent) if branch.parent is not None else None
        # An ancestor outside of these branches is left whole, so there is a checkpoint to rewind to.
        covered[branch.lineage] = branch.parent is not None and (
            parent is None
            or covered[parent.lineage]
            or any(n <= branch.cut for n, name in parent.checkpoints.items() if name in kept)
        )
        change = changes[branch.lineage]
        # With a checkpoint before the lineage a rewind may pass over all of its effects, else only over those after its
        # first checkpoint.
        first = 0 if covered[branch.lineage] else min(shown, default=change.last)
        islands = {n for n in branch.effects if first < n <= change.last} | branch.wanted
        change.islands = sorted(n for n in islands if not _is_in(n, change.ranges))


def _is_in(ordinal: int, ranges: Sequence[Range]) -> bool:
    index = bisect_left(ranges, (ordinal + 1,)) - 1
    return index >= 0 and ordinal <= ranges[index][1]
