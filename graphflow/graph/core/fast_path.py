"""Fast path for the most common tick: a node has succeeded, and the next node of its frame begins, or its branch ends
while others still run. No interrupt is open, and nothing is counted but steps.

It returns what `transition.full_path` returns, in a third of the time, and leaves everything else to it: interrupts,
breakpoints, recorded operations, usage, joins, the end of a graph, a used-up budget, a failure of any kind.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from msgspec.structs import replace

from graphflow.errors import NodeFailed
from graphflow.graph.core.channels import Update, apply_update
from graphflow.graph.core.commands import Command, Commit, Ended, RunNode, Started
from graphflow.graph.core.fan_out import alike, at_once, opens_alike, path_below
from graphflow.graph.core.immutable import State, copied
from graphflow.graph.core.machine import ROOT, BranchState, Frame, FramePatch, JoinState, Machine, Patch
from graphflow.graph.core.patches import gave, wrote
from graphflow.graph.core.plan import FanOut, Plan, PlanNode
from graphflow.graph.core.scope import Scope, limits_in, result_of
from graphflow.graph.core.ticks import NodeSucceeded
from graphflow.graph.core.unit_of_work import raw_writes
from graphflow.graph.definition.document import END

_RUN = RunNode(ROOT)
Frames = MutableMapping[int, Frame]
FramePatches = dict[int, FramePatch | None]


def fast_path(plan: Plan, machine: Machine, tick: NodeSucceeded) -> tuple[Machine, list[Command]] | None:
    """The result of `advance` for this tick; None if only `full_path` can compute it."""
    if machine.interrupts or machine.before or machine.after or machine.wrapping or machine.status != "running":
        return None
    number = tick.frame
    frame = machine.frames[number]
    home = plan.graphs[frame.graph]
    node = home.nodes.get(frame.node)
    if node is None or not _goes_straight(tick, frame, home, node):
        return None
    try:
        state, branch, update, raw = _written(machine, frame, home, node, tick)
        first = node.routes[0]
        taken = (first.to, None) if first.when is None else _taken(machine, frame, state, home, node, tick.out)
    # The machine is unchanged, so `full_path` may do all of it again and report the failure.
    except NodeFailed:
        return None
    if taken is None:
        return None
    to, facts = taken
    steps, begun, made = machine.steps + 1, machine.begun, machine.frames_made
    fields: dict[str, Any] = {"last_at": tick.at, "steps": steps}
    follows: tuple[Command, ...] = ()
    if to == END:
        ended = replace(frame, state=state, branch=branch)
        left = _left(plan, machine, ended, tick.out, FramePatch({}, update, None, None, raw))
        if left is None:
            return None
        table, patches, opened = left
        if opened is not None:
            fields["frames_made"] = made = opened.number + 1
            fields["begun"] = begun = begun + 1
            follows = (Started(opened.number, opened.node, 1, 1, begun, opened.path), RunNode(opened.number))
    else:
        moved_on = _moved_on(machine, frame, state, branch, home, to, steps)
        if moved_on is None:
            return None
        table, visit, visits = moved_on
        patches = {number: FramePatch({"node": to, "visit": visit}, update, None, visits, raw)}
        fields["begun"] = begun = begun + 1
        follows = (Started(number, to, visit, 1, begun, frame.path), RunNode(number) if number else _RUN)
    active = machine.active_ms
    if machine.last_at and tick.at > machine.last_at:
        active = fields["active_ms"] = active + tick.at - machine.last_at
    after = replace(
        machine, active_ms=active, last_at=tick.at, steps=steps, begun=begun, frames=table, frames_made=made
    )
    patch = Patch(fields, patches, {})
    commit = Commit(tick.id, tick.at, "node", True, patch, node.name, number, facts, machine, after)
    writes = () if update is None else (*update.sets, *update.logs, *update.merges)
    return after, [commit, Ended(number, node.name, writes), *follows]


def _goes_straight(tick: NodeSucceeded, frame: Frame, home: Plan, node: PlanNode) -> bool:
    """Whether the node's end is nothing but writes and a route."""
    if (
        not node.plain
        or tick.goto is not None
        or tick.usage
        or tick.finish
        or tick.facts
        or home.before
        or home.after
        or frame.operations
        or frame.error
        or frame.passed
        or frame.attempt != 1
        or frame.status != "ready"
    ):
        return False
    route = node.routes[0]
    return route.to != END or route.when is not None or frame.branch is not None


def _written(
    machine: Machine, frame: Frame, home: Plan, node: PlanNode, tick: NodeSucceeded
) -> tuple[State, BranchState | None, Update | None, dict[str, list[Any]] | None]:
    """The state and branch after the node's writes, the update, and the raw values that a branch keeps.

    Raises:
        NodeFailed: a value can't be computed or written.
    """
    updates = tick.updates
    if node.sets:
        given = {"out": tick.out, "answer": None}
        scope = Scope(frame, limits_in(home, frame, machine.limits), machine.usage, given)
        computed = {key: expression.evaluate(scope) for key, expression in node.sets}
        updates = {**computed, **updates} if updates else computed
    if not updates:
        return frame.state, frame.branch, None, None
    if home.schema.plain is not None:
        updates = home.schema.plain(updates)
    update = home.schema.reduce(frame.state, updates)
    state = apply_update(frame.state, update)
    if frame.branch is None:
        return state, None, update, None
    raw = raw_writes(home.schema, update, updates)
    return state, wrote(frame.branch, update, raw), update, raw


