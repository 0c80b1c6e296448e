"""What of a conversation no provider can be sent, and what a protocol without a field for it says as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphflow.content import AudioPart, Content, FilePart, MediaPart, TextPart, media_of, url_misfit
from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, Message


def check_sendable(messages: Sequence[Message], provider: str) -> None:
    """Checks the addresses of images, sounds and files.

    Raises:
        ModelError: a provider would be sent an address that it must not have, or can't read.
    """
    for number, message in enumerate(messages):
        if type(message.content) is str:
            continue
        for part in media_of(message.content):
            why = url_misfit(part.url)
            if why is None and part.data is None and part.url is None:
                why = "its bytes are kept by the store, and only a run reads them; give it data or a url"
            if why is not None:
                raise ModelError(
                    f"message {number} has a part of type {part.type!r} that can't be sent to provider {provider!r}: {why}",
                    code="provider_error",
                    retryable=False,
                    provider=provider,
                )


_FILE_URLS = frozenset({"anthropic", "openrouter"})
"""Providers that fetch a document by its URL; the others take its bytes only."""


def refusal_of(part: MediaPart, provider: str, model: str, takes: frozenset[str] | None) -> str | None:
    """Why a model can't be shown a part, or None.

    Args:
        takes: types of parts that it takes; `None` is unknown.
    """
    if takes is not None and part.type not in takes:
        return f"model {model!r} takes no {part.type} parts"
    if (why := url_misfit(part.url)) is not None:
        return why
    by_bytes = isinstance(part, AudioPart) or (isinstance(part, FilePart) and provider not in _FILE_URLS)
    if part.url is not None and part.data is None and by_bytes:
        return f"provider {provider!r} takes the bytes of {part.type} parts and no URL: upload it"
    return None


def with_name(message: HumanMessage) -> Content:
    """What a user wrote, behind the user's name, for protocols without a field for it."""
    if not message.name:
        return message.content
    if isinstance(message.content, str):
        return f"{message.name}: {message.content}"
    return (TextPart(text=f"{message.name}:"), *message.content)


def note_unsent(message: AIMessage, provider: str, warn: Callable[..., None]) -> None:
    """Reports media in what an assistant said, for protocols that take only text there."""
    if type(message.content) is not str:
        for part in media_of(message.content):
            warn("model.part_left_out", provider=provider, part=part.type, why="it is part of what an assistant said")
