"""What edges ask for, as plain data, and the checks that every edge shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from graphflow.errors import GraphflowError, ThreadNotFound
from graphflow.excerpts import excerpt_of
from graphflow.id_rule import unknown_id
from graphflow.runtime.run_request import RunRequest


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to what a run waits for."""

    chat_id: str
    run_id: str
    asked: str
    """The interrupt's id, or that of its tool call."""
    tool_id: str | None = None
    """Given beside `asked`, it must be of the same interrupt."""
    payload: Any
    request_id: str | None = None
    view_id: str | None = None


PER_REQUEST = ("model", "options", "variables")
"""What a request may choose for its run, where both the agent and the settings allow it."""


def check_choices(allowed: Sequence[str], request: RunRequest) -> None:
    """Refuses what the settings (`agents.per_request`) do not let requests choose, whatever the agent allows."""
    for field in PER_REQUEST:
        if getattr(request, field) and field not in allowed:
            named = ", ".join(name for name in PER_REQUEST if name in allowed) or "nothing"
            raise bad_argument(field, f"this server lets requests choose {named} (setting agents.per_request)")


def bad_argument(field: str, message: str) -> GraphflowError:
    """A refusal that names the field."""
    return GraphflowError(f"{field}: {message}", code="invalid_input", fields={field: message})


def unknown_cursor(cursor: str | None) -> GraphflowError:
    return bad_argument(
        "cursor", f"{excerpt_of(cursor, 160)} is not the cursor of an earlier page; leave it out to start over"
    )


def unknown_chat(chat_id: str) -> ThreadNotFound:
    return unknown_id(chat_id, "chatId", f"no chat has the id {chat_id!r}")


def unknown_run(run_id: str) -> ThreadNotFound:
    return unknown_id(run_id, "run_id", f"no run has the id {run_id!r}", "run_not_found")
