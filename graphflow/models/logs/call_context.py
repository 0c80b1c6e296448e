"""For whom a model is called: set by a node before it streams, read by the interaction log.

A context variable, so that the port of models stays free of what only logs need.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec


class CallContext(msgspec.Struct, frozen=True):
    """Run and node behind a model call."""

    trace_id: str
    stage: str
    """The node's name, with `#VISIT` from its second visit on (`reason#2`)."""


_current: ContextVar[CallContext | None] = ContextVar("graphflow_model_call", default=None)


def set_call_context(trace_id: str, stage: str) -> None:
    """Records who makes the model calls that follow in this task."""
    _current.set(CallContext(trace_id, stage))


def call_context() -> CallContext | None:
    """The context set last in this task; `None` outside a run."""
    return _current.get()
