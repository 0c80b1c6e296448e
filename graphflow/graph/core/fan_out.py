"""Frames below a node: subgraphs, and the branches of `map` and `parallel` with the join that they own (E10).

A branch is opened when there is room for it, runs like any frame, and ends by leaving the table: what it gave and
wrote stays in its parent's `JoinState`, until that is complete and the writes are reduced in branch order.

There is room while fewer branches work than may at once. A branch in which nothing runs any more, because all that is
open in it waits for an answer, frees its place, and so does the branch around it if that was the last one that worked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphflow.errors import ExpressionFailed, LimitExceeded, NodeFailed, StateError
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.budget import refuse_too_deep
from graphflow.graph.core.channels import Update, apply_update, initial_update
from graphflow.graph.core.commands import RunNode, Started
from graphflow.graph.core.immutable import FrozenDict, ListView, State, freeze
from graphflow.graph.core.machine import BranchState, Frame, FramePatch, JoinState, Machine, Opened
from graphflow.graph.core.patches import gave, moved
from graphflow.graph.core.plan import FanOut, Plan, PlanBranch, PlanNode
from graphflow.graph.core.route_trace import PendingMove
from graphflow.graph.core.routing import has_paths, stops
from graphflow.graph.core.scope import taken_input
from graphflow.graph.core.transcript import add_user_message
from graphflow.graph.core.unit_of_work import UnitOfWork, Written
from graphflow.graph.definition.document import END

NOT_COLLECTED = frozenset({"budget_exceeded"})
"""Error codes that fail the run even if the join collects or skips failures."""


class Branches:
    """Opens and joins what is below a node.

    A branch that ends may end its join, the node around it, and so on upwards, and each of these enters a next node:
    the two modules call each other. To avoid an import cycle, this class receives the functions of `node_lifecycle.py`.
    """

    __slots__ = ("_enter", "_fail", "_fail_frame", "_succeed")

    def __init__(
        self,
        *,
        enter: Callable[[UnitOfWork, int, str], None],
        succeed: Callable[..., None],
        fail: Callable[[UnitOfWork, int, dict[str, Any]], None],
        fail_frame: Callable[[UnitOfWork, int, dict[str, Any]], None],
    ) -> None:
        self._enter, self._succeed, self._fail, self._fail_frame = enter, succeed, fail, fail_frame

    def open_below(self, work: UnitOfWork, number: int, node: PlanNode, node_run_id: str) -> None:
        """Opens what a `graph`, `map` or `parallel` node runs."""
        try:
            if node.fan is None:
                self._open_subgraph(work, number, node, node_run_id)
            else:
                self._open_fan(work, number, node, node.fan, node_run_id)
        except NodeFailed as failure:
            self._fail(work, number, failure.as_dict(node.name))

    def _open_subgraph(self, work: UnitOfWork, number: int, node: PlanNode, node_run_id: str) -> None:
        frame = work.table[number]
        plan = work.plan.graphs[node.graph or ""]
        given = {} if node.arguments is None else node.arguments.evaluate(work.scope_at(frame))
        given = taken_input(plan, given)
        fields: dict[str, Any] = {"parent": number, "path": path_below(frame, node.name)}
        if node.agent:
            refuse_too_deep(work.table, frame, node.name, plan.key, plan.bounds.max_agent_depth)
            fields["spent"] = {}
        child = work.new_frame()
        work.change(number, {"status": "open", "opened": Opened(node_run_id)})
        # Last: the child may reach its end in here and close the node again.
        self._begin_graph(work, child, plan, given, fields)

    def _begin_graph(self, work: UnitOfWork, number: int, plan: Plan, given: Any, fields: Mapping[str, Any]) -> None:
        """Opens a frame with a state of its own: a subgraph's, be it a node or a branch's body (E9)."""
        update = initial_update(plan.schema, State(), ())
        if plan.has_messages:
            add_user_message(State(), given, update)
        work.change(
            number,
            {**fields, "graph": plan.key, "node": plan.start, "input": given},
            Written(update, apply_update(State(), update)),
        )
        self._enter(work, number, plan.start)

    def _open_fan(self, work: UnitOfWork, number: int, node: PlanNode, fan: FanOut, node_run_id: str) -> None:
        frame = work.table[number]
        items = None if fan.items is None else _items(fan, work.scope_at(frame))
        total = len(fan.branches) if items is None else len(items)
        bounds = work.plan.bounds
        if total > bounds.fan_out:
            message = f"node {node.name!r} would open {total:,} branches"
            raise LimitExceeded("fan_out", bounds.fan_out, message, "give it fewer items, or raise it")
        if isinstance(fan.wait, int) and fan.wait > total:
            raise NodeFailed(
                f"node {node.name!r} waits for {fan.wait} branches, and its list has {total} items; let fewer be enough, "
                'or wait for "all"',
                code="validation",
                wait=fan.wait,
                items=total,
            )
        pending: range | tuple[int, ...] = range(total)
        if any(branch.before for branch in fan.branches):
            pending = tuple(pending)
        opened = Opened(node_run_id, items, fan.binds, fan.at_once or bounds.map_max)
        work.change(number, {"status": "open", "opened": opened, "join": JoinState(total, pending)})
        self._go_on(work, number, node, fan)

    def came_to_rest(self, work: UnitOfWork, number: int) -> None:
        """All that is open in this frame waits: its branch frees its place."""
        frame = work.table[number]
        while frame.branch is None and frame.parent >= 0:
            frame = work.table[frame.parent]
        if frame.branch is None:
            return
        parent = work.table[frame.parent]
        join, node = parent.join, work.node_of(parent)
        assert join is not None and node.fan is not None
        work.change(parent.number, {"join": moved(join, waiting=join.waiting + 1)})
        self._go_on(work, parent.number, node, node.fan)

    def woken(self, work: UnitOfWork, number: int, **fields: Any) -> Frame:
        """The frame with something to run again, and with these changes; its branch has its place back.

        It goes on at once even if others have taken all places meanwhile: it has begun, and may hold what those need.
        """
        if rests(work, work.table[number]):
            self._took_place(work, number)
        return work.change(number, {"status": "ready", **fields})

    def _took_place(self, work: UnitOfWork, number: int) -> None:
        frame = work.table[number]
        while frame.parent >= 0:
            parent = work.table[frame.parent]
            if frame.branch is not None:
                join = parent.join
                assert join is not None
                work.change(parent.number, {"join": moved(join, waiting=max(join.waiting - 1, 0))})
                if join.working:
                    return  # what is around it has not been at rest
            frame = parent

    def leave(self, work: UnitOfWork, number: int) -> None:
        """An open node is about to end although all below it waits: what is around it is no longer at rest."""
        if work.table[number].opened is not None and rests(work, work.table[number]):
            self._took_place(work, number)

    def _go_on(self, work: UnitOfWork, number: int, node: PlanNode, fan: FanOut) -> None:
        """Joins once enough branches have ended or none is left; otherwise opens as many as there is room for."""
        opened = work.table[number].opened
        if opened is None or any(opened is other for other in work.opening):
            return  # a branch that ends within its own first step comes back here; the outer loop goes on
        work.opening.append(opened)
        # Compared by identity: a branch that fails or joins inside the loop may close this fan or enter the same node
        # again, and what is open then is another fan.
        while number in work.table and work.table[number].opened is opened:
            join = work.table[number].join
            assert join is not None
            if join.counted >= fan.needed(join.total) or not (join.running or join.pending):
                self._join(work, number, node, fan)
                break
            if self._open_alike(work, number, node, fan, join):
                continue
            index = _next(work, fan, join, at_once(opened, fan))
            if index is None:
                if join.running and not join.working:
                    self.came_to_rest(work, number)
                break
            rest = join.pending[1:] if isinstance(join.pending, range) else tuple(i for i in join.pending if i != index)
            work.change(number, {"join": moved(join, pending=rest, running=join.running + 1)})
            self._open_branch(work, number, node, fan, index)
        work.opening.remove(opened)

    def _open_alike(self, work: UnitOfWork, number: int, node: PlanNode, fan: FanOut, join: JoinState) -> bool:
        """Opens many branches of a map at once, as `_next` and `_open_branch` would; whether there were any.

        Only for branches that begin with a node that simply runs: no breakpoint, invariant or nested fan.
        """
        frame, start, pending = work.table[number], fan.branches[0].start, join.pending
        plan = work.plan_of(frame)
        if not opens_alike(fan, plan) or not isinstance(pending, range) or work.resting:
            return False
        assert frame.opened is not None
        count = len(pending)
        if (most := at_once(frame.opened, fan)) is not None:
            count = min(count, most - join.working)
        if (left := work.steps_left()) is not None:
            count = min(count, left)
        if count < 1:
            return False
        if stops(work, plan.before, work.stops_before, frame, start) or has_paths(work.stops_before):
            return False
        work.change(number, {"join": moved(join, pending=pending[count:], running=join.running + count)})
        visits = {start: 1} if plan.nodes[start].counted else {}
        above = path_below(frame, node.name)
        for child, index in enumerate(pending[:count], work.new_frames(count)):
            opened, work.touched[child] = alike(frame, child, f"{above}[{index}]", index, start, visits)
            work.table[child] = opened
            work.begun += 1
            work.commands += (Started(child, start, 1, 1, work.begun, opened.path), RunNode(child))
        return True

    def _open_branch(self, work: UnitOfWork, number: int, node: PlanNode, fan: FanOut, index: int) -> None:
        frame, body, child = work.table[number], fan.body(index), work.new_frame()
        fields: dict[str, Any] = {"parent": number, "path": path_below(frame, node.name, fan.label(index))}
        if body.graph is not None:
            self._open_body(work, child, frame, body, {**fields, "graph": body.graph, "branch": BranchState(index)})
            return
        inherited = _inherited(work, frame, fan, body)
        # How much of each log came from other branches: those entries are not written again at the join.
        counts = {} if inherited is None else {channel: len(entries) for channel, entries in inherited.logs.items()}
        fields |= {"graph": frame.graph, "node": body.start, "branch": BranchState(index, counts)}
        work.change(child, fields, inherited=inherited)
        self._enter(work, child, body.start)

    def _open_body(self, work: UnitOfWork, child: int, frame: Frame, body: PlanBranch, fields: dict[str, Any]) -> None:
        """Opens a branch whose body is a subgraph, whose input sees the item."""
        opened, index = frame.opened, fields["branch"].index
        names = {opened.binds: opened.items[index]} if opened is not None and opened.binds else {}
        plan = work.plan.graphs[fields["graph"]]
        try:
            given = {} if body.given is None else body.given.evaluate(work.scope_at(frame, **names))
            given = taken_input(plan, given)
        except NodeFailed as failure:
            # The frame is opened only to fail: the join then treats it like any other branch.
            work.change(child, fields)
            self._fail_frame(work, child, failure.as_dict(frame.node))
            return
        self._begin_graph(work, child, plan, given, fields)

    def end_branch(self, work: UnitOfWork, number: int, out: Any) -> None:
        """A branch has reached its end: it counts for the join."""
        self._end(work, number, {"status": "done", "node": END}, out, counts=True)

    def lose_branch(self, work: UnitOfWork, number: int, error: dict[str, Any]) -> bool:
        """Ends a failed branch, if its join takes the failure."""
        frame = work.table[number]
        if not takes_losses(work, frame, error):
            return False
        fan = work.node_of(work.table[frame.parent]).fan
        assert fan is not None
        work.moves.append(PendingMove(frame, END, fan.on_error, error=error))
        work.close_children(number)
        self._end(work, number, {"status": "lost", "error": error}, None, counts=fan.on_error == "collect")
        return True

    def _end(self, work: UnitOfWork, number: int, fields: dict[str, Any], out: Any, *, counts: bool) -> None:
        frame = work.table[number]
        parent = work.table[frame.parent]
        node = work.node_of(parent)
        assert node.fan is not None and frame.branch is not None
        if node.fan.keeps_out and out is not None:
            fields["branch"] = gave(frame.branch, out)
        work.cancel_interrupts(number, "cancelled")
        work.change(number, {**fields, "operations": {}} if frame.operations else fields)
        join = work.table[parent.number].join
        assert join is not None
        work.change(parent.number, {"join": moved(join, running=join.running - 1, counted=join.counted + counts)})
        self._go_on(work, parent.number, node, node.fan)

    def _join(self, work: UnitOfWork, number: int, node: PlanNode, fan: FanOut) -> None:
        """Finishes the node: remaining branches are cancelled and the writes reduced in branch order."""
        frame = work.table[number]
        assert frame.join is not None
        join, plan = frame.join, work.plan_of(frame)
        # The order of finishing differs from run to run; a replay must give the same bytes (E10).
        ended = _in_order(fan, join)
        work.close_children(number)
        if fan.wait != "all" and join.counted < fan.needed(join.total):
            failure = NodeFailed(
                f"node {node.name!r} waits for {fan.wait} of its {join.total} branches, and only {join.counted} ended well; "
                "let fewer be enough, collect the failures, or route the error",
                detail=[{"branch": fan.label(index_of(lost)), "error": lost.error} for lost in ended if lost.error],
            )
            self._fail(work, number, failure.as_dict(node.name))
            return
        try:
            joined = _reduced(frame, plan, _writes_of(ended, plan))
        except StateError as failure:
            self._fail(work, number, failure.as_dict(node.name))
            return
        self._succeed(work, number, _out(fan, ended) if fan.keeps_out else None, joined=joined)


MANY = 1_000
"""Branches whose join takes longer than a run may keep the event loop."""


def joins_many(plan: Plan, machine: Machine, number: int) -> bool:
    """Whether the end of this frame's node may complete a join of many branches, be it further up."""
    frame = machine.frames.get(number)
    while frame is not None and frame.parent >= 0:
        parent = machine.frames[frame.parent]
        if (join := parent.join) is not None and len(join.ended) >= MANY:
            fan = plan.graphs[parent.graph].nodes[parent.node].fan
            assert fan is not None
            if (join.running == 1 and not join.pending) or join.counted + 1 >= fan.needed(join.total):
                return True
        frame = parent
    return False


