"""Ticks: what happened, as plain data (E17). `transition.advance` makes the next machine of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.graph.core.machine import ROOT, Interrupt, Operation


class Tick(msgspec.Struct, kw_only=True):
    """What every tick carries: the record's id and the time in epoch ms."""

    id: str
    at: int
    usages: Mapping[int, dict[str, Any]] | None = None
    """Frame → usage of its node run. Counted only for node runs that this tick ends before they end by themselves."""


class Input(Tick):
    run_id: str
    input: Any
    limits: dict[str, Any]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    params: Any = None
    durability: str = "async"
    document: str = ""
    chosen: dict[str, Any] | None = None
    starter: dict[str, Any] | None = None
    tools: str = ""
    """Hash of the recorded list of the tools that MCP servers offer to this run; empty without any."""
    large: bool = False
    """It brings so much that reading and storing it would keep the event loop."""


class NodeSucceeded(Tick):
    frame: int
    out: Any = None
    updates: Mapping[str, Any] | None = None
    """What a `node:` function returned; `set` expressions make the updates of every other kind."""
    goto: str | None = None
    usage: dict[str, Any] | None = None
    finish: str | None = None
    facts: dict[str, Any] | None = None
    """What the record keeps of the node's operations (E5): kind, key, model and usage of each."""


class NodeErrored(Tick):
    frame: int
    error: dict[str, Any]
    jitter: float = 0.0
    partial: Any = None
    """The message as far as it came (E15)."""
    usage: dict[str, Any] | None = None
    final: bool = False
    """Not to be retried, whatever the policy says (an outcome-unknown write)."""
    facts: dict[str, Any] | None = None
    """The `model` that it called, for what it has used."""


class NodeAsked(Tick):
    """An `ask` node, a breakpoint, `ctx.ask`, an approval or an unknown outcome opens an interrupt."""

    frame: int
    interrupt: Interrupt
    usage: dict[str, Any] | None = None
    """What the node run has used before it asked, as with a recorded operation."""
    facts: dict[str, Any] | None = None


class OperationRecorded(Tick):
    frame: int
    key: str | None
    """None records no operation, only what the node run has used so far."""
    operation: Operation | None
    usage: dict[str, Any] | None = None
    facts: dict[str, Any] | None = None
    """Of a write's intent: where it was done, its arguments if nothing else holds them, and what takes it back (E6)."""
    settles: str | None = None
    """The effect of `Machine.reuse` whose place this operation takes."""
    kept: dict[str, Any] | None = None
    """Notes for `Machine.kept`; None drops one."""


class Answered(Tick):
    interrupt_id: str
    answer: Any
    decision: str
    by: str | None = None


class Expired(Tick):
    interrupt_id: str


def timed(at: int) -> dict[str, Any]:
    """The `out` of a `wait` node whose time has come."""
    return {"by": "timer", "at": at}


class Signalled(Tick):
    """A named signal has come from outside."""

    name: str
    payload: Any = None


class BackoffOver(Tick):
    frame: int


class Recovered(Tick):
    """A new epoch takes over after a crash."""

    error: dict[str, Any] | None = None
    """The run does not go on but fails by this: too many epochs have crashed here."""


class Resumed(Tick):
    """A stopped or failed thread goes on, as a new run when `run_id` is another."""

    run_id: str
    limits: dict[str, Any]
    before: tuple[str, ...] | None = None
    after: tuple[str, ...] | None = None
    starter: dict[str, Any] | None = None
    """Who resumes: the run may do no more than both may."""


class Deadline(Tick):
    """The run's active time is used up, or what `error` says."""

    error: dict[str, Any] | None = None
    partials: dict[int, Any] = msgspec.field(default_factory=dict)
    """Frame → the message as far as it came (E15)."""


class Cancel(Tick):
    partials: dict[int, Any] = msgspec.field(default_factory=dict)
    """Frame → the message as far as it came (E15)."""


class Edited(Tick):
    values: dict[str, Any]
    same_run: bool
    """The run that waits goes on from it; else it begins another, as `Moved` does."""
    as_node: str | None = None
    frame: int = ROOT
    replace: tuple[str, ...] = ()
    reuse: dict[str, Any] = msgspec.field(default_factory=dict)
    facts: dict[str, Any] | None = None
    """By whom, and the choices about effects (E8)."""
    starter: dict[str, Any] | None = None
    """As with `Resumed`."""


class Moved(Tick):
    """A rewind or fork made this machine the head (E8). The run that it begins has the id of this tick."""

    source: str
    reuse: dict[str, Any] = msgspec.field(default_factory=dict)
    facts: dict[str, Any] | None = None
    """By whom, and the choices about effects (E8)."""
    starter: dict[str, Any] | None = None
    """As with `Resumed`."""


class Migrated(Tick):
    """The thread goes on under another version of its document."""

    run_id: str
    """The run that goes on from it: the same while the thread waits or rests, else another."""
    migration: Any = None
    """The planned `Migration`: the changes of frames and questions."""
    facts: dict[str, Any] | None = None
    """By whom, and which node names were mapped."""


AnyTick = (
    Input
    | NodeSucceeded
    | NodeErrored
    | NodeAsked
    | OperationRecorded
    | Answered
    | Expired
    | Signalled
    | BackoffOver
    | Recovered
    | Resumed
    | Deadline
    | Cancel
    | Edited
    | Moved
    | Migrated
)
