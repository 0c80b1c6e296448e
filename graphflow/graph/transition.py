"""The pure core: `advance(plan, machine, tick) → (machine, commands)`.

No I/O, clock, randomness or await. Each tick has one handler; a handler changes the machine through a
`_Step`, which applies every change at once and remembers it in the patch that the journal stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.errors import BudgetExceeded, ExpressionFailed, NodeFailed, StateError
from graphflow.graph.document import END, FAIL
from graphflow.graph.machine import (
    ROOT,
    Answered,
    AnyTick,
    Backoff,
    BackoffOver,
    Cancel,
    CancelNode,
    Command,
    Commit,
    Deadline,
    Edited,
    Ended,
    Erred,
    Expired,
    Finished,
    Frame,
    FramePatch,
    Input,
    Interrupt,
    Machine,
    Moved,
    NodeAsked,
    NodeFailed as NodeFailedTick,
    NodeSucceeded,
    Operation,
    OperationRecorded,
    Patch,
    Recovered,
    Request,
    Resolve,
    Resumed,
    Run,
    Started,
    _patched,
)
from graphflow.graph.plan import Plan, PlanNode
from graphflow.graph.state import State, StateSchema, Update, answer_open_calls
from graphflow.messages import AIMessage, HumanMessage

EMPTY: dict[str, Any] = {}


def advance(plan: Plan, machine: Machine, tick: AnyTick) -> tuple[Machine, list[Command]]:
    """The machine after the tick, and what shall be done about it, in order.

    The first command is the `Commit` of what changed.

    Raises:
        StateError: only for `Edited`, when its values don't fit; nothing has changed then.
    """
    step = _Step(plan, machine, tick)
    _HANDLERS[type(tick)](step, tick)
    return step.done()


class _Step:
    """One tick's work: the machine so far, the patch that leads there, and the commands."""

    __slots__ = ("before", "checkpoint", "commands", "facts", "fields", "frame_no", "interrupts", "made", "node", "plan", "source", "table", "tick", "touched")

    def __init__(self, plan: Plan, machine: Machine, tick: AnyTick) -> None:
        self.plan = plan
        self.before = machine
        self.tick = tick
        self.table = dict(machine.frames)
        self.touched: dict[int, FramePatch | None] = {}
        self.fields: dict[str, Any] = {}
        self.interrupts: dict[str, Interrupt | None] = {}
        self.commands: list[Command] = []
        self.source = ""
        self.checkpoint = True
        self.node = ""
        self.frame_no = ROOT
        self.facts: dict[str, Any] | None = None
        self.made = 0
        at = tick.at
        if machine.status == "running" and machine.last_at and at > machine.last_at:
            self.fields["active_ms"] = machine.active_ms + at - machine.last_at
        self.fields["last_at"] = at

    # reading

    def get(self, field: str) -> Any:
        """A machine field as it stands now."""
        return self.fields[field] if field in self.fields else getattr(self.before, field)

    def plan_of(self, frame: Frame) -> Plan:
        return self.plan.graphs[frame.graph]

    def node_of(self, frame: Frame) -> PlanNode:
        return self.plan.graphs[frame.graph].nodes[frame.node]

    def open_interrupts(self) -> dict[str, Interrupt]:
        out = {**self.before.interrupts, **self.interrupts}
        return {key: value for key, value in out.items() if value is not None}

    def children(self, number: int) -> list[int]:
        """Frames below this one, innermost first."""
        direct = [n for n, frame in self.table.items() if frame.parent == number]
        return [m for n in direct for m in (*self.children(n), n)]

    # changing

    def change(
        self,
        number: int,
        fields: dict[str, Any],
        update: Update | None = None,
        operations: dict[str, Operation | None] | None = None,
        visits: dict[str, int] | None = None,
    ) -> Frame:
        patch = FramePatch(fields, update, operations, visits)
        frame = self.table[number] = _patched(self.table.get(number), number, patch)
        earlier = self.touched.get(number)
        self.touched[number] = patch if earlier is None else _joined(earlier, patch)
        return frame

    def close(self, number: int) -> None:
        for child in (*self.children(number), number):
            frame = self.table.pop(child)
            if frame.status in ("ready", "waiting") and self.node_of(frame).form == "use":
                self.commands.append(CancelNode(child))
            self.touched[child] = None
            self.void(child, "cancelled")

    def void(self, number: int, decision: str) -> None:
        """Closes the open interrupts of a frame."""
        for interrupt in list(self.open_interrupts().values()):
            if interrupt.frame == number:
                self.interrupts[interrupt.id] = None
                self.commands.append(Resolve(interrupt, decision))

    def ask(self, interrupt: Interrupt) -> None:
        self.interrupts[interrupt.id] = interrupt
        self.change(interrupt.frame, {"status": "waiting"})
        self.commands.append(Request(interrupt))

    def new_interrupt_id(self) -> str:
        """Bears the checkpoint that opens it, so that an old answer is stale after a rewind (E8)."""
        self.made += 1
        return f"{self.tick.id}.{self.made}"

    def add_usage(self, more: Mapping[str, Any] | None) -> None:
        if more:
            self.fields["usage"] = add_usage(self.get("usage"), more)

    def done(self) -> tuple[Machine, list[Command]]:
        fields = self.fields
        if self.get("status") in ("running", "waiting"):
            waits = not any(f.status in ("ready", "backoff") for f in self.table.values())
            status = "waiting" if waits and self.open_interrupts() else "running"
            if status != self.before.status or "status" in fields:
                fields["status"] = status
        patch = Patch(dict(fields), self.touched, self.interrupts)
        if self.touched:
            fields["frames"] = self.table
        if self.interrupts:
            fields["interrupts"] = self.open_interrupts()
        machine = msgspec.structs.replace(self.before, **fields)
        tick = self.tick
        commit = Commit(
            tick.id, tick.at, self.source, self.checkpoint, patch, self.node, self.frame_no, self.facts, self.before, machine
        )
        return machine, [commit, *self.commands]