def _taken(
    machine: Machine, frame: Frame, state: State, home: Plan, node: PlanNode, out: Any
) -> tuple[str, dict[str, Any] | None] | None:
    """The route that the conditions choose, and the fact for the record; None if a condition is not a boolean."""
    given = {"out": out, "answer": None, "state": state}
    scope = Scope(frame, limits_in(home, frame, machine.limits), machine.usage, given)
    for index, route in enumerate(node.routes):
        value = route.when is None or route.when.evaluate(scope)
        if value is True:
            return route.to, {"route": index}
        # Not a boolean: the full path makes the error.
        if value is not False:
            return None
    return None


def _moved_on(
    machine: Machine, frame: Frame, state: State, branch: BranchState | None, home: Plan, to: str, steps: int
) -> tuple[Frames, int, dict[str, int] | None] | None:
    """The frames with this one at its next node, its visit, and the count to store; None if it can't go there."""
    target, limit = home.nodes.get(to), machine.limits.get("steps")
    # Every frame of the table holds a step in reserve. At the limit the full path makes the error.
    if target is None or (limit is not None and steps + len(machine.frames) > limit):
        return None
    visit, visits = 1, None
    if target.counted:
        visit = frame.visits.get(to, 0) + 1
        visits = {to: visit}
        counted = {**frame.visits, to: visit}
        moved_on = replace(frame, node=to, visit=visit, visits=counted, state=state, branch=branch)
    else:
        moved_on = replace(frame, node=to, visit=1, state=state, branch=branch)
    if len(machine.frames) == 1:
        return {frame.number: moved_on}, visit, visits
    table = copied(machine.frames)
    table[frame.number] = moved_on
    return table, visit, visits


def _left(
    plan: Plan, machine: Machine, frame: Frame, out: Any, patch: FramePatch
) -> tuple[Frames, FramePatches, Frame | None] | None:
    """The frames after a branch has ended, their patches, and the branch that takes its place.

    None if a join follows, or another branch that this module can't open.

    Args:
        frame: with the writes of its last node.
        out: the output of its last node.
        patch: holds these writes; the end of the branch is added to it.
    """
    if frame.branch is None:
        return None
    parent = machine.frames[frame.parent]
    join, node = parent.join, plan.graphs[parent.graph].nodes[parent.node]
    assert join is not None and node.fan is not None
    # The tick that completes the join has more to do than this one.
    if (join.running == 1 and not join.pending) or join.counted + 1 >= node.fan.needed(join.total):
        return None
    if join.pending and not _takes_over(plan, machine, parent, node.fan):
        return None
    if frame.graph != parent.graph:
        home = plan.graphs[frame.graph]
        try:
            out = result_of(home, frame, Scope(frame, limits_in(home, frame, machine.limits), machine.usage, {}))
        except NodeFailed:
            return None
    patch.fields = {"status": "done", "node": END}
    branch = frame.branch
    if node.fan.keeps_out and out is not None:
        patch.fields["branch"] = given = gave(branch, out)
        branch = replace(given, own=branch.own)
    total, pending, counted = join.total, join.pending, join.counted + 1
    running = join.running
    # A copy: the commit still refers to the machine before the tick.
    table = copied(machine.frames)
    del table[frame.number]
    ended = join.ended.appended([replace(frame, status="done", node=END, branch=branch)])
    patches: FramePatches = {frame.number: patch}
    opened = None
    if join.pending:
        start, number = node.fan.branches[0].start, machine.frames_made
        visits = {start: 1} if plan.graphs[parent.graph].nodes[start].counted else {}
        path = path_below(parent, node.name, f"[{join.pending[0]}]")
        opened, begins = alike(parent, number, path, join.pending[0], start, visits)
        pending = pending[1:]
        patches[parent.number], patches[number] = (
            FramePatch({"join": JoinState(total, pending, running, counted)}),
            begins,
        )
        table[number] = opened
    else:
        running -= 1
        patches[parent.number] = FramePatch({"join": JoinState(total, pending, running, counted)})
    table[parent.number] = replace(parent, join=JoinState(total, pending, running, counted, 0, ended))
    return table, patches, opened


def _takes_over(plan: Plan, machine: Machine, parent: Frame, fan: FanOut) -> bool:
    """Whether one more branch begins in the place of one that ends, and as the others did."""
    join, home, limit = parent.join, plan.graphs[parent.graph], machine.limits.get("steps")
    assert join is not None and parent.opened is not None
    if not opens_alike(fan, home) or not isinstance(join.pending, range) or home.before:
        return False
    # Fewer than may at once run where the budget has kept the others back.
    if at_once(parent.opened, fan) != join.working:
        return False
    return limit is None or limit - machine.steps > len(machine.frames)
