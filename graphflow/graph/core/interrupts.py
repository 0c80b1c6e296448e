"""Handlers of interrupts: asked, answered, expired, and signals for `wait` nodes (spec 2.4, E5, E13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.approval_mode import after_answer, after_proposal, people_in, proposal
from graphflow.errors import NodeFailed
from graphflow.graph.core.commands import CancelNode, Ended, Resolve, RunNode
from graphflow.graph.core.control import stop
from graphflow.graph.core.immutable import digest_of, freeze
from graphflow.graph.core.machine import ROOT, WAITS, Interrupt, Operation, of_frame
from graphflow.graph.core.node_lifecycle import ask, begin, branches, enter, fail, finish_frame, succeed
from graphflow.graph.core.route_trace import PendingMove, passing_refs, seen
from graphflow.graph.core.ticks import Answered, Expired, NodeAsked, OperationRecorded, Signalled, timed
from graphflow.graph.core.transcript import left_open
from graphflow.graph.core.unit_of_work import UnitOfWork
from graphflow.graph.definition.document import END

ENDED_BY_PERSON = "the run was ended by the person who was asked"
"""The result given to tool calls that the end of the run leaves open."""


def on_asked(work: UnitOfWork, tick: NodeAsked) -> None:
    if work.before.signals and take_kept(work, tick):
        return
    # The id holds the tick's id, which is known only here; a node that asks can't choose it.
    interrupt = msgspec.structs.replace(
        tick.interrupt, id=work.new_interrupt_id(), run_id=work.get("run_id"), opened_at=tick.at
    )
    work.source, work.node, work.frame_no = "ask", interrupt.node, interrupt.frame
    work.facts = tick.facts
    work.add_usage(tick.usage, interrupt.frame)
    ask(work, interrupt)


def on_answered(work: UnitOfWork, tick: Answered) -> None:
    interrupt = work.before.interrupts[tick.interrupt_id]
    work.source, work.node, work.frame_no = "answer", interrupt.node, interrupt.frame
    work.facts = {"interrupt": interrupt.id, "decision": tick.decision, **({"by": tick.by} if tick.by else {})}
    work.put_interrupt(interrupt.id, None)
    work.commands.append(Resolve(interrupt, tick.decision, tick.answer))
    if interrupt.kind == "breakpoint":
        _answer_breakpoint(work, interrupt, tick)
    elif tick.decision == "terminate":
        _terminate(work, interrupt)
    elif interrupt.kind == "outcome_unknown" and _ask_who_agrees(work, interrupt, tick):
        return  # nothing happens to the call yet
    # The question is the node itself: the answer is its output, and conditions may read it.
    elif interrupt.key == "":
        if found := seen(passing_refs(work.node_of(work.table[interrupt.frame])), {"answer": tick.answer}):
            work.facts["seen"] = found
        branches.woken(work, interrupt.frame)
        succeed(work, interrupt.frame, tick.answer, answer=tick.answer)
    else:
        if interrupt.kind == "approval" and tick.decision in ("approve", "edit"):
            _ask_the_next(work, interrupt, tick)
        _record_answer(work, interrupt, tick)


def _ask_the_next(work: UnitOfWork, interrupt: Interrupt, tick: Answered) -> None:
    """Asks the next of several people who approve a call.

    By the commit that records the answer before, not when the node comes there: an answer that comes right behind it, or
    with it, finds the question that it means.
    """
    people = people_in(interrupt.payload)
    if people.get("count", 1) == 1:
        return
    payload = after_answer(interrupt.payload, interrupt.arguments, tick.answer)
    if len(payload["approval"]["approvals"]) >= people["count"]:
        return
    arguments = tick.answer["arguments"] if tick.decision == "edit" else interrupt.arguments
    first, _, number = interrupt.key.rpartition("/") if people["approvals"] else (interrupt.key, "", "1")
    work.ask(
        msgspec.structs.replace(
            interrupt,
            id=work.new_interrupt_id(),
            key=nth_approval(first, int(number) + 1),
            payload=freeze(payload),
            arguments=freeze(arguments),
            digest=digest_of([interrupt.tool_name, arguments]),
            opened_at=tick.at,
            reissue_of=None,
        )
    )


def _ask_who_agrees(work: UnitOfWork, interrupt: Interrupt, tick: Answered) -> bool:
    """Asks the next of several people what happens to a call that was cut off; false once as many agree as have to.

    Under the same key, since the answers before the last are decisions about nothing.
    """
    people = people_in(interrupt.payload)
    if people.get("count", 1) == 1:
        return False
    agrees = digest_of(people.get("proposed")) == digest_of(proposal(tick.answer))
    payload = after_proposal(interrupt.payload, tick.answer, agrees=agrees)
    if len(payload["approval"]["approvals"]) >= people["count"]:
        return False
    work.ask(
        msgspec.structs.replace(
            interrupt, id=work.new_interrupt_id(), payload=freeze(payload), opened_at=tick.at, reissue_of=None
        )
    )
    return True


def nth_approval(key: str, number: int) -> str:
    """The key of the question for the n-th person; not with `#`, which numbers calls of one id."""
    return key if number == 1 else f"{key}/{number}"


def _record_answer(work: UnitOfWork, interrupt: Interrupt, tick: Answered) -> None:
    """Records an answer inside a node as an operation; the node goes on, or is entered again (E5).

    While the node has another question open, the frame keeps waiting: the node can only run up to that question.
    """
    asks = bool(of_frame(work.open_interrupts(), interrupt.frame))
    if not asks:
        branches.woken(work, interrupt.frame)
    operation: Operation | None = Operation("ask", interrupt.digest, "none", "done", tick.answer)
    key = interrupt.key
    if interrupt.kind == "outcome_unknown" and key.startswith("unknown:"):
        # This question is about another operation, whose record the answer settles: `retry` drops its intent, the
        # other decisions complete it.
        key = key.removeprefix("unknown:")
        old = work.table[interrupt.frame].operations.get(key)
        result = tick.answer.get("result") if tick.decision == "result" else None
        kind, digest = (old.kind, old.digest) if old else ("once", interrupt.digest)
        operation = None if tick.decision == "retry" else Operation(kind, digest, "write", "done", result)
        if operation is None and old is None:
            work.commands.append(RunNode(interrupt.frame))
            return
    work.change(interrupt.frame, {}, operations={key: operation})
    work.commands.append(RunNode(interrupt.frame))


def _answer_breakpoint(work: UnitOfWork, interrupt: Interrupt, tick: Answered) -> None:
    number = interrupt.frame
    # `passed` keeps the same breakpoint from stopping the node again after a crash or a resume.
    frame = branches.woken(work, number, passed=work.table[number].node)
    answer = tick.answer if isinstance(tick.answer, Mapping) else {}
    if update := answer.get("update"):
        work.write(number, update)
    if tick.decision == "cancel":
        stop(work, {})
    elif tick.decision == "skip" and frame.node != END:
        succeed(work, number, None, quiet=True, skipped=True)
    elif frame.node == END:
        finish_frame(work, number)
    else:
        begin(work, number)


def _terminate(work: UnitOfWork, interrupt: Interrupt) -> None:
    """The person ended the run: it completes as `rejected` (E13); open calls get their error result."""
    work.close_children(ROOT)
    work.cancel_interrupts(ROOT, "cancelled")
    work.commands.append(CancelNode(ROOT))
    root = work.table[ROOT]
    if work.plan.has_messages and (more := left_open(root.state.get("messages", ()), root.operations, ENDED_BY_PERSON)):
        work.write(ROOT, {"messages": more})
    work.fields["finish_reason"] = "rejected"
    finish_frame(work, ROOT)


def on_expired(work: UnitOfWork, tick: Expired) -> None:
    interrupt = work.before.interrupts[tick.interrupt_id]
    work.source, work.node, work.frame_no = "timer", interrupt.node, interrupt.frame
    if interrupt.kind in WAITS:
        wake(work, interrupt, timed(tick.at), "expired")
        return
    work.put_interrupt(interrupt.id, None)
    work.commands.append(Resolve(interrupt, "expired"))
    branches.woken(work, interrupt.frame)
    error = NodeFailed(f"nobody answered {interrupt.id} before it expired", code="timeout").as_dict(interrupt.node)
    if interrupt.on_expire is not None:
        # The question was asked and has ended, so its node counts as finished, like one whose failure is routed.
        work.steps += 1
        work.commands.append(Ended(interrupt.frame, interrupt.node, ()))
        work.moves.append(PendingMove(work.table[interrupt.frame], interrupt.on_expire, "expired"))
        enter(work, interrupt.frame, interrupt.on_expire, error=error)
    else:
        fail(work, interrupt.frame, error, final=True)


def on_recorded(work: UnitOfWork, tick: OperationRecorded) -> None:
    frame = work.table[tick.frame]
    operation = tick.operation or frame.operations.get(tick.key or "")
    undoes = operation is not None and operation.kind == "undo"
    work.source, work.checkpoint, work.frame_no = "undo" if undoes else "operation", False, tick.frame
    work.node, work.facts = frame.node, tick.facts
    if tick.settles is not None:
        work.fields["reuse"] = {k: v for k, v in work.before.reuse.items() if k != tick.settles}
    if tick.kept is not None:
        work.fields["kept"] = tick.kept
    work.add_usage(tick.usage, tick.frame)
    if tick.key is not None:
        work.change(tick.frame, {}, operations={tick.key: tick.operation})


# --- `wait` nodes: a named signal or a time lets them go on (spec 2.4, E12, E17)
#
# A signal that no node waits for yet is kept in the machine, in the order in which it came, until a `wait` of its name
# is reached or new input begins another run. So it does not matter which of the two comes first.


def on_signalled(work: UnitOfWork, tick: Signalled) -> None:
    """The oldest `wait` of this name goes on; without one the signal is kept."""
    work.source = "signal"
    for interrupt in work.before.interrupts.values():
        if interrupt.kind == "signal" and signal_of(interrupt) == tick.name:
            wake(work, interrupt, signalled(tick.name, tick.payload, tick.at), "answered")
            return
    work.checkpoint = False
    work.node = work.before.root.node if work.before.frames else ""
    work.fields["signals"] = (*work.before.signals, (tick.name, tick.payload))


def take_kept(work: UnitOfWork, tick: NodeAsked) -> bool:
    """Whether the signal came before its `wait`; the node then succeeds at once and opens no interrupt."""
    interrupt = tick.interrupt
    if interrupt.kind != "signal":
        return False
    name = signal_of(interrupt)
    kept = work.before.signals
    for index, (given, payload) in enumerate(kept):
        if given == name:
            work.source, work.node, work.frame_no = "signal", interrupt.node, interrupt.frame
            work.fields["signals"] = (*kept[:index], *kept[index + 1 :])
            succeed(work, interrupt.frame, signalled(name, payload, tick.at))
            return True
    return False


def wake(work: UnitOfWork, interrupt: Interrupt, out: Mapping[str, Any], decision: str) -> None:
    """Ends a `wait`: its node succeeds with `out`."""
    work.node, work.frame_no = interrupt.node, interrupt.frame
    work.facts = {"interrupt": interrupt.id, "decision": decision}
    work.put_interrupt(interrupt.id, None)
    work.commands.append(Resolve(interrupt, decision, out))
    branches.woken(work, interrupt.frame)
    succeed(work, interrupt.frame, out)


def signal_of(interrupt: Interrupt) -> str:
    return str(interrupt.payload["signal"])


def signalled(name: str, payload: Any, at: int) -> dict[str, Any]:
    """The `out` of a `wait` that a signal ended."""
    return {"by": "signal", "signal": name, "payload": payload, "at": at}