def _joined(first: FramePatch, second: FramePatch) -> FramePatch:
    """One patch for two that follow each other on a frame."""
    update = first.update
    if second.update is not None:
        if update is None:
            update = second.update
        else:
            logs = dict(update.logs)
            for key, entries in second.update.logs.items():
                logs[key] = [*logs.get(key, ()), *entries]
            merges = dict(update.merges)
            for key, changed in second.update.merges.items():
                merges[key] = {**merges.get(key, {}), **changed}
            update = Update({**update.sets, **second.update.sets}, logs, merges)
    return FramePatch(
        {**first.fields, **second.fields},
        update,
        {**(first.operations or {}), **(second.operations or {})} or None,
        {**(first.visits or {}), **(second.visits or {})} or None,
    )


def add_usage(old: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both usages summed, figure by figure."""
    out = dict(old)
    for figure, value in more.items():
        out[figure] = out.get(figure, 0) + value
    return out


# --- scopes and limits ---------------------------------------------------------------------------


class Visits(Mapping[str, int]):
    """`visits.NODE` of one frame."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> int:
        return self._frame.visits.get(name, 0)

    def __iter__(self) -> Any:
        return iter(self._frame.visits)

    def __len__(self) -> int:
        return len(self._frame.visits)


def scope_of(machine: Machine, frame: Frame, limits: Any = None, usage: Any = None, state: State | None = None, **more: Any) -> dict[str, Any]:
    """The roots of an expression in this frame (spec 2.1 rule 7)."""
    return {
        "state": frame.state if state is None else state,
        "input": frame.input,
        "visits": Visits(frame),
        "limits": machine.limits if limits is None else limits,
        "usage": machine.usage if usage is None else usage,
        "error": frame.error,
        **frame.scope,
        **more,
    }


USAGE_OF_LIMIT = {"modelCalls": ("modelCalls",), "toolCalls": ("toolCalls",), "tokens": ("promptTokens", "completionTokens")}
"""Limit → the usage figures that count against it."""


def check_budget(
    limits: Mapping[str, Any], usage: Mapping[str, Any], figure: str, *, more: int = 1, reserve: int = 0
) -> None:
    """Raises `BudgetExceeded` when `more` of this figure would pass its limit (spec 1.3)."""
    limit = limits.get(figure)
    if limit is None:
        return
    used = sum(usage.get(name, 0) for name in USAGE_OF_LIMIT[figure])
    if used + more > limit + reserve:
        raise exceeded(figure, limit, used)


def exceeded(figure: str, limit: Any, used: Any) -> BudgetExceeded:
    return BudgetExceeded(
        f"the budget's {figure} is used up: {used} of {limit}; resume with a larger budget, or name a node in budget.then",
        figure=figure,
        limit=limit,
        used=used,
    )


# --- handlers: input and the way of a node -------------------------------------------------------


def _on_input(step: _Step, tick: Input) -> None:
    plan, root = step.plan, step.before.frames.get(ROOT)
    for number in [n for n in step.table if n != ROOT]:
        if number in step.table:
            step.close(number)
    step.void(ROOT, "cancelled")
    step.source, step.node = "input", plan.start
    step.fields |= {
        "status": "running",
        "run_id": tick.run_id,
        "limits": tick.limits,
        "usage": {},
        "before": tick.before,
        "after": tick.after,
        "params": tick.params,
        "steps": 0,
        "begun": 0,
        "active_ms": 0,
        "wrapping": False,
        "finish_reason": "",
        "error": None,
        "durability": tick.durability,
    }
    state = root.state if root is not None else State()
    update = _initial_update(plan.schema, state, plan.run_keys if root is not None else ())
    if plan.has_messages:
        _greet(plan.schema, state, tick.input, update)
    step.change(
        ROOT,
        {"node": plan.start, "status": "ready", "visits": {}, "input": tick.input, "error": None, "operations": {}, "passed": "", "scope": {}},
        update,
    )
    _enter(step, ROOT, plan.start)


def _initial_update(schema: StateSchema, state: State, run_keys: Sequence[str]) -> Update:
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


def _greet(schema: StateSchema, state: State, given: Any, update: Update) -> None:
    """Open tool calls get an error result, then the query comes as user message (E9)."""
    more: list[Any] = list(answer_open_calls(state.get("messages", ()), "this call was not run: the run ended before it"))
    query = given.get("query") if isinstance(given, Mapping) else None
    if isinstance(query, str):
        more.append(HumanMessage(content=query, references=tuple(given.get("references") or ())))
    if more:
        update.logs["messages"] = [*update.logs.get("messages", ()), *(("+", message) for message in more)]


def _enter(step: _Step, number: int, name: str, *, error: dict[str, Any] | None = None, stop: str = "") -> None:
    """Moves the frame's cursor to a node and starts it, unless a limit or breakpoint stands before it.

    `stop` names the node after which a breakpoint was set.
    """
    frame = step.table[number]
    plan = step.plan_of(frame)
    if name == FAIL:
        failure = error or frame.error or NodeFailed("the route led to `fail`").as_dict(frame.node)
        _give_up(step, number, failure)
        return
    if name == END and not stop:
        _leave(step, number)
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
    )
    if stop:
        _break(step, number, "after", stop)
    elif name in plan.before or "*" in plan.before or (number == ROOT and (name in step.get("before") or "*" in step.get("before"))):
        _break(step, number, "before", name)
    else:
        _begin(step, number)


