"""Events that are sent once a commit is durable: its checkpoint, its questions, how the run ended or paused (E1, E7).

All of them are a function of the records, so that a new epoch and a reader of the journal produce the same events.
"""

from __future__ import annotations

import msgspec

from graphflow.events import (
    CheckpointCreate,
    Event,
    InterruptRequest,
    RunCancel,
    RunComplete,
    RunError,
    RunWaiting,
)
from graphflow.graph.core.commands import Commit
from graphflow.graph.core.machine import Interrupt, Machine, next_nodes
from graphflow.graph.engine.ports import Durable


class After(msgspec.Struct):
    """What is sent once a commit is durable (E1, E7)."""

    commit: Commit
    durable: Durable | None
    requests: list[Interrupt]
    finished: str | None
    parent: str | None = None
    """The checkpoint before it."""
    awaited: bool = False
    """Whether the executor is called back once it is durable."""


def count_after(after: After) -> int:
    """How many events follow a commit."""
    checkpoint = after.commit.checkpoint and after.durable is not None
    return checkpoint + len(after.requests) + (after.finished is not None)


def events_after(after: After, machine: Machine) -> list[Event]:
    """What follows a commit, in order: its checkpoint, its questions, its terminal.

    A function of the record alone, so that a new epoch sends the same events again (E1).
    """
    commit, out = after.commit, list[Event]()
    if commit.checkpoint and after.durable is not None:
        out.append(
            CheckpointCreate(checkpoint_id=commit.id, parent_id=after.parent, step=machine.steps, next=next_of(commit))
        )
    if after.requests:
        out += [interrupt_event(interrupt) for interrupt in after.requests]
    if after.finished is not None and (end := ending_event(machine, commit.source)) is not None:
        out.append(end)
    return out


def next_of(commit: Commit) -> list[str]:
    """The nodes that run next after a commit; found once for its record and its event."""
    if commit.next is None:
        assert commit.machine is not None
        commit.next = next_nodes(commit.machine)
    return commit.next


def interrupt_event(interrupt: Interrupt) -> InterruptRequest:
    return InterruptRequest(
        interrupt_id=interrupt.id,
        kind=interrupt.kind,
        run_id=interrupt.run_id,
        node=interrupt.node,
        payload=interrupt.payload,
        schema=interrupt.schema,
        path=interrupt.path or None,
        tool_id=interrupt.tool_id,
        tool_name=interrupt.tool_name,
        arguments=interrupt.arguments,
        owner=interrupt.owner,
        role=interrupt.role,
        expires_at=interrupt.expires_at,
        reissue_of=interrupt.reissue_of,
    )


def ending_event(machine: Machine, source: str) -> Event | None:
    """The event with which a run ended or paused after its last commit; None if there is none (E1)."""
    if source == "undo":  # outside the run, whose ending event was sent before
        return None
    if machine.status == "waiting":
        return waiting_event(machine)
    if source in ("edit", "rewind", "fork", "migrate"):
        return None
    if machine.status == "idle":
        return RunComplete(run_id=machine.run_id, finish_reason=machine.finish_reason or "stop")
    if machine.status == "failed":
        return RunError(run_id=machine.run_id, error=dict(machine.error or {}))
    return RunCancel(run_id=machine.run_id) if machine.status == "stopped" else None


def waiting_event(machine: Machine) -> RunWaiting:
    interrupts = [{"interruptId": i.id, "kind": i.kind, "node": i.node} for i in machine.interrupts.values()]
    return RunWaiting(run_id=machine.run_id, interrupts=interrupts)
