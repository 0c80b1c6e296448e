"""What edges ask for, as plain data, and the checks that every edge shares."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from graphflow.errors import GraphflowError, ThreadNotFound

CHAT_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


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


def bad_argument(field: str, message: str) -> GraphflowError:
    """A refusal that names the field."""
    return GraphflowError(f"{field}: {message}", code="invalid_input", fields={field: message})


def unknown_cursor(cursor: str | None) -> GraphflowError:
    return bad_argument("cursor", f"{cursor!r:.160} is not the cursor of an earlier page; leave it out to start over")


def unknown_thread(thread_id: str) -> ThreadNotFound:
    return ThreadNotFound(f"no thread {thread_id!r}; list them with `graphflow threads list`")


def unknown_chat(chat_id: str) -> ThreadNotFound:
    return ThreadNotFound(f"no chat has the id {chat_id!r}")


def unknown_run(run_id: str) -> ThreadNotFound:
    return ThreadNotFound(f"no run has the id {run_id!r:.160}", code="run_not_found")


def checked_chat_id(chat_id: str, field: str = "chatId") -> str:
    """The id itself.

    Raises:
        GraphflowError: `invalid_input` for anything that is not a thread id (spec 3.4).
    """
    # Ids become names of folders and files, so no id may contain "..".
    if not CHAT_ID.fullmatch(chat_id) or ".." in chat_id:
        raise bad_argument(
            field, f"{chat_id!r:.160} is not a valid id: 1 to 128 characters of A-Z a-z 0-9 . _ : - without '..'"
        )
    return chat_id
