"""Node lifecycle: a node is entered, begun, and succeeds or fails; then the next one. The heart of the pure core.

Everything here changes the machine only through its `UnitOfWork`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import BudgetExceeded, NodeFailed
from graphflow.graph.core.budget import agent_output, exceeded, is_own_limit, own_limit_failure
from graphflow.graph.core.commands import CancelNode, Ended, Erred, Finished, RunNode, Started
from graphflow.graph.core.fan_out import Branches, all_awake, takes_losses
from graphflow.graph.core.machine import ROOT, Frame, Interrupt
from graphflow.graph.core.patches import gave
from graphflow.graph.core.plan import Monitor
from graphflow.graph.core.route_trace import PendingMove
from graphflow.graph.core.routing import (
    choose_route,
    error_route,
    keep_partial,
    own_writes,
    retries,
    schedule_retry,
    stops,
)
from graphflow.graph.core.scope import result_of
from graphflow.graph.core.unit_of_work import UnitOfWork, Written, followed
from graphflow.graph.definition.document import END, FAIL

WRAP_UP_STEPS = 1_000
"""Nodes that may finish once `onExceeded` is entered: far more than a wrap-up needs, and a cycle still ends."""


MOST_PASSED = 1_000
"""Nodes of a frame that one tick may pass without running any: `map`s over empty lists, nodes that fail to open."""


def enter(
    work: UnitOfWork,
    number: int,
    name: str,
    *,
    error: dict[str, Any] | None = None,
    stop: str = "",
    written: Written | None = None,
    out: Any = None,
) -> None:
    """Moves the frame's cursor to a node and starts it, unless a limit or breakpoint stands before it.

    Args:
        stop: the node after which a breakpoint was set.
        written: what the previous node wrote; not applied yet.
        out: the output of the previous node.
    """
    # A frame that ends reads its state for `result`, so the writes go in first. Otherwise one `change` does both,
    # which keeps the common step at one patch.
    if written is not None and name in (FAIL, END):
        work.change(number, {}, written)
        written = None
    frame = work.table[number]
    plan = work.plan_of(frame)
    if name == FAIL:
        failure = error or frame.error or NodeFailed("the route led to `fail`").as_dict(frame.node)
        fail_frame(work, number, failure)
        return
    if name == END and not stop:
        finish_frame(work, number, out)
        return
    node = plan.nodes.get(name)
    counted = node is not None and node.counted
    visit = frame.visits.get(name, 0) + 1 if counted else 1
    work.change(
        number,
        {"node": name, "visit": visit, "attempt": 1, "status": "ready", "error": error, "operations": {}, "passed": ""}
        # Fields that keep their value stay out of the patch: it is stored with every step.
        if frame.operations or frame.error or error or frame.passed or frame.attempt != 1 or frame.status != "ready"
        else {"node": name, "visit": visit},
        visits={name: visit} if counted else None,
        written=written,
    )
    if name == END and frame.branch is not None:  # a breakpoint after the branch's last node
        work.change(number, {"branch": gave(frame.branch, out)})
    if plan.monitor is not None:
        plan.monitor.note_entered(work, number, name)
    # The wrap-up node runs once (E11). `work.before`, because the tick that enters it sets `wrapping` itself.
    if number == ROOT and name == work.plan.on_exceeded and work.before.wrapping and not work.resting:
        fail_frame(work, number, _wrapped_up(work, name).as_dict(name))
    elif stop:
        _break(work, number, "after", stop)
    elif (plan.before or work.stops_before) and stops(work, plan.before, work.stops_before, frame, name):
        _break(work, number, "before", name)
    else:
        begin(work, number)


def _break(work: UnitOfWork, number: int, when: str, node: str) -> None:
    frame = work.table[number]
    ask(
        work,
        Interrupt(
            id=work.new_interrupt_id(),
            kind="breakpoint",
            run_id=work.get("run_id"),
            node=node,
            frame=number,
            key=f"breakpoint:{when}",
            path=frame.path,
            payload={"when": when, "next": frame.node},
            schema=BREAKPOINT_SCHEMA,
            opened_at=work.tick.at,
        ),
    )


def ask(work: UnitOfWork, interrupt: Interrupt) -> None:
    """Opens an interrupt: its frame waits, and frees its place if it is a branch."""
    asks_already = work.table[interrupt.frame].status == "waiting"
    work.ask(interrupt)
    if not asks_already:
        branches.came_to_rest(work, interrupt.frame)


BREAKPOINT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["decision"],
    "properties": {"decision": {"enum": ["continue", "skip", "cancel"]}, "update": {"type": "object"}},
}


def begin(work: UnitOfWork, number: int) -> None:
    """Starts the node under the frame's cursor, unless the budget or an invariant forbids it."""
    if work.resting:
        return
    # A `map` over an empty list ends within its own beginning and enters the next node from there. This is a loop and
    # not recursion: a cycle of such nodes would end in a RecursionError, not in an error of the run.
    if number in work.beginning:
        work.beginning[number] = True  # its node ended at once: the loop below goes on with the next
        return
    for _ in range(MOST_PASSED):
        work.beginning[number] = False
        _begin(work, number)
        if not work.beginning[number]:
            break
    else:
        node = work.table[number].node
        fail_frame(work, number, _circle(node).as_dict(node))
    del work.beginning[number]