def _break(step: _Step, number: int, when: str, node: str) -> None:
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


def _begin(step: _Step, number: int) -> None:
    """Starts the node under the frame's cursor, after the budget's look at it."""
    frame = step.table[number]
    limits = step.get("limits")
    if "steps" in limits and not step.get("wrapping") and step.get("steps") >= limits["steps"]:
        _fail(step, number, exceeded("steps", limits["steps"], step.get("steps")).as_dict(frame.node), started=False)
        return
    node = step.node_of(frame)
    begun = step.get("begun") + 1
    step.fields["begun"] = begun
    step.commands.append(Started(number, node.name, frame.visit, frame.attempt, begun, frame.path))
    if node.form == "graph":
        _open_child(step, number, node)
    else:
        step.commands.append(Run(number))


def _open_child(step: _Step, number: int, node: PlanNode) -> None:
    """Opens the frame of a subgraph: its own state, its own path (E9)."""
    frame = step.table[number]
    plan = step.plan.graphs[node.graph or ""]
    try:
        given = node.arguments.evaluate(_scope(step, frame)) if node.arguments is not None else {}
    except ExpressionFailed as failure:
        _fail(step, number, failure.as_dict(node.name))
        return
    child = step.get("frames_made")
    step.fields["frames_made"] = child + 1
    path = f"{node.name}#{frame.visit}"
    step.change(number, {"status": "open"})
    update = _initial_update(plan.schema, State(), ())
    if plan.has_messages:
        _greet(plan.schema, State(), given, update)
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
    _enter(step, child, plan.start)


