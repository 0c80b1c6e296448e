"""The pure core: `advance(plan, machine, tick) → (machine, commands)`.

No I/O, clock, randomness or await. Each kind of tick has one handler, here or in `node_lifecycle.py` (nodes),
`interrupts.py` (people, signals, times) or `control.py` (stop, resume, time travel).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphflow.graph.core.budget import exceeded
from graphflow.graph.core.channels import apply_update, initial_update
from graphflow.graph.core.commands import Command
from graphflow.graph.core.control import on_cancel, on_edited, on_moved, on_recovered, on_resumed
from graphflow.graph.core.fast_path import fast_path
from graphflow.graph.core.immutable import State
from graphflow.graph.core.interrupts import on_answered, on_asked, on_expired, on_recorded, on_signalled
from graphflow.graph.core.machine import ROOT, Machine
from graphflow.graph.core.node_lifecycle import enter, fail, run, succeed
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import (
    Answered,
    AnyTick,
    BackoffOver,
    Cancel,
    Deadline,
    Edited,
    Expired,
    Input,
    Migrated,
    Moved,
    NodeAsked,
    NodeErrored,
    NodeSucceeded,
    OperationRecorded,
    Recovered,
    Resumed,
    Signalled,
)
from graphflow.graph.core.transcript import add_user_message
from graphflow.graph.core.unit_of_work import UnitOfWork, Written


def advance(plan: Plan, machine: Machine, tick: AnyTick) -> tuple[Machine, list[Command]]:
    """The machine after the tick, and the commands that the executor performs, in order.

    The first command is the `Commit` of what changed.

    Raises:
        StateError: only for `Edited`, when its values don't fit; nothing has changed then.
    """
    if type(tick) is NodeSucceeded and (done := fast_path(plan, machine, tick)) is not None:
        return done
    return full_path(plan, machine, tick)


def full_path(plan: Plan, machine: Machine, tick: AnyTick) -> tuple[Machine, list[Command]]:
    """`advance` for ticks of every kind."""
    work = UnitOfWork(plan, machine, tick)
    _HANDLERS[type(tick)](work, tick)
    return work.done()


def _on_input(work: UnitOfWork, tick: Input) -> None:
    plan, root = work.plan, work.before.frames.get(ROOT)
    if root is not None:
        # New input drops what the last run left unfinished (E9): its frames and questions belong to that run.
        work.close_children(ROOT)
        work.cancel_interrupts(ROOT, "cancelled")
    work.source, work.node = "input", plan.start
    work.fields |= {
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
    if tick.chosen or work.before.chosen:
        work.fields["chosen"] = tick.chosen
    if tick.tools != work.before.tools:
        work.fields["tools"] = tick.tools
    if work.before.origin:
        work.fields["origin"] = ""
    if tick.starter or work.before.starter:
        work.fields["starter"] = tick.starter
    if work.before.reuse:
        work.fields["reuse"] = {}  # a new input repeats nothing of a past that was left
    if work.before.signals:
        work.fields["signals"] = ()
    if work.before.granted:
        work.fields["granted"] = {}
    work.steps = work.begun = 0
    work.usage, work.limits = {}, tick.limits
    work.stops_before, work.stops_after = tick.before, tick.after
    work.fields["limits"] = tick.limits
    state = root.state if root is not None else State()
    # State keys belong to the thread; only `x-scope: run` keys start again. In a new thread every key is missing, so
    # all get their defaults.
    update = initial_update(plan.schema, state, plan.run_keys if root is not None else ())
    if plan.has_messages:
        add_user_message(state, tick.input, update, root.operations if root is not None else None)
    work.change(
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
    enter(work, ROOT, plan.start)


def _on_succeeded(work: UnitOfWork, tick: NodeSucceeded) -> None:
    work.source = "node"
    work.facts = tick.facts
    if tick.finish:
        work.fields["finish_reason"] = tick.finish
    succeed(work, tick.frame, tick.out, updates=tick.updates, goto=tick.goto, usage=tick.usage)


def _on_failed(work: UnitOfWork, tick: NodeErrored) -> None:
    work.source, work.facts = "failed", tick.facts
    work.add_usage(tick.usage, tick.frame)
    fail(work, tick.frame, tick.error, jitter=tick.jitter, partial=tick.partial, final=tick.final)


def _on_backoff_over(work: UnitOfWork, tick: BackoffOver) -> None:
    # A record without a checkpoint (E3): the state is as it was when the attempt failed.
    work.source, work.checkpoint = "retry", False
    work.change(tick.frame, {"status": "ready"})
    run(work, tick.frame, again=True)


def _on_deadline(work: UnitOfWork, tick: Deadline) -> None:
    work.source = "failed"
    limit = work.limits.get("timeoutMs", 0)
    # The time limit belongs to the run, so one failure is enough: it starts at a leaf, which keeps its partial text,
    # and finds no retry or error route on its way up (`is_spent`).
    leaves = [f.number for f in work.table.values() if f.status in ("ready", "backoff")]
    error = tick.error or exceeded("timeoutMs", limit, work.get("active_ms")).as_dict()
    if leaves:
        leaf = leaves[0]
        fail(work, leaf, {**error, "node": work.table[leaf].node}, partial=tick.partials.get(leaf), final=True)


def _on_migrated(work: UnitOfWork, tick: Migrated) -> None:
    from graphflow.graph.core.migration import on_migrated  # rare: not loaded with the engine (E20)

    on_migrated(work, tick)


_HANDLERS: dict[type, Callable[[UnitOfWork, Any], None]] = {
    Input: _on_input,
    NodeSucceeded: _on_succeeded,
    NodeErrored: _on_failed,
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