def _begin(work: UnitOfWork, number: int) -> None:
    frame = work.table[number]
    monitor = work.plan_of(frame).monitor
    if spent(work, number):
        return
    if monitor is not None and breaks(work, number, monitor):
        return
    work.begun += 1
    run(work, number)


def run(work: UnitOfWork, number: int, *, again: bool = False) -> None:
    """Runs the frame's node, or opens the frames below it.

    Args:
        again: another attempt, or a restart after a crash: the node was counted as begun before.
    """
    frame = work.table[number]
    node = work.node_of(frame)
    begun = max(work.begun, 1) if again else work.begun
    node_run_id = work.new_node_run_id() if node.opens else ""
    work.commands.append(Started(number, node.name, frame.visit, frame.attempt, begun, frame.path, node_run_id))
    if node.opens:
        branches.open_below(work, number, node, node_run_id)
    else:
        work.commands.append(RunNode(number))


def _wrapped_up(work: UnitOfWork, then: str) -> BudgetExceeded:
    return BudgetExceeded(
        f"the budget is used up, and {then!r} has wrapped up already: it runs once; resume with a larger budget, or lead its "
        "routes to `end`",
        figure="steps",
        limit=work.most_steps(),
        used=work.steps,
    )


def wraps_up_again(work: UnitOfWork, number: int) -> bool:
    """Whether the run failed because a route led to `onExceeded` a second time; if so, it fails again."""
    frame, error = work.table[number], work.before.error
    if number != ROOT or frame.node != work.plan.on_exceeded or not work.get("wrapping"):
        return False
    if error is None or error["code"] != "budget_exceeded" or (error.get("detail") or {}).get("figure") != "steps":
        return False
    _refuse(work, number, _wrapped_up(work, frame.node).as_dict(frame.node))
    return True


def _circle(node: str) -> NodeFailed:
    return NodeFailed(
        f"a cycle leads to node {node!r} again and again, and nothing runs on it: its nodes open nothing, or can't be opened; "
        "add a node that runs, or a condition that ends the cycle"
    )


def spent(work: UnitOfWork, number: int) -> bool:
    """Whether the budget has no step left for the node; if so, the node has failed."""
    if work.affords_step(1):
        return False
    # What has begun and not finished has its step already, so that branches can't pass the limit together.
    reserved = len(work.table) - 1
    error = exceeded("steps", work.most_steps(), work.steps + reserved, reserved)
    _refuse(work, number, error.as_dict(work.table[number].node))
    return True


def breaks(work: UnitOfWork, number: int, monitor: Monitor) -> bool:
    """Whether running the node would break a property of `invariants`; if so, the node has failed."""
    if (error := monitor.breach(work, number)) is None:
        return False
    _refuse(work, number, error)
    return True


def _refuse(work: UnitOfWork, number: int, error: dict[str, Any]) -> None:
    """Fails a node that may not begin."""
    if not work.checkpoint:  # a resume writes no checkpoint of its own, the failure does
        work.source, work.checkpoint = "failed", True
    fail(work, number, error, final=True, started=False)