def _scope(step: _Step, frame: Frame, **more: Any) -> dict[str, Any]:
    return scope_of(step.before, frame, step.get("limits"), step.get("usage"), **more)


def _leave(step: _Step, number: int) -> None:
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
        out = result_of(step.plan_of(frame), frame, _scope(step, frame))
    except ExpressionFailed as failure:
        _fail(step, number, failure.as_dict(frame.node))
        return
    step.touched[number] = None
    del step.table[number]
    _succeed(step, frame.parent, out)


def result_of(plan: Plan, frame: Frame, scope: Mapping[str, Any]) -> Any:
    """The output of a finished frame: its `result`, else the last assistant text, else its state (E9)."""
    if plan.result is not None:
        return plan.result.evaluate(scope)
    if not plan.has_messages:
        return frame.state
    messages = frame.state.get("messages", ())
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AIMessage):
            return message.content
        if isinstance(message, HumanMessage):
            break
    return None


def _on_succeeded(step: _Step, tick: NodeSucceeded) -> None:
    step.source = "node"
    step.facts = tick.facts
    if tick.finish:
        step.fields["finish_reason"] = tick.finish
    _succeed(step, tick.frame, tick.out, updates=tick.updates, goto=tick.goto, usage=tick.usage)


def _succeed(
    step: _Step,
    number: int,
    out: Any,
    *,
    updates: Mapping[str, Any] | None = None,
    goto: str | None = None,
    usage: Mapping[str, Any] | None = None,
    answer: Any = None,
    quiet: bool = False,
) -> None:
    """A node is finished: write, count, and go where its routes say.

    `quiet` skips the node's end for one that never began (a skipped or edited one).
    """
    frame = step.table[number]
    node = step.node_of(frame)
    step.node, step.frame_no = step.node or node.name, number
    step.add_usage(usage)
    try:
        update, state = _writes(step, frame, node, out, updates, answer)
        target = _target(step, frame, node, state, out, goto, answer)
    except NodeFailed as failure:
        _fail(step, number, failure.as_dict(node.name))
        return
    if update is not None:
        _write(step, number, update, state)
    if not quiet:
        step.fields["steps"] = step.get("steps") + 1
        writes = () if update is None else (*update.sets, *update.logs, *update.merges)
        step.commands.append(Ended(number, node.name, writes, dict(usage) if usage else None))
    plan = step.plan_of(frame)
    after = node.name in plan.after or "*" in plan.after
    if after or (number == ROOT and (node.name in step.get("after") or "*" in step.get("after"))):
        _enter(step, number, target, stop=node.name)
    else:
        _enter(step, number, target)