def at_once(opened: Opened, fan: FanOut) -> int | None:
    """Branches that may work at a time; None is no limit."""
    return fan.at_once if opened.at_once is None else opened.at_once


def rests(work: UnitOfWork, frame: Frame) -> bool:
    """Whether all that is open in the frame waits for an answer."""
    if frame.opened is None:
        return frame.status == "waiting"
    if frame.join is not None:
        return frame.join.running > 0 and not frame.join.working
    return any(rests(work, other) for other in work.table.values() if other.parent == frame.number)


def all_awake(work: UnitOfWork) -> None:
    """No branch waits any more: the run stops, and its questions are closed."""
    for frame in list(work.table.values()):
        if frame.join is not None and frame.join.waiting:
            work.change(frame.number, {"join": moved(frame.join, waiting=0)})


def opens_alike(fan: FanOut, plan: Plan) -> bool:
    """Whether all branches begin with a node that simply runs, and nothing has to be looked at before it."""
    if fan.items is None or fan.branches[0].graph is not None or plan.monitor is not None:
        return False
    return not plan.nodes[fan.branches[0].start].opens


def alike(
    parent: Frame, number: int, path: str, index: int, start: str, visits: dict[str, int]
) -> tuple[Frame, FramePatch]:
    """A branch of a map that begins, and the patch that opens it."""
    branch = BranchState(index)
    opened = parent.opened
    assert opened is not None
    frame = Frame(
        number=number,
        graph=parent.graph,
        parent=parent.number,
        path=path,
        node=start,
        visits=visits,
        input=parent.input,
        scope={**parent.scope, opened.binds: opened.items[index]} if opened.binds else parent.scope,
        branch=branch,
        state=parent.state,
    )
    fields = {
        "parent": parent.number,
        "path": path,
        "graph": parent.graph,
        "node": start,
        "branch": branch,
        "visit": 1,
    }
    return frame, FramePatch(fields, None, None, visits or None)


