"""Answers about the long-term store."""

from __future__ import annotations

from typing import Any, Literal

from graphflow.server.answers.parts import AnswerData


class MemoryLine(AnswerData):
    """A value that is kept for the caller's user."""

    key: str
    namespace: str
    """Within what is the caller's own; empty for its root."""
    value: Any
    created_at: int
    updated_at: int
    expires_at: int | None
    """null: never."""


class Forgotten(AnswerData):
    """An item that is gone."""

    key: str
    deleted: Literal[True]


MEMORY: dict[str, Any] = {
    "get /api/memory": list[MemoryLine],
    "get /api/memory/{key}": MemoryLine,
    "put /api/memory/{key}": MemoryLine,
    "delete /api/memory/{key}": Forgotten,
}
"""Method and path → `data` of the answer."""
