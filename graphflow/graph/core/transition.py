"""The pure core: `advance(plan, machine, tick) → (machine, commands)`.

No I/O, clock, randomness or await. Each kind of tick has one handler, here or beside: `way.py` (nodes),
`interruption.py` (people), `travel.py` (stopping, going on, time travel).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphflow.graph.core.channels import State, apply_update
from graphflow.graph.core.control import on_cancel, on_edited, on_moved, on_recovered, on_resumed
from graphflow.graph.core.fast_path import short_way
from graphflow.graph.core.interrupts import on_answered, on_asked, on_expired, on_recorded
from graphflow.graph.core.machine import (
    ROOT,
    Answered,
    AnyTick,
    BackoffOver,
    Cancel,
    Command,
    Deadline,
    Edited,
    Expired,
    Input,
    Machine,
    Migrated,
    Moved,
    NodeAsked,
    NodeSucceeded,
    OperationRecorded,
    Recovered,
    Resumed,
    Signalled,
)
from graphflow.graph.core.machine import NodeFailed as NodeFailedTick
from graphflow.graph.core.node_lifecycle import enter, fail, greet, initial_update, run, succeed
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.scope import exceeded
from graphflow.graph.core.signals import on_signalled
from graphflow.graph.core.unit_of_work import Step, Written


def advance(plan: Plan, machine: Machine, tick: AnyTick) -> tuple[Machine, list[Command]]:
    """The machine after the tick, and what shall be done about it, in order.

    The first command is the `Commit` of what changed.

    Raises:
        StateError: only for `Edited`, when its values don't fit; nothing has changed then.
    """
    if type(tick) is NodeSucceeded and (done := short_way(plan, machine, tick)) is not None:
        return done
    return long_way(plan, machine, tick)


def long_way(plan: Plan, machine: Machine, tick: AnyTick) -> tuple[Machine, list[Command]]:
    """`advance` for ticks of every kind."""
    step = Step(plan, machine, tick)
    _HANDLERS[type(tick)](step, tick)
    return step.done()


def _on_input(step: Step, tick: Input) -> None:
    plan, root = step.plan, step.before.frames.get(ROOT)
    if root is not None:
        step.collapse(ROOT)
        step.void(ROOT, "cancelled")
    step.source, step.node = "input", plan.start
    step.fields |= {
        "status": "running",
        "run_id": tick.run_id,
        "before": tick.before,
        "after": tick.after,
        "params": tick.params,
        "document": tick.document,
        "active_ms": 0,
        "wrapping": False,
        "finish_reason": "",
        "error": None,
        "durability": tick.durability,
    }
    if step.before.reuse:
        step.fields["reuse"] = {}  # a new input repeats nothing of a past that was left
    if step.before.signals:
        step.fields["signals"] = ()
    if step.before.granted:
        step.fields["granted"] = {}
    step.steps = step.begun = 0
    step.usage, step.limits = {}, tick.limits
    step.stops_before, step.stops_after = tick.before, tick.after
    step.fields["limits"] = tick.limits
    state = root.state if root is not None else State()
    update = initial_update(plan.schema, state, plan.run_keys if root is not None else ())
    if plan.has_messages:
        greet(plan.schema, state, tick.input, update, root.operations if root is not None else None)
    step.change(
        ROOT,
        {
            "node": plan.start,
            "status": "ready",
            "visits": {},
            "input": tick.input,
            "error": None,
            "operations": {},
            "passed": "",
            "scope": {},
        },
        Written(update, apply_update(state, update)),
    )
    enter(step, ROOT, plan.start)


def _on_succeeded(step: Step, tick: NodeSucceeded) -> None:
    step.source = "node"
    step.facts = tick.facts
    if tick.finish:
        step.fields["finish_reason"] = tick.finish
    succeed(step, tick.frame, tick.out, updates=tick.updates, goto=tick.goto, usage=tick.usage)


def _on_failed(step: Step, tick: NodeFailedTick) -> None:
    step.source, step.facts = "failed", tick.facts
    step.add_usage(tick.usage)
    fail(step, tick.frame, tick.error, jitter=tick.jitter, partial=tick.partial, final=tick.final)


def _on_backoff_over(step: Step, tick: BackoffOver) -> None:
    step.source, step.checkpoint = "retry", False
    step.change(tick.frame, {"status": "ready"})
    run(step, tick.frame, again=True)


def _on_deadline(step: Step, tick: Deadline) -> None:
    step.source = "failed"
    limit = step.limits.get("timeoutMs", 0)
    leaves = [f.number for f in step.table.values() if f.status in ("ready", "backoff")]
    error = exceeded("timeoutMs", limit, step.get("active_ms"))
    if leaves:
        leaf = leaves[0]
        fail(step, leaf, error.as_dict(step.table[leaf].node), partial=tick.partials.get(leaf), final=True)


def _on_migrated(step: Step, tick: Migrated) -> None:
    from graphflow.graph.core.migration import on_migrated  # rare: not loaded with the engine (E20)

    on_migrated(step, tick)


_HANDLERS: dict[type, Callable[[Step, Any], None]] = {
    Input: _on_input,
    NodeSucceeded: _on_succeeded,
    NodeFailedTick: _on_failed,
    NodeAsked: on_asked,
    OperationRecorded: on_recorded,
    Answered: on_answered,
    Expired: on_expired,
    Signalled: on_signalled,
    BackoffOver: _on_backoff_over,
    Recovered: on_recovered,
    Resumed: on_resumed,
    Deadline: _on_deadline,
    Cancel: on_cancel,
    Edited: on_edited,
    Moved: on_moved,
    Migrated: _on_migrated,
}
