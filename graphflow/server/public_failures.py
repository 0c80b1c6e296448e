"""What failed, as clients get it: in the words of HTTP, without absolute paths and addresses of the machine that serves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from graphflow.events import Event, NodeError, RunError, TaskFail
from graphflow.faces import spoken
from graphflow.public_text import public_value

FAILURES = frozenset({RunError, NodeError, TaskFail})
"""Events that bear an error."""


def public_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error `{code, message, …}` as clients get it."""
    shown: dict[str, Any] = public_value(error)
    if isinstance(message := shown.get("message"), str):
        shown["message"] = spoken(message, "http")
    return shown


def public_failure(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A run or a thread as clients get it, which may have failed."""
    shown = {key: public_value(value) if key == "trace" else value for key, value in resource.items()}
    return {**shown, "error": public_error(error)} if isinstance(error := shown.get("error"), Mapping) else shown


def public_event(event: Event) -> Event:
    """The event as clients get it."""
    if type(event) not in FAILURES:
        return event
    assert isinstance(event, RunError | NodeError | TaskFail)
    return replace(event, error=public_error(event.error))
