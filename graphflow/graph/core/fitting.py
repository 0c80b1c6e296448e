"""Whether stored values fit the state schema of another version (E23)."""

from __future__ import annotations

from typing import Any

from graphflow.errors import StateError
from graphflow.graph.core.channels import Channel, ListView
from graphflow.messages import MESSAGE_TYPES


def misfit(channel: Channel, value: Any) -> str | None:
    """Why a stored value can't become the value of this key; None when it fits as it is.

    A key that collects entries (`append`, `messages`, `union`) is stored as a log of them, any other as one value: a version
    that changes which of the two it is can't read the other.
    """
    try:
        channel.check(value, "stored value")
    except StateError as error:
        return error.message
    if isinstance(value, ListView) and not channel.is_log:
        return (
            f"state key {channel.key!r} is stored as a list that grows, and this version replaces it as a whole "
            f"(x-reduce {channel.reduce!r}); keep x-reduce, or use another key"
        )
    if channel.reduce == "messages" and not all(isinstance(item, MESSAGE_TYPES) for item in value):
        return f"state key {channel.key!r} takes messages, and the stored list holds something else"
    return None


def becomes_log(channel: Channel, value: Any) -> bool:
    """Whether a stored list must be written anew as entries, which only a migration does."""
    return channel.is_log and not isinstance(value, ListView)
