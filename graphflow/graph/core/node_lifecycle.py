"""A node's way: entered, begun, finished, failed, and where it leads. The heart of the pure core.

Everything here changes the machine only through its `Step`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.errors import BudgetExceeded, ExpressionFailed, NodeFailed
from graphflow.graph.core import fan_out as branches
from graphflow.graph.core.channels import State, StateSchema, Update, answer_open_calls
from graphflow.graph.core.machine import (
    ROOT,
    Backoff,
    CancelNode,
    Ended,
    Erred,
    Finished,
    Frame,
    Interrupt,
    Operation,
    Run,
    Started,
)
from graphflow.graph.core.patches import gave
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.route_trace import Made, looked_at
from graphflow.graph.core.scope import Scope, exceeded, is_spent, limits_in, result_of
from graphflow.graph.core.unit_of_work import Step, Written, followed, written
from graphflow.graph.definition.document import END, FAIL, Retry
from graphflow.messages import HumanMessage, ToolMessage

WRAP_UP_STEPS = 1_000
"""Nodes that may finish once the budget's `then` node has been entered: a few are meant, and a circle comes to its end."""


MOST_PASSED = 1_000
"""Nodes of one frame that a tick may pass through without any of them running: `map`s of nothing, or what can't be opened."""


def initial_update(schema: StateSchema, state: State, run_keys: Sequence[str]) -> Update:
    """Defaults for keys that the state lacks, and for those that live for one run only (E9)."""
    update = Update({}, {}, {})
    for key, channel in schema.channels.items():
        if key in state and key not in run_keys:
            continue
        value = channel.initial()
        if channel.is_log:
            update.logs[key] = [("*", list(value))] if key in state else [("+", item) for item in value]
        else:
            update.sets[key] = value
    return update


def left_open(messages: Sequence[Any], operations: Mapping[str, Operation], text: str) -> list[ToolMessage]:
    """An error result for every call that has none: it says `text`, unless the call is on record as begun."""
    out = []
    for reply in answer_open_calls(messages, text):
        operation = operations.get(reply.tool_call_id)
        if operation is not None:
            told = RUN_AND_LEFT if operation.state == "done" else CUT_OFF
            reply = msgspec.structs.replace(reply, content=told)
        out.append(reply)
    return out


RUN_AND_LEFT = "this call was run, and the run ended before its result was passed on; do not repeat it unseen"
CUT_OFF = "the run ended in the midst of this call: whether it was done is unknown; find out before you repeat it"


def greet(
    schema: StateSchema, state: State, given: Any, update: Update, operations: Mapping[str, Operation] | None = None
) -> None:
    """Open tool calls get an error result, then the query comes as user message (E9).

    Args:
        operations: what the node that ran them has on record.
    """
    more: list[Any] = list(
        left_open(state.get("messages", ()), operations or {}, "this call was not run: the run ended before it")
    )
    query = given.get("query") if isinstance(given, Mapping) else None
    if isinstance(query, str):
        more.append(HumanMessage(content=query, references=tuple(given.get("references") or ())))
    if more:
        update.logs["messages"] = [*update.logs.get("messages", ()), *(("+", message) for message in more)]