def index_of(frame: Frame) -> int:
    """The branch's position among its siblings."""
    assert frame.branch is not None
    return frame.branch.index


def path_below(frame: Frame, node: str, label: str = "") -> str:
    """`node#visit`, with a branch's `[label]`, below the frame's own path (E3)."""
    here = f"{node}#{frame.visit}{label}"
    return f"{frame.path}/{here}" if frame.path else here


def _items(fan: FanOut, scope: Mapping[str, Any]) -> Any:
    assert fan.items is not None
    items = fan.items.evaluate(scope)
    if not isinstance(items, list | tuple | ListView):
        raise ExpressionFailed(
            f"`map` takes a list, and {fan.items.source!r} gave {type(items).__name__} {excerpt_of(items)}; give it a list"
        )
    return freeze(list(items))


def _next(work: UnitOfWork, fan: FanOut, join: JoinState, most: int | None) -> int | None:
    """The next branch that may begin: room is left, its predecessors have ended, and the budget has a step for it."""
    if not join.pending or (most is not None and join.working >= most):
        return None
    if join.running and not work.affords_step():
        return None  # waits for those that run: their steps are reserved; if none is left then, it fails
    if isinstance(join.pending, range):
        return join.pending[0]
    ended = {index_of(frame) for frame in join.ended}
    return next((i for i in join.pending if fan.branches[i].before <= ended), None)