def _writes(
    step: _Step, frame: Frame, node: PlanNode, out: Any, updates: Mapping[str, Any] | None, answer: Any
) -> tuple[Update | None, State]:
    """The node's update and the state after it; all `set` expressions see the state before the node."""
    if node.sets:
        scope = _scope(step, frame, out=out, answer=answer)
        computed = {key: expression.evaluate(scope) for key, expression in node.sets}
        updates = {**computed, **updates} if updates else computed
    if not updates:
        return None, frame.state
    update = step.plan_of(frame).schema.reduce(frame.state, updates)
    from graphflow.graph.state import apply_update

    return update, apply_update(frame.state, update)


def _write(step: _Step, number: int, update: Update, state: State) -> None:
    """Puts an update whose result is known already; it must not be applied twice (append logs grow in place)."""
    frame = step.table[number]
    step.table[number] = msgspec.structs.replace(frame, state=state)
    earlier = step.touched.get(number)
    patch = FramePatch({}, update)
    step.touched[number] = patch if earlier is None else _joined(earlier, patch)


def _target(step: _Step, frame: Frame, node: PlanNode, state: State, out: Any, goto: str | None, answer: Any) -> str:
    """Where the routes lead: the first whose condition holds in the state after the node."""
    if node.choose is not None:
        if goto not in node.choose:
            allowed = ", ".join(node.choose)
            raise NodeFailed(f"node {node.name!r} must return Goto of one of {allowed}, not {goto!r}", code="node_error")
        return goto
    if goto is not None:
        if goto not in {arrow.to for arrow in node.arrows}:
            allowed = ", ".join(arrow.to for arrow in node.arrows)
            raise NodeFailed(f"node {node.name!r} returned Goto({goto!r}), which is no declared route; declared: {allowed}")
        return goto
    arrows = node.arrows
    first = arrows[0]
    if first.when is None:
        return first.to
    scope = _scope(step, frame, out=out, answer=answer, state=state)
    for index, arrow in enumerate(arrows):
        if arrow.when is None:
            break
        value = arrow.when.evaluate(scope)
        if value is not True and value is not False:
            raise ExpressionFailed(f"the condition {arrow.when.source!r} gave {value!r}, not true or false")
        if value:
            break
        if arrow.limits_rounds:
            step.fields["finish_reason"] = "max_rounds"
    step.facts = {**(step.facts or EMPTY), "route": index}
    return arrow.to


# --- handlers: failure ---------------------------------------------------------------------------


def _on_failed(step: _Step, tick: NodeFailedTick) -> None:
    step.source = "failed"
    step.add_usage(tick.usage)
    _fail(step, tick.frame, tick.error, jitter=tick.jitter, partial=tick.partial, final=tick.final)


