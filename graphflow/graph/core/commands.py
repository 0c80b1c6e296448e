"""Commands: what the executor shall do after a tick, as plain data and in this order."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from graphflow.graph.core.machine import ROOT, Interrupt, Machine, Patch


class Commit(msgspec.Struct):
    """Write this record; always the first command, unless nothing changed."""

    id: str
    at: int
    source: str
    """Of spec 3.2: `input, node, ask, answer, …`; also `failed`, `retry`, `operation`, `recovered` (no checkpoint)."""
    checkpoint: bool
    patch: Patch
    node: str = ""
    frame: int = ROOT
    facts: dict[str, Any] | None = None
    before: Machine | None = None
    machine: Machine | None = None
    """The machine after it."""
    next: list[str] | None = None
    """The nodes that run next, once somebody asked (`announcements.next_of`)."""
    spent: dict[str, Any] | None = None
    """What it adds to the run's usage."""


class Started(msgspec.Struct):
    """A node begins; for an open `graph` node too, which nothing runs."""

    frame: int
    node: str
    visit: int
    attempt: int
    step: int
    path: str
    node_run_id: str = ""
    """Set for a `graph`, `map` or `parallel` node: frames below it run, not the node itself."""


class RunNode(msgspec.Struct):
    """Run the frame's node, or go on with it."""

    frame: int


class Ended(msgspec.Struct):
    frame: int
    node: str
    writes: tuple[str, ...]


class Erred(msgspec.Struct):
    frame: int
    node: str
    error: dict[str, Any]
    will_retry: bool
    again: bool = False
    """The same node begins another attempt at once or after a backoff."""


class Backoff(msgspec.Struct):
    frame: int
    until: int


class CancelNode(msgspec.Struct):
    """Ends the frame's node run, if one is under way; the run goes on without it, or is over."""

    frame: int


class Request(msgspec.Struct):
    """An interrupt is open: ask, once the commit is durable."""

    interrupt: Interrupt


class Resolve(msgspec.Struct):
    """An interrupt is closed; a call that waits for it in this process gets `answer`."""

    interrupt: Interrupt
    decision: str
    answer: Any = None


class Finished(msgspec.Struct):
    """The run is over: `complete`, `error` or `cancel`."""

    how: Literal["complete", "error", "cancel"]


Command = Commit | Started | RunNode | Ended | Erred | Backoff | CancelNode | Request | Resolve | Finished
