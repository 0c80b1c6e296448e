"""What failed, as clients get it: without absolute paths and addresses of the machine that serves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from graphflow.events import Event, NodeError, RunError, TaskFail
from graphflow.public_text import public_value

FAILURES = frozenset({RunError, NodeError, TaskFail})
"""Events that bear an error."""


def public_failure(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A run or a thread as clients get it, which may have failed."""
    return {key: public_value(value) if key in ("error", "trace") else value for key, value in resource.items()}


def public_event(event: Event) -> Event:
    """The event as clients get it."""
    if type(event) not in FAILURES:
        return event
    assert isinstance(event, RunError | NodeError | TaskFail)
    return replace(event, error=public_value(event.error))