def _fail(
    step: _Step,
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
    _keep_partial(step, number, node, partial)
    _route_error(step, number, node, error)


def matches(codes: Iterable[str], code: str) -> bool:
    """Whether an `on` list names this code; `provider_error` includes `stream_truncated` (E19)."""
    return code in codes or "any" in codes or (code == "stream_truncated" and "provider_error" in codes)


def _retry(step: _Step, number: int, node: PlanNode, error: dict[str, Any], jitter: float) -> None:
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


def _keep_partial(step: _Step, number: int, node: PlanNode, partial: Any) -> None:
    """The text that was streamed before a failure stays in the history (E15)."""
    if partial is None or not any(key == "messages" for key, _ in node.sets):
        return
    frame = step.table[number]
    step.change(number, {}, step.plan_of(frame).schema.reduce(frame.state, {"messages": [partial]}))


def _route_error(step: _Step, number: int, node: PlanNode, error: dict[str, Any]) -> None:
    """The innermost error route that names the code; else the budget's `then`; else the run fails."""
    level: int = number
    while level >= 0:
        frame = step.table[level]
        for codes, target in step.node_of(frame).errors:
            if matches(codes, error["code"]):
                for child in step.children(level):
                    if child in step.table:
                        step.close(child)
                _enter(step, level, target, error=error)
                return
        level = frame.parent
    then = step.plan.then
    if error["code"] == "budget_exceeded" and then is not None and not step.get("wrapping"):
        for child in step.children(ROOT):
            if child in step.table:
                step.close(child)
        figure = (error.get("detail") or {}).get("figure")
        step.fields |= {"wrapping": True, "finish_reason": "max_steps" if figure == "steps" else "budget"}
        _enter(step, ROOT, then, error=error)
        return
    _give_up(step, number, error)


def _give_up(step: _Step, number: int, error: dict[str, Any]) -> None:
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


def _on_backoff_over(step: _Step, tick: BackoffOver) -> None:
    step.source, step.checkpoint = "retry", False
    frame = step.change(tick.frame, {"status": "ready"})
    step.commands.append(Started(tick.frame, frame.node, frame.visit, frame.attempt, step.get("begun"), frame.path))
    step.commands.append(Run(tick.frame))


def _on_deadline(step: _Step, tick: Deadline) -> None:
    step.source = "failed"
    limit = step.get("limits").get("timeoutMs", 0)
    leaves = [f.number for f in step.table.values() if f.status in ("ready", "backoff")]
    for number in leaves:
        step.commands.append(CancelNode(number))
    error = exceeded("timeoutMs", limit, step.get("active_ms"))
    if leaves:
        _fail(step, leaves[0], error.as_dict(step.table[leaves[0]].node), final=True)


# --- handlers: interrupts ------------------------------------------------------------------------


def _on_asked(step: _Step, tick: NodeAsked) -> None:
    interrupt = msgspec.structs.replace(tick.interrupt, id=step.new_interrupt_id(), run_id=step.get("run_id"), opened_at=tick.at)
    step.source, step.node, step.frame_no = "ask", interrupt.node, interrupt.frame
    step.ask(interrupt)


def _on_answered(step: _Step, tick: Answered) -> None:
    interrupt = step.before.interrupts[tick.interrupt_id]
    step.source, step.node, step.frame_no = "answer", interrupt.node, interrupt.frame
    step.facts = {"interrupt": interrupt.id, "decision": tick.decision, **({"by": tick.by} if tick.by else {})}
    step.interrupts[interrupt.id] = None
    step.commands.append(Resolve(interrupt, tick.decision, tick.answer))
    if interrupt.kind == "breakpoint":
        _answer_breakpoint(step, interrupt, tick)
    elif tick.decision == "terminate":
        _terminate(step, interrupt)
    elif interrupt.key == "":
        step.change(interrupt.frame, {"status": "ready"})
        _succeed(step, interrupt.frame, tick.answer, answer=tick.answer)
    else:
        _record_answer(step, interrupt, tick)


def _record_answer(step: _Step, interrupt: Interrupt, tick: Answered) -> None:
    """An answer inside a node is a recorded operation; the node goes on, or is entered again (E5)."""
    operation: Operation | None = Operation("ask", interrupt.digest, "none", "done", tick.answer)
    key = interrupt.key
    if interrupt.kind == "outcome_unknown":
        key = key.removeprefix("unknown:")
        old = step.table[interrupt.frame].operations.get(key)
        result = tick.answer.get("result") if tick.decision == "result" else None
        kind, digest = (old.kind, old.digest) if old else ("once", interrupt.digest)
        operation = None if tick.decision == "retry" else Operation(kind, digest, "write", "done", result)
        if operation is None and old is None:
            step.change(interrupt.frame, {"status": "ready"})
            step.commands.append(Run(interrupt.frame))
            return
    step.change(interrupt.frame, {"status": "ready"}, operations={key: operation})
    step.commands.append(Run(interrupt.frame))


def _answer_breakpoint(step: _Step, interrupt: Interrupt, tick: Answered) -> None:
    number = interrupt.frame
    frame = step.change(number, {"status": "ready", "passed": step.table[number].node})
    answer = tick.answer if isinstance(tick.answer, Mapping) else {}
    if update := answer.get("update"):
        step.change(number, {}, step.plan_of(frame).schema.reduce(frame.state, update))
    if tick.decision == "cancel":
        _stop(step, {})
    elif tick.decision == "skip" and frame.node != END:
        _succeed(step, number, None, quiet=True)
    elif frame.node == END:
        _leave(step, number)
    else:
        _begin(step, number)


def _terminate(step: _Step, interrupt: Interrupt) -> None:
    """The person ended the run: it completes as `rejected` (E13); open calls get their error result."""
    for number in step.children(ROOT):
        if number in step.table:
            step.close(number)
    step.commands.append(CancelNode(ROOT))
    root = step.table[ROOT]
    if step.plan.has_messages and (
        more := answer_open_calls(root.state.get("messages", ()), "the run was ended by the person who was asked")
    ):
        step.change(ROOT, {}, step.plan.schema.reduce(root.state, {"messages": more}))
    step.fields["finish_reason"] = "rejected"
    _leave(step, ROOT)


def _on_expired(step: _Step, tick: Expired) -> None:
    interrupt = step.before.interrupts[tick.interrupt_id]
    step.source, step.node, step.frame_no = "timer", interrupt.node, interrupt.frame
    step.interrupts[interrupt.id] = None
    step.commands.append(Resolve(interrupt, "expired"))
    step.change(interrupt.frame, {"status": "ready"})
    error = NodeFailed(f"nobody answered {interrupt.id} before it expired", code="timeout").as_dict(interrupt.node)
    if interrupt.on_expire is not None:
        step.fields["steps"] = step.get("steps") + 1
        step.commands.append(Ended(interrupt.frame, interrupt.node, ()))
        _enter(step, interrupt.frame, interrupt.on_expire, error=error)
    else:
        step.commands.append(CancelNode(interrupt.frame))
        _fail(step, interrupt.frame, error, final=True)


def _on_recorded(step: _Step, tick: OperationRecorded) -> None:
    step.source, step.checkpoint, step.frame_no = "operation", False, tick.frame
    step.node = step.table[tick.frame].node
    step.add_usage(tick.usage)
    step.change(tick.frame, {}, operations={tick.key: tick.operation})


# --- handlers: stopping, going on, time travel ---------------------------------------------------


def _on_cancel(step: _Step, tick: Cancel) -> None:
    step.source = "cancel"
    step.node = step.before.root.node if step.before.frames else ""
    _stop(step, tick.partials)


def _stop(step: _Step, partials: Mapping[int, Any]) -> None:
    """Every branch ends; nothing that was recorded is lost, and a resume goes on from there."""
    for frame in list(step.table.values()):
        if frame.status in ("ready", "waiting", "backoff"):
            step.void(frame.number, "cancelled")
            if step.node_of(frame).form != "graph":
                _keep_partial(step, frame.number, step.node_of(frame), partials.get(frame.number))
            step.change(frame.number, {"status": "ready"})
            step.commands.append(CancelNode(frame.number))
    step.fields["status"] = "stopped"
    step.commands.append(Finished("cancel"))


def _on_recovered(step: _Step, tick: Recovered) -> None:
    step.source, step.checkpoint = "recovered", False
    step.fields.pop("active_ms", None)  # the time between two lives was not spent running
    _go_on(step)


def _on_resumed(step: _Step, tick: Resumed) -> None:
    step.source, step.checkpoint = "resumed", False
    step.fields.pop("active_ms", None)
    step.fields |= {"status": "running", "run_id": tick.run_id, "error": None, "limits": {**step.get("limits"), **tick.limits}}
    if step.before.status == "failed":
        step.fields["finish_reason"] = ""
    if tick.before is not None:
        step.fields["before"] = tick.before
    if tick.after is not None:
        step.fields["after"] = tick.after
    for frame in list(step.table.values()):
        if frame.status == "failed":
            step.change(frame.number, {"status": "ready", "attempt": 1})
    for interrupt in step.before.interrupts.values():
        if interrupt.run_id != tick.run_id:
            step.interrupts[interrupt.id] = msgspec.structs.replace(interrupt, run_id=tick.run_id)
    _go_on(step)


def _go_on(step: _Step) -> None:
    """Starts what is ready: a node that had not finished begins again."""
    for frame in list(step.table.values()):
        if frame.status == "ready" and frame.node == END:
            _leave(step, frame.number)
        elif frame.status == "ready" and step.node_of(frame).form == "graph":
            step.commands.append(Started(frame.number, frame.node, frame.visit, frame.attempt, step.get("begun"), frame.path))
            _open_child(step, frame.number, step.node_of(frame))
        elif frame.status == "ready":
            step.commands.append(Started(frame.number, frame.node, frame.visit, frame.attempt, max(step.get("begun"), 1), frame.path))
            step.commands.append(Run(frame.number))
        elif frame.status == "backoff":
            step.commands.append(Backoff(frame.number, frame.until))


def _on_edited(step: _Step, tick: Edited) -> None:
    """State as if a node had written it (E8); the run rests until it is resumed."""
    step.source, step.frame_no = "edit", tick.frame
    frame = step.table[tick.frame]
    plan = step.plan_of(frame)
    step.node = tick.as_node or frame.node
    update = plan.schema.reduce(frame.state, tick.values, replace=tick.replace)
    frame = step.change(tick.frame, {}, update)
    if tick.as_node is not None:
        if tick.as_node not in plan.nodes:
            raise StateError(f"{tick.as_node!r} is no node of this graph; nodes: {', '.join(plan.nodes)}")
        for child in step.children(tick.frame):
            if child in step.table:
                step.close(child)
        step.void(tick.frame, "cancelled")
        step.change(tick.frame, {"node": tick.as_node, "status": "ready"})
        _succeed(step, tick.frame, None, quiet=True)
    _rest(step)


def _on_moved(step: _Step, tick: Moved) -> None:
    """A rewind or fork: unfinished frames run again, open interrupts are issued anew (E8)."""
    step.source = tick.source
    step.node = step.before.root.node if step.before.frames else ""
    step.fields["run_id"] = tick.run_id
    step.fields.pop("active_ms", None)
    for frame in list(step.table.values()):
        if frame.operations:
            step.change(frame.number, {"operations": {}})
        if frame.status in ("backoff", "failed"):
            step.change(frame.number, {"status": "ready", "attempt": 1})
    for interrupt in list(step.before.interrupts.values()):
        again = msgspec.structs.replace(
            interrupt, id=step.new_interrupt_id(), run_id=tick.run_id, reissue_of=interrupt.id, opened_at=tick.at, node_run_id=""
        )
        step.interrupts[interrupt.id] = None
        step.interrupts[again.id] = again
        step.commands.append(Resolve(interrupt, "reissued"))
        step.commands.append(Request(again))
    _rest(step)


def _rest(step: _Step) -> None:
    """After a change from outside nothing runs by itself: the thread waits, is stopped, or is idle."""
    if step.fields.get("status") == "failed":
        failure = step.get("error") or {}
        raise StateError(f"the edit can't be routed on: {failure.get('message')}")
    step.commands = [c for c in step.commands if not isinstance(c, Run | Started | Finished | CancelNode | Ended)]
    root = step.table.get(ROOT)
    if root is None or root.node in (END, ""):
        status = "idle"
    elif step.open_interrupts() and not any(f.status in ("ready", "backoff") for f in step.table.values()):
        status = "waiting"
    else:
        status = "stopped"
    step.fields |= {"status": status, "error": None}


_HANDLERS: dict[type, Callable[[_Step, Any], None]] = {
    Input: _on_input,
    NodeSucceeded: _on_succeeded,
    NodeFailedTick: _on_failed,
    NodeAsked: _on_asked,
    OperationRecorded: _on_recorded,
    Answered: _on_answered,
    Expired: _on_expired,
    BackoffOver: _on_backoff_over,
    Recovered: _on_recovered,
    Resumed: _on_resumed,
    Deadline: _on_deadline,
    Cancel: _on_cancel,
    Edited: _on_edited,
    Moved: _on_moved,
}