def enter(
    step: Step,
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
        written: what the node before wrote, still to be put.
        out: of the node before.
    """
    if written is not None and name in (FAIL, END):
        step.change(number, {}, written)
        written = None
    frame = step.table[number]
    plan = step.plan_of(frame)
    if name == FAIL:
        failure = error or frame.error or NodeFailed("the route led to `fail`").as_dict(frame.node)
        fail_frame(step, number, failure)
        return
    if name == END and not stop:
        leave(step, number, out)
        return
    node = plan.nodes.get(name)
    counted = node is not None and node.counted
    visit = frame.visits.get(name, 0) + 1 if counted else 1
    step.change(
        number,
        {"node": name, "visit": visit, "attempt": 1, "status": "ready", "error": error, "operations": {}, "passed": ""}
        if frame.operations or frame.error or error or frame.passed or frame.attempt != 1 or frame.status != "ready"
        else {"node": name, "visit": visit},
        visits={name: visit} if counted else None,
        written=written,
    )
    if name == END and frame.branch is not None:  # a breakpoint after the branch's last node
        step.change(number, {"branch": gave(frame.branch, out)})
    if plan.kept is not None:
        plan.kept.note_entered(step, number, name)
    if number == ROOT and name == step.plan.then and step.before.wrapping and not step.resting:
        fail_frame(step, number, _wrapped_up(step, name).as_dict(name))
    elif stop:
        _break(step, number, "after", stop)
    elif stops(plan.before, step.stops_before, frame, name):
        _break(step, number, "before", name)
    else:
        begin(step, number)


def stops(always: Collection[str], asked: Collection[str], frame: Frame, name: str) -> bool:
    """Whether a breakpoint of the document, or in the run's own graph one of the run, names the node."""
    if name in always or "*" in always:
        return True
    return bool(asked) and not frame.graph and (name in asked or "*" in asked)


def _break(step: Step, number: int, when: str, node: str) -> None:
    frame = step.table[number]
    step.ask(
        Interrupt(
            id=step.new_interrupt_id(),
            kind="breakpoint",
            run_id=step.get("run_id"),
            node=node,
            frame=number,
            key=f"breakpoint:{when}",
            path=frame.path,
            payload={"when": when, "next": frame.node},
            schema=BREAKPOINT_SCHEMA,
            opened_at=step.tick.at,
        )
    )


BREAKPOINT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["decision"],
    "properties": {"decision": {"enum": ["continue", "skip", "cancel"]}, "update": {"type": "object"}},
}


def begin(step: Step, number: int) -> None:
    """Starts the node under the frame's cursor, after the budget's look at it."""
    if step.resting:
        return
    if number in step.beginning:
        step.beginning[number] = True  # its node was over at once: the loop below goes on with the next
        return
    for _ in range(MOST_PASSED):
        step.beginning[number] = False
        _begin(step, number)
        if not step.beginning[number]:
            break
    else:
        node = step.table[number].node
        fail_frame(step, number, _circle(node).as_dict(node))
    del step.beginning[number]


def _begin(step: Step, number: int) -> None:
    frame = step.table[number]
    if not affords_step(step, 1):
        fail(step, number, exceeded("steps", _most_steps(step), step.steps).as_dict(frame.node), started=False)
        return
    if breaks(step, number):
        return
    step.begun += 1
    run(step, number)


def run(step: Step, number: int, *, again: bool = False) -> None:
    """Sets the frame's node going: it runs, or what is below it is opened.

    Args:
        again: for another attempt, or after a crash; it has been counted as begun.
    """
    frame = step.table[number]
    node = step.node_of(frame)
    begun = max(step.begun, 1) if again else step.begun
    node_run_id = step.new_node_run_id() if node.opens else ""
    step.commands.append(Started(number, node.name, frame.visit, frame.attempt, begun, frame.path, node_run_id))
    if node.opens:
        branches.open_below(step, number, node, node_run_id)
    else:
        step.commands.append(Run(number))


def affords_step(step: Step, own: int = 0) -> bool:
    """Whether the budget has a step for one more node beside those that are begun and not finished.

    Args:
        own: frames of the table that stand for the one more node itself.
    """
    left = steps_left(step)
    return left is None or left + own > 0


def steps_left(step: Step) -> int | None:
    """Nodes that the budget has a step for beside those that are begun and not finished; None is no limit."""
    limit = _most_steps(step)
    return None if limit is None else limit - step.steps - len(step.table)


def _most_steps(step: Step) -> int | None:
    """The steps that the run may reach; None is no limit."""
    limit: int | None = step.limits.get("steps")
    granted: int | None = step.get("granted").get("steps")
    return limit if granted is None else max(limit or 0, granted)


def _wrapped_up(step: Step, then: str) -> BudgetExceeded:
    return BudgetExceeded(
        f"the budget is used up, and {then!r} has wrapped up already: it runs once; resume with a larger budget, or lead its "
        "routes to `end`",
        figure="steps",
        limit=_most_steps(step),
        used=step.steps,
    )


