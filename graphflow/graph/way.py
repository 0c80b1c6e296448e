"""A node's way: entered, begun, finished, failed, and where it leads. The heart of the pure core.

Everything here changes the machine only through its `Step`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from graphflow.errors import ExpressionFailed, NodeFailed
from graphflow.graph.document import END, FAIL
from graphflow.graph.machine import (
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
from graphflow.graph.plan import PlanNode
from graphflow.graph.scope import Scope, exceeded, limits_in, result_of
from graphflow.graph.state import State, StateSchema, Update, answer_open_calls, apply_update
from graphflow.graph.step import Step
from graphflow.messages import HumanMessage


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


def greet(schema: StateSchema, state: State, given: Any, update: Update) -> None:
    """Open tool calls get an error result, then the query comes as user message (E9)."""
    more: list[Any] = list(
        answer_open_calls(state.get("messages", ()), "this call was not run: the run ended before it")
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
    written: tuple[Update, State] | None = None,
) -> None:
    """Moves the frame's cursor to a node and starts it, unless a limit or breakpoint stands before it.

    Args:
        stop: the node after which a breakpoint was set.
        written: what the node before wrote and the state after it, still to be put.
    """
    if written is not None and name in (FAIL, END):
        step.write(number, *written)
        written = None
    frame = step.table[number]
    plan = step.plan_of(frame)
    if name == FAIL:
        failure = error or frame.error or NodeFailed("the route led to `fail`").as_dict(frame.node)
        _give_up(step, number, failure)
        return
    if name == END and not stop:
        leave(step, number)
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
    if stop:
        _break(step, number, "after", stop)
    elif _stops(plan.before, step.stops_before, number, name):
        _break(step, number, "before", name)
    else:
        begin(step, number)


def _stops(always: Collection[str], asked: Collection[str], number: int, name: str) -> bool:
    """Whether a breakpoint of the document, or at the root one of the run, names the node."""
    if name in always or "*" in always:
        return True
    return bool(asked) and number == ROOT and (name in asked or "*" in asked)


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
    frame = step.table[number]
    limits = step.limits
    if "steps" in limits and step.steps >= limits["steps"] and not step.get("wrapping"):
        fail(step, number, exceeded("steps", limits["steps"], step.steps).as_dict(frame.node), started=False)
        return
    node = step.node_of(frame)
    step.begun = begun = step.begun + 1
    open_ = node.form == "graph"
    step.commands.append(Started(number, node.name, frame.visit, frame.attempt, begun, frame.path, open_))
    if open_:
        open_child(step, number, node)
    else:
        step.commands.append(Run(number))


def open_child(step: Step, number: int, node: PlanNode) -> None:
    """Opens the frame of a subgraph: its own state, its own path (E9)."""
    frame = step.table[number]
    plan = step.plan.graphs[node.graph or ""]
    try:
        given = node.arguments.evaluate(scope_at(step, frame)) if node.arguments is not None else {}
    except ExpressionFailed as failure:
        fail(step, number, failure.as_dict(node.name))
        return
    child = step.get("frames_made")
    step.fields["frames_made"] = child + 1
    path = f"{node.name}#{frame.visit}"
    step.change(number, {"status": "open"})
    update = initial_update(plan.schema, State(), ())
    if plan.has_messages:
        greet(plan.schema, State(), given, update)
    step.change(
        child,
        {
            "graph": plan.key,
            "parent": number,
            "path": f"{frame.path}/{path}" if frame.path else path,
            "node": plan.start,
            "input": given,
        },
        update,
    )
    enter(step, child, plan.start)


def scope_at(step: Step, frame: Frame, **given: Any) -> Scope:
    """The scope of expressions in a frame, as the step has it now."""
    return Scope(frame, limits_in(step.plan_of(frame), frame, step.limits), step.usage, given)


def leave(step: Step, number: int) -> None:
    """A frame has reached `end`: the run is complete, or the parent's `graph` node has its output."""
    frame = step.table[number]
    if number == ROOT:
        step.change(ROOT, {"node": END, "status": "done", "error": None, "operations": {}, "passed": ""})
        step.fields["status"] = "idle"
        if not step.get("finish_reason"):
            step.fields["finish_reason"] = "stop"
        step.commands.append(Finished("complete"))
        return
    try:
        out = result_of(step.plan_of(frame), frame, scope_at(step, frame))
    except ExpressionFailed as failure:
        fail(step, number, failure.as_dict(frame.node))
        return
    step.touched[number] = None
    del step.table[number]
    succeed(step, frame.parent, out)


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
) -> None:
    """A node is finished: write, count, and go where its routes say.

    Args:
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
        update, state = (None, frame.state) if quiet else _writes(step, frame, node, out, updates, answer)
        default = node.arrows[-1].to if skipped and node.arrows else None
        target = default or _target(step, frame, node, state, out, goto, answer)
    except NodeFailed as failure:
        fail(step, number, failure.as_dict(node.name))
        return
    if not quiet:
        step.steps += 1
        writes = () if update is None else (*update.sets, *update.logs, *update.merges)
        step.commands.append(Ended(number, node.name, writes, dict(usage) if usage else None))
    plan = step.plan_of(frame)
    stops = _stops(plan.after, step.stops_after, number, node.name)
    written = None if update is None else (update, state)
    enter(step, number, target, stop=node.name if stops else "", written=written)


def _writes(
    step: Step, frame: Frame, node: PlanNode, out: Any, updates: Mapping[str, Any] | None, answer: Any
) -> tuple[Update | None, State]:
    """The node's update and the state after it; all `set` expressions see the state before the node."""
    if node.sets:
        scope = scope_at(step, frame, out=out, answer=answer)
        computed = {key: expression.evaluate(scope) for key, expression in node.sets}
        updates = {**computed, **updates} if updates else computed
    if not updates:
        return None, frame.state
    update = step.plan_of(frame).schema.reduce(frame.state, updates)
    return update, apply_update(frame.state, update)