def _inherited(work: UnitOfWork, frame: Frame, fan: FanOut, body: PlanBranch) -> Update | None:
    """The writes of the branches that this one runs `after`, reduced in branch order."""
    if not body.before or frame.join is None:
        return None
    plan = work.plan_of(frame)
    before = [ended for ended in _in_order(fan, frame.join) if index_of(ended) in body.before]
    return plan.schema.combine(frame.state, _writes_of(before, plan))


def takes_losses(work: UnitOfWork, frame: Frame, error: Mapping[str, Any]) -> bool:
    """Whether the join of this branch accepts its failure (`collect` or `skip`)."""
    node = work.node_of(work.table[frame.parent])
    assert node.fan is not None
    return node.fan.on_error != "fail" and error["code"] not in NOT_COLLECTED


def _reduced(frame: Frame, plan: Plan, writes: dict[str, list[Any]]) -> Written | None:
    """The branches' writes as those of the node that they were branches of."""
    if not writes:
        return None
    update = plan.schema.combine(frame.state, writes)
    raw = {key: writes[key] for key in update.sets if plan.schema.channels[key].reduce != "replace"}
    return Written(update, apply_update(frame.state, update), raw or None)


def _in_order(fan: FanOut, join: JoinState) -> list[Frame]:
    """The branches that have ended, in the order in which their writes are reduced."""
    return sorted(join.ended, key=lambda frame: fan.rank(index_of(frame)))