def finish_frame(work: UnitOfWork, number: int, out: Any = None) -> None:
    """Ends a frame that has reached `end`: it completes the run, the branch, or the parent's `graph` node.

    Args:
        out: the output of the last node.
    """
    frame = work.table[number]
    if number == ROOT:
        if work.plan.result is not None and (failed := _result_failure(work, frame)) is not None:
            fail_frame(work, ROOT, failed)
            return
        work.close_children(ROOT)
        work.change(ROOT, {"node": END, "status": "done", "error": None, "operations": {}, "passed": ""})
        work.fields["status"] = "idle"
        if not work.get("finish_reason"):
            work.fields["finish_reason"] = "stop"
        work.commands.append(Finished("complete"))
        return
    parent = work.table[frame.parent]
    # A subgraph, or a branch with a subgraph as its body, has a state of its own and gives its result. Branches on
    # the parent's graph give the output of their last node.
    if frame.graph != parent.graph:
        try:
            out = result_of(work.plan_of(frame), frame, work.scope_at(frame))
        except NodeFailed as failure:
            fail_frame(work, number, failure.as_dict(frame.node))
            return
    if frame.spent is not None:
        out = agent_output(out)
    if frame.branch is not None:
        branches.end_branch(work, number, out)
        return
    del work.table[number]
    work.touched[number] = None
    work.change(parent.number, {"status": "ready", "opened": None})
    succeed(work, parent.number, out)


def _result_failure(work: UnitOfWork, frame: Frame) -> dict[str, Any] | None:
    """Why the run has no result; a run that completes has one for whoever asks later."""
    try:
        result_of(work.plan, frame, work.scope_at(frame))
    except NodeFailed as failure:
        return failure.as_dict(frame.node)
    return None


def succeed(
    work: UnitOfWork,
    number: int,
    out: Any,
    *,
    updates: Mapping[str, Any] | None = None,
    goto: str | None = None,
    usage: Mapping[str, Any] | None = None,
    answer: Any = None,
    quiet: bool = False,
    skipped: bool = False,
    joined: Written | None = None,
) -> None:
    """Finishes a node: its writes are applied, the step is counted, and its route is taken.

    Args:
        joined: what its branches wrote.
        quiet: the node never ran (skipped, or named by an edit): it writes nothing and has no end event.
        skipped: there is no output for conditions, so the route without one is taken.
    """
    frame = work.table[number]
    node = work.node_of(frame)
    work.node, work.frame_no = work.node or node.name, number
    work.add_usage(usage, number)
    if work.before.interrupts:  # one check is all that a step without questions pays
        work.cancel_interrupts(number, "cancelled")  # the node has ended and waits for no answer
    try:
        # Everything that can fail comes before the writes are applied: a failed node writes nothing.
        own = None if quiet else own_writes(work, frame, node, out, updates, answer, joined)
        wrote = joined if own is None else own if joined is None else followed(joined, own)
        state = frame.state if wrote is None else wrote.state
        if skipped and node.routes:
            move = PendingMove(frame, node.routes[-1].to, own=own, joined=joined)
        else:
            move = choose_route(work, frame, node, state, out, goto, answer, own, joined)
    except NodeFailed as failure:
        fail(work, number, failure.as_dict(node.name))
        return
    if not quiet:
        work.steps += 1
        writes = () if wrote is None else (*wrote.update.sets, *wrote.update.logs, *wrote.update.merges)
        work.commands.append(Ended(number, node.name, writes))
    plan = work.plan_of(frame)
    if plan.monitor is not None and not quiet:
        plan.monitor.note_finished(work, number, node)
    work.moves.append(move)
    stop = node.name if stops(work, plan.after, work.stops_after, frame, node.name) else ""
    enter(work, number, move.to, stop=stop, written=wrote, out=out)


def fail(
    work: UnitOfWork,
    number: int,
    error: dict[str, Any],
    *,
    jitter: float = 0.0,
    partial: Any = None,
    final: bool = False,
    started: bool = True,
) -> None:
    """Handles a failed node: another attempt, an error route, the budget's `onExceeded` node, or the end of the run."""
    frame = work.table[number]
    node = work.node_of(frame)
    work.node, work.frame_no = work.node or node.name, number
    work.count_unfinished(number)
    work.cancel_interrupts(number, "cancelled")
    branches.leave(work, number)
    if not final and retries(frame, node, error):
        schedule_retry(work, number, node, error, jitter)
        return
    if started:
        work.commands.append(Erred(number, node.name, error, will_retry=False))
    keep_partial(work, number, node, partial)
    _route_error(work, number, error)


