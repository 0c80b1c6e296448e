"""Ways to leave a node run before its end: it waits, it is over, or the outcome of a write is unknown."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from graphflow.errors import GraphflowError, NodeFailed, NodeTimeout


class Suspended(BaseException):
    """The node waits for a person and the process does not: the node is entered again after the answer.

    Not an `Exception`, so that a node's own error handling does not swallow it.
    """


class NodeRunOver(asyncio.CancelledError):
    """The node run is over, cancelled say, and what is left of its code asks for an operation or an answer.

    Nothing has been done: an act that can't be recorded would be done again by the next run. A `CancelledError`, so
    that code that cleans up passes it on as it passes on the cancellation itself.
    """


class OutcomeUnknown(NodeFailed):
    """A write was cut off between doing and recording; it is never tried again by itself (E6)."""


def is_suspension(left: BaseException) -> bool:
    """Whether a node was left because it waits, also when its questions were asked in a task group."""
    return isinstance(left, Suspended) or (isinstance(left, BaseExceptionGroup) and left.split(Suspended)[1] is None)


ACTS_AROUND: ContextVar[frozenset[object]] = ContextVar("graphflow_acts_around", default=frozenset())
"""The operations inside which the present task runs."""


def is_cut_off(error: BaseException) -> bool:
    """Whether a write that ended with this error may still have happened (E6)."""
    if isinstance(error, GraphflowError) and error.code in ("timeout", "connection"):
        return True
    return isinstance(error, TimeoutError | NodeTimeout | ConnectionError) or not isinstance(error, Exception)