def _writes_of(ended: Sequence[Frame], plan: Plan) -> dict[str, list[Any]]:
    """Key → what these branches wrote to it, in order; not from failed ones, and no key with `x-scope: branch`."""
    out: dict[str, list[Any]] = {}
    # A key with `x-scope: branch` stays in its branch (E10).
    private = {key for key, channel in plan.schema.channels.items() if channel.scope == "branch"}
    for frame in ended:
        if frame.status != "done" or frame.branch is None or frame.branch.own is None:
            continue
        for key, values in frame.branch.own.items():
            if key not in private:
                out.setdefault(key, []).extend(values[:])
    return out


def _out(fan: FanOut, ended: Sequence[Frame]) -> Any:
    """A map's results in input order, a parallel's by the names of its branches (E10)."""
    results: dict[int, FrozenDict] = {}
    for frame in ended:
        assert frame.branch is not None
        index = index_of(frame)
        if frame.status == "done":
            results[index] = FrozenDict({"index": index, "status": "done", "out": frame.branch.out})
        elif fan.on_error == "collect":
            results[index] = FrozenDict({"index": index, "status": "failed", "error": freeze(frame.error)})
    if fan.items is not None:
        return freeze(list(results.values()))
    return FrozenDict({fan.branches[index].name: results[index] for index in sorted(results)})
