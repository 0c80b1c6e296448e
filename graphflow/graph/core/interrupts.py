"""Handlers of what waits for people: asked, answered, expired (spec 2.4, E5, E13)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from graphflow.errors import NodeFailed
from graphflow.graph.core.control import stop
from graphflow.graph.core.machine import (
    ROOT,
    WAITS,
    Answered,
    CancelNode,
    Ended,
    Expired,
    Interrupt,
    NodeAsked,
    Operation,
    OperationRecorded,
    Resolve,
    Run,
    timed,
)
from graphflow.graph.core.node_lifecycle import begin, enter, fail, leave, left_open, succeed
from graphflow.graph.core.route_trace import Made
from graphflow.graph.core.seen import passing_refs, seen
from graphflow.graph.core.signals import take_kept, wake
from graphflow.graph.core.unit_of_work import Step
from graphflow.graph.definition.document import END

ENDED_BY_PERSON = "the run was ended by the person who was asked"
"""The result of calls that the end of the run leaves without one."""


def on_asked(step: Step, tick: NodeAsked) -> None:
    if step.before.signals and take_kept(step, tick):
        return
    interrupt = msgspec.structs.replace(
        tick.interrupt, id=step.new_interrupt_id(), run_id=step.get("run_id"), opened_at=tick.at
    )
    step.source, step.node, step.frame_no = "ask", interrupt.node, interrupt.frame
    step.facts = tick.facts
    step.add_usage(tick.usage)
    step.ask(interrupt)


def on_answered(step: Step, tick: Answered) -> None:
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
        if found := seen(passing_refs(step.node_of(step.table[interrupt.frame])), {"answer": tick.answer}):
            step.facts["seen"] = found
        step.change(interrupt.frame, {"status": "ready"})
        succeed(step, interrupt.frame, tick.answer, answer=tick.answer)
    else:
        _record_answer(step, interrupt, tick)


def _record_answer(step: Step, interrupt: Interrupt, tick: Answered) -> None:
    """An answer inside a node is a recorded operation; the node goes on, or is entered again (E5).

    While it has another question open the frame waits on: it goes on only as far as that one.
    """
    asks = any(other.frame == interrupt.frame for other in step.open_interrupts().values())
    status = {"status": "waiting" if asks else "ready"}
    operation: Operation | None = Operation("ask", interrupt.digest, "none", "done", tick.answer)
    key = interrupt.key
    if interrupt.kind == "outcome_unknown" and key.startswith("unknown:"):
        key = key.removeprefix("unknown:")
        old = step.table[interrupt.frame].operations.get(key)
        result = tick.answer.get("result") if tick.decision == "result" else None
        kind, digest = (old.kind, old.digest) if old else ("once", interrupt.digest)
        operation = None if tick.decision == "retry" else Operation(kind, digest, "write", "done", result)
        if operation is None and old is None:
            step.change(interrupt.frame, status)
            step.commands.append(Run(interrupt.frame))
            return
    step.change(interrupt.frame, status, operations={key: operation})
    step.commands.append(Run(interrupt.frame))


def _answer_breakpoint(step: Step, interrupt: Interrupt, tick: Answered) -> None:
    number = interrupt.frame
    frame = step.change(number, {"status": "ready", "passed": step.table[number].node})
    answer = tick.answer if isinstance(tick.answer, Mapping) else {}
    if update := answer.get("update"):
        step.write(number, update)
    if tick.decision == "cancel":
        stop(step, {})
    elif tick.decision == "skip" and frame.node != END:
        succeed(step, number, None, quiet=True, skipped=True)
    elif frame.node == END:
        leave(step, number)
    else:
        begin(step, number)


def _terminate(step: Step, interrupt: Interrupt) -> None:
    """The person ended the run: it completes as `rejected` (E13); open calls get their error result."""
    step.collapse(ROOT)
    step.void(ROOT, "cancelled")
    step.commands.append(CancelNode(ROOT))
    root = step.table[ROOT]
    if step.plan.has_messages and (more := left_open(root.state.get("messages", ()), root.operations, ENDED_BY_PERSON)):
        step.write(ROOT, {"messages": more})
    step.fields["finish_reason"] = "rejected"
    leave(step, ROOT)


def on_expired(step: Step, tick: Expired) -> None:
    interrupt = step.before.interrupts[tick.interrupt_id]
    step.source, step.node, step.frame_no = "timer", interrupt.node, interrupt.frame
    if interrupt.kind in WAITS:
        wake(step, interrupt, timed(tick.at), "expired")
        return
    step.interrupts[interrupt.id] = None
    step.commands.append(Resolve(interrupt, "expired"))
    step.change(interrupt.frame, {"status": "ready"})
    error = NodeFailed(f"nobody answered {interrupt.id} before it expired", code="timeout").as_dict(interrupt.node)
    if interrupt.on_expire is not None:
        step.steps += 1
        step.commands.append(Ended(interrupt.frame, interrupt.node, ()))
        step.moves.append(Made(step.table[interrupt.frame], interrupt.on_expire, "expired"))
        enter(step, interrupt.frame, interrupt.on_expire, error=error)
    else:
        fail(step, interrupt.frame, error, final=True)


def on_recorded(step: Step, tick: OperationRecorded) -> None:
    frame = step.table[tick.frame]
    operation = tick.operation or frame.operations.get(tick.key or "")
    undoes = operation is not None and operation.kind == "undo"
    step.source, step.checkpoint, step.frame_no = "undo" if undoes else "operation", False, tick.frame
    step.node, step.facts = frame.node, tick.facts
    if tick.settles is not None:
        step.fields["reuse"] = {k: v for k, v in step.before.reuse.items() if k != tick.settles}
    step.add_usage(tick.usage)
    if tick.key is not None:
        step.change(tick.frame, {}, operations={tick.key: tick.operation})