def _route_error(work: UnitOfWork, number: int, error: dict[str, Any]) -> None:
    """Takes the error route that names the code; without one the frame fails.

    A node whose failure was routed counts as a step, so that a cycle of failures ends.
    """
    target = error_route(work.node_of(work.table[number]), error)
    if target is None:
        fail_frame(work, number, error)
        return
    work.steps += 1
    work.moves.append(PendingMove(work.table[number], target, "error", error=error))
    work.close_children(number)
    enter(work, number, target, error=error)


def fail_frame(work: UnitOfWork, number: int, error: dict[str, Any]) -> None:
    """Passes on a failure that the frame does not handle: to the join, the node above, `onExceeded`, or the run."""
    frame = work.table[number]
    if is_own_limit(frame, error):
        if (last := work.plan_of(frame).on_exceeded) is not None and frame.granted is None:
            _wrap_up_agent(work, number, last, error)
            return
        error = own_limit_failure(error)
    # From the inside out: a join, an open node above, `onExceeded`. The first that handles the failure ends it.
    if frame.branch is not None and branches.lose_branch(work, number, error):
        return
    if frame.parent >= 0 and _taken_above(work, frame.parent, error):
        work.moves.append(PendingMove(frame, FAIL, "failed", error=error))
        fail(work, frame.parent, error)
        return
    then = work.plan.on_exceeded
    if error["code"] == "budget_exceeded" and then is not None and not work.get("wrapping"):
        root = work.table[ROOT]
        # The open node at the root is left for good; its `node.start` needs an end.
        if root.opened is not None:
            work.commands.append(Erred(ROOT, root.node, error, will_retry=False))
        if number != ROOT:
            work.moves.append(PendingMove(frame, FAIL, "failed", error=error))
        work.moves.append(PendingMove(root, then, "budget", error=error))
        work.close_children(ROOT)
        figure = (error.get("detail") or {}).get("figure")
        work.fields |= {
            "wrapping": True,
            # The wrap-up gets one model call in reserve, whatever is spent (E11).
            "granted": {"steps": work.steps + WRAP_UP_STEPS, "modelCalls": work.usage.get("modelCalls", 0) + 1},
            "finish_reason": "max_steps" if figure == "steps" else "budget",
        }
        enter(work, ROOT, then, error=error)
        return
    give_up(work, number, error)


def _wrap_up_agent(work: UnitOfWork, number: int, then: str, error: dict[str, Any]) -> None:
    """Leads an agent whose own budget is used up to its `onExceeded`, with one model call in reserve (E11)."""
    frame = work.table[number]
    if frame.opened is not None:
        work.commands.append(Erred(number, frame.node, error, will_retry=False))
    work.moves.append(PendingMove(frame, then, "budget", error=error))
    work.close_children(number)
    spent = work.table[number].spent or {}
    work.change(number, {"granted": spent.get("modelCalls", 0) + 1})
    enter(work, number, then, error=error)


def _taken_above(work: UnitOfWork, number: int, error: dict[str, Any]) -> bool:
    """Whether an open node above handles the failure: by another attempt, an error route, or its own join."""
    level = number
    while level >= 0:
        frame = work.table[level]
        node = work.node_of(frame)
        if retries(frame, node, error) or error_route(node, error) is not None:
            return True
        if frame.branch is not None and takes_losses(work, frame, error):
            return True
        if is_own_limit(frame, error):
            return True
        level = frame.parent
    return False


def give_up(work: UnitOfWork, number: int, error: dict[str, Any]) -> None:
    """Fails the run. The frames stay where they are, so that a resume tries again there."""
    work.moves.append(PendingMove(work.table[number], FAIL, "failed", error=error))
    # An open node that took too long stays open: what is below it has recorded work, which a resume must not do again.
    if work.table[number].opened is None:
        work.change(number, {"status": "failed", "error": error})
    work.fields |= {"status": "failed", "error": error}
    for other in list(work.table.values()):
        # Siblings stop with the run. They stay `ready` and not `failed`: a resume runs them again.
        if other.number != number and other.status in ("ready", "backoff", "waiting"):
            work.count_unfinished(other.number)
            work.cancel_interrupts(other.number, "cancelled")
            work.change(other.number, {"status": "ready"})
            work.commands.append(CancelNode(other.number))
    all_awake(work)
    work.commands.append(Finished("error"))


branches = Branches(enter=enter, succeed=succeed, fail=fail, fail_frame=fail_frame)