def _circle(node: str) -> NodeFailed:
    return NodeFailed(
        f"the way leads to node {node!r} again and again, and nothing runs on it: its nodes open nothing, or can't be opened; "
        "put a node that runs on the circle, or a condition that ends it"
    )


def breaks(step: Step, number: int) -> bool:
    """Whether running the node would break a property of `always`: then it has failed instead."""
    kept = step.plan_of(step.table[number]).kept
    if kept is None or (error := kept.breach(step, number)) is None:
        return False
    if not step.checkpoint:  # going on after a rest: the failure is what this record is about
        step.source, step.checkpoint = "failed", True
    fail(step, number, error, final=True, started=False)
    return True


def scope_at(step: Step, frame: Frame, **given: Any) -> Scope:
    """The scope of expressions in a frame, as the step has it now."""
    return Scope(frame, limits_in(step.plan_of(frame), frame, step.limits), step.usage, given)


def leave(step: Step, number: int, out: Any = None) -> None:
    """A frame has reached `end`: the run is complete, the branch is, or the parent's `graph` node has its output.

    Args:
        out: of the node that led there.
    """
    frame = step.table[number]
    if number == ROOT:
        step.collapse(ROOT)
        step.change(ROOT, {"node": END, "status": "done", "error": None, "operations": {}, "passed": ""})
        step.fields["status"] = "idle"
        if not step.get("finish_reason"):
            step.fields["finish_reason"] = "stop"
        step.commands.append(Finished("complete"))
        return
    parent = step.table[frame.parent]
    if frame.graph != parent.graph:
        try:
            out = result_of(step.plan_of(frame), frame, scope_at(step, frame))
        except ExpressionFailed as failure:
            fail_frame(step, number, failure.as_dict(frame.node))
            return
    if frame.branch is not None:
        branches.end_branch(step, number, out)
        return
    del step.table[number]
    step.touched[number] = None
    step.change(parent.number, {"status": "ready", "opened": None})
    succeed(step, parent.number, out)


