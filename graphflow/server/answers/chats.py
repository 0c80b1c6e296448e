"""Answers about chats and their files."""

from __future__ import annotations

from typing import Any

from graphflow.runtime.thread_status import ThreadStatus
from graphflow.server.answers.parts import AnswerData, InboxLine, UploadReference, Values


class ChatHistory(AnswerData):
    """A chat: its name and a page of its history as events."""

    chat_id: str
    chat_name: str
    raw_messages: list[Values] | None
    """In OpenAI form; null unless they are asked for."""
    events: list[Values]
    references: list[Any]
    """Of the page's queries, each id once."""


class ChatLine(AnswerData):
    """A chat, in short."""

    chat_id: str
    chat_name: str
    metadata: Values
    """What `PATCH /api/threads/{id}` has written."""
    agent_key: str | None
    created_at: int
    updated_at: int
    status: ThreadStatus
    driven: bool
    """Whether a live process drives it."""
    waiting: InboxLine | None
    """The first open interrupt."""


class Uploaded(AnswerData):
    """An upload that was kept."""

    request_id: str
    chat_id: str
    upload: UploadReference


CHATS: dict[str, Any] = {
    "get /api/chat": ChatHistory,
    "get /api/chats": list[ChatLine],
    "post /api/upload": Uploaded,
}
"""Method and path → `data` of the answer."""