def _target(step: Step, frame: Frame, node: PlanNode, state: State, out: Any, goto: str | None, answer: Any) -> str:
    """Where the routes lead: the first whose condition holds in the state after the node."""
    if node.choose is not None:
        if goto not in node.choose:
            allowed = ", ".join(node.choose)
            raise NodeFailed(
                f"node {node.name!r} must return Goto of one of {allowed}, not {goto!r}", code="node_error"
            )
        return goto
    if goto is not None:
        if goto not in {arrow.to for arrow in node.arrows}:
            allowed = ", ".join(arrow.to for arrow in node.arrows)
            raise NodeFailed(
                f"node {node.name!r} returned Goto({goto!r}), which is no declared route; declared: {allowed}"
            )
        return goto
    arrows = node.arrows
    first = arrows[0]
    if first.when is None:
        return first.to
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
    return arrow.to


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
    step.void(number, "cancelled")
    retry = node.retry
    if retry is not None and not final and frame.attempt < retry.max and matches(retry.on, error["code"]):
        _retry(step, number, node, error, jitter)
        return
    if started:
        step.commands.append(Erred(number, node.name, error, will_retry=False))
    keep_partial(step, number, node, partial)
    _route_error(step, number, node, error)


def matches(codes: Iterable[str], code: str) -> bool:
    """Whether an `on` list names this code; `provider_error` includes `stream_truncated` (E19)."""
    return code in codes or "any" in codes or (code == "stream_truncated" and "provider_error" in codes)


def _retry(step: Step, number: int, node: PlanNode, error: dict[str, Any], jitter: float) -> None:
    frame, retry = step.table[number], node.retry
    delay = min(retry.backoff_ms * retry.factor ** (frame.attempt - 1), retry.max_backoff_ms)
    until = step.tick.at + int(delay * (1 + retry.jitter * (2 * jitter - 1)))
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
    if partial is None or not any(key == "messages" for key, _ in node.sets):
        return
    frame = step.table[number]
    step.change(number, {}, step.plan_of(frame).schema.reduce(frame.state, {"messages": [partial]}))


def _route_error(step: Step, number: int, node: PlanNode, error: dict[str, Any]) -> None:
    """The innermost error route that names the code; else the budget's `then`; else the run fails."""
    level: int = number
    while level >= 0:
        frame = step.table[level]
        for codes, target in step.node_of(frame).errors:
            if matches(codes, error["code"]):
                for child in step.children(level):
                    if child in step.table:
                        step.close(child)
                enter(step, level, target, error=error)
                return
        level = frame.parent
    then = step.plan.then
    if error["code"] == "budget_exceeded" and then is not None and not step.get("wrapping"):
        for child in step.children(ROOT):
            if child in step.table:
                step.close(child)
        figure = (error.get("detail") or {}).get("figure")
        step.fields |= {"wrapping": True, "finish_reason": "max_steps" if figure == "steps" else "budget"}
        enter(step, ROOT, then, error=error)
        return
    _give_up(step, number, error)


def _give_up(step: Step, number: int, error: dict[str, Any]) -> None:
    """No route takes the failure. The frames stay where they are, so that a resume tries again there."""
    frame = step.table[number]
    if frame.node in (END, FAIL) or step.node_of(frame).name != frame.node:
        step.change(number, {"status": "failed"})
    step.change(number, {"status": "failed", "error": error})
    step.fields |= {"status": "failed", "error": error}
    for other in list(step.table.values()):
        if other.number != number and other.status in ("ready", "backoff", "waiting"):
            step.void(other.number, "cancelled")
            step.change(other.number, {"status": "ready"})
            step.commands.append(CancelNode(other.number))
    step.commands.append(Finished("error"))