def succeed(
    step: Step,
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
    """A node is finished: write, count, and go where its routes say.

    Args:
        joined: what its branches wrote.
        quiet: it never ran (skipped, or edited as): it writes nothing and has no end.
        skipped: conditions have nothing to look at, so the route without one is taken.
    """
    frame = step.table[number]
    node = step.node_of(frame)
    step.node, step.frame_no = step.node or node.name, number
    step.add_usage(usage)
    if step.before.interrupts:
        step.void(number, "cancelled")  # what it asked and no longer waits for
    try:
        own = None if quiet else _writes(step, frame, node, out, updates, answer, joined)
        wrote = joined if own is None else own if joined is None else followed(joined, own)
        state = frame.state if wrote is None else wrote.state
        if skipped and node.arrows:
            move = Made(frame, node.arrows[-1].to, own=own, joined=joined)
        else:
            move = _target(step, frame, node, state, out, goto, answer, own, joined)
    except NodeFailed as failure:
        fail(step, number, failure.as_dict(node.name))
        return
    if not quiet:
        step.steps += 1
        writes = () if wrote is None else (*wrote.update.sets, *wrote.update.logs, *wrote.update.merges)
        step.commands.append(Ended(number, node.name, writes))
    plan = step.plan_of(frame)
    if plan.kept is not None and not quiet:
        plan.kept.note_finished(step, number, node)
    step.moves.append(move)
    stop = node.name if stops(plan.after, step.stops_after, frame, node.name) else ""
    enter(step, number, move.to, stop=stop, written=wrote, out=out)


def _writes(
    step: Step,
    frame: Frame,
    node: PlanNode,
    out: Any,
    updates: Mapping[str, Any] | None,
    answer: Any,
    joined: Written | None,
) -> Written | None:
    """What the node wrote, beside what its branches did; all `set` expressions see the state before the node."""
    if node.sets:
        scope = scope_at(step, frame, out=out, answer=answer)
        computed = {key: expression.evaluate(scope) for key, expression in node.sets}
        updates = {**computed, **updates} if updates else computed
    if not updates:
        return None
    schema = step.plan_of(frame).schema
    if joined is None:
        return written(schema, frame, updates)
    return written(schema, msgspec.structs.replace(frame, state=joined.state), updates)


def _target(
    step: Step,
    frame: Frame,
    node: PlanNode,
    state: State,
    out: Any,
    goto: str | None,
    answer: Any,
    own: Written | None,
    joined: Written | None,
) -> Made:
    """Where the routes lead: the first whose condition holds in the state after the node."""
    if node.choose is not None:
        if goto not in node.choose:
            allowed = ", ".join(node.choose)
            raise NodeFailed(
                f"node {node.name!r} must return Goto of one of {allowed}, not {goto!r}", code="node_error"
            )
        return Made(frame, goto, None, own, joined)
    if goto is not None:
        if goto not in {arrow.to for arrow in node.arrows}:
            allowed = ", ".join(arrow.to for arrow in node.arrows)
            raise NodeFailed(
                f"node {node.name!r} returned Goto({goto!r}), which is no declared route; declared: {allowed}"
            )
        return Made(frame, goto, None, own, joined)
    arrows = node.arrows
    first = arrows[0]
    if first.when is None:
        return Made(frame, first.to, None, own, joined)
    scope = scope_at(step, frame, out=out, answer=answer, state=state)
    for index, arrow in enumerate(arrows):  # noqa: B007 - the loop's last index is the route that was taken
        if arrow.when is None:
            break
        value = arrow.when.evaluate(scope)
        if value is not True and value is not False:
            raise ExpressionFailed(f"the condition {arrow.when.source!r} gave {value!r}, not true or false")
        if value:
            break
        rounds = scope["limits"].get("rounds") if arrow.rounds_of else None
        if rounds is not None and any(frame.visits.get(name, 0) >= rounds for name in arrow.rounds_of):
            step.fields["finish_reason"] = "max_rounds"
    step.facts = {**(step.facts or {}), "route": index}
    tell = step.moves or (arrow.to in (END, FAIL) and frame.parent >= 0)  # else it can be told from the machine
    return Made(frame, arrow.to, index, own, joined, looked_at(node, scope) if tell else None)


def fail(
    step: Step,
    number: int,
    error: dict[str, Any],
    *,
    jitter: float = 0.0,
    partial: Any = None,
    final: bool = False,
    started: bool = True,
) -> None:
    """A node has failed: another attempt, an error route, the budget's way out, or the end of the run."""
    frame = step.table[number]
    node = step.node_of(frame)
    step.node, step.frame_no = step.node or node.name, number
    step.count_unfinished(number)
    step.void(number, "cancelled")
    if not final and _retries(frame, node, error):
        _retry(step, number, node, error, jitter)
        return
    if started:
        step.commands.append(Erred(number, node.name, error, will_retry=False))
    keep_partial(step, number, node, partial)
    _route_error(step, number, error)


def matches(codes: Iterable[str], code: str) -> bool:
    """Whether an `on` list names this code; `provider_error` includes `stream_truncated` (E19)."""
    return code in codes or "any" in codes or (code == "stream_truncated" and "provider_error" in codes)


def _retries(frame: Frame, node: PlanNode, error: Mapping[str, Any]) -> bool:
    """Whether the node's policy gives it another attempt after this failure."""
    retry = node.retry
    return retry is not None and frame.attempt < retry.max and matches(retry.on, error["code"]) and not is_spent(error)


def _error_route(node: PlanNode, error: Mapping[str, Any]) -> str | None:
    """Where the node's error routes lead with this failure."""
    if is_spent(error):
        return None
    return next((target for codes, target in node.errors if matches(codes, error["code"])), None)


def _delay_ms(retry: Retry, attempt: int) -> float:
    """The delay after this attempt, before jitter."""
    try:
        return float(min(retry.backoff_ms * retry.factor ** (attempt - 1), retry.max_backoff_ms))
    except OverflowError:  # larger than any number that Python has is larger than the ceiling
        return retry.max_backoff_ms


def _retry(step: Step, number: int, node: PlanNode, error: dict[str, Any], jitter: float) -> None:
    step.collapse(number)
    frame, retry = step.table[number], node.retry
    assert retry is not None
    until = step.tick.at + int(_delay_ms(retry, frame.attempt) * (1 + retry.jitter * (2 * jitter - 1)))
    step.source, step.checkpoint = "retry", False
    # A retry after a failure forgets the model calls that no other operation follows (E5).
    kept = list(frame.operations.items())
    dropped: dict[str, Operation | None] = {}
    while kept and kept[-1][1].kind == "model":
        dropped[kept.pop()[0]] = None
    step.change(number, {"attempt": frame.attempt + 1, "status": "backoff", "until": until}, operations=dropped or None)
    step.commands.append(Erred(number, node.name, error, will_retry=True))
    step.commands.append(Backoff(number, until))


def keep_partial(step: Step, number: int, node: PlanNode, partial: Any) -> None:
    """The text that was streamed before a failure stays in the history (E15)."""
    if partial is not None and any(key == "messages" for key, _ in node.sets):
        step.write(number, {"messages": [partial]})


def _route_error(step: Step, number: int, error: dict[str, Any]) -> None:
    """The node's error route that names the code; else the failure is its frame's.

    A node whose failure was routed on is over: it counts as a step, so that a circle of failures has an end.
    """
    target = _error_route(step.node_of(step.table[number]), error)
    if target is None:
        fail_frame(step, number, error)
        return
    step.steps += 1
    step.moves.append(Made(step.table[number], target, "error", error=error))
    step.collapse(number)
    enter(step, number, target, error=error)


def fail_frame(step: Step, number: int, error: dict[str, Any]) -> None:
    """Nothing in the frame takes the failure: its join does, the node that opened it, the budget's `then`, or nobody."""
    frame = step.table[number]
    if frame.branch is not None and branches.lose_branch(step, number, error):
        return
    if frame.parent >= 0 and _taken_above(step, frame.parent, error):
        step.moves.append(Made(frame, FAIL, "failed", error=error))
        fail(step, frame.parent, error)
        return
    then = step.plan.then
    if error["code"] == "budget_exceeded" and then is not None and not step.get("wrapping"):
        root = step.table[ROOT]
        if root.opened is not None:
            step.commands.append(Erred(ROOT, root.node, error, will_retry=False))
        if number != ROOT:
            step.moves.append(Made(frame, FAIL, "failed", error=error))
        step.moves.append(Made(root, then, "budget", error=error))
        step.collapse(ROOT)
        figure = (error.get("detail") or {}).get("figure")
        step.fields |= {
            "wrapping": True,
            "granted": {"steps": step.steps + WRAP_UP_STEPS, "modelCalls": step.usage.get("modelCalls", 0) + 1},
            "finish_reason": "max_steps" if figure == "steps" else "budget",
        }
        enter(step, ROOT, then, error=error)
        return
    _give_up(step, number, error)


def _taken_above(step: Step, number: int, error: dict[str, Any]) -> bool:
    """Whether a node that is open above takes the failure: by another attempt, an error route, or its own join."""
    level = number
    while level >= 0:
        frame = step.table[level]
        node = step.node_of(frame)
        if _retries(frame, node, error) or _error_route(node, error) is not None:
            return True
        if frame.branch is not None and branches.takes_losses(step, frame, error):
            return True
        level = frame.parent
    return False


def _give_up(step: Step, number: int, error: dict[str, Any]) -> None:
    """No route takes the failure. The frames stay where they are, so that a resume tries again there."""
    step.moves.append(Made(step.table[number], FAIL, "failed", error=error))
    step.collapse(number)
    step.change(number, {"status": "failed", "error": error})
    step.fields |= {"status": "failed", "error": error}
    for other in list(step.table.values()):
        if other.number != number and other.status in ("ready", "backoff", "waiting"):
            step.count_unfinished(other.number)
            step.void(other.number, "cancelled")
            step.change(other.number, {"status": "ready"})
            step.commands.append(CancelNode(other.number))
    step.commands.append(Finished("error"))
