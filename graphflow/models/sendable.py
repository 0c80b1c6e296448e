"""What of a conversation no provider can be sent, and what a protocol without a field for it says as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from graphflow.content import (
    MEDIA_TYPES,
    AudioPart,
    Content,
    FilePart,
    MediaPart,
    Part,
    TextPart,
    data_of,
    is_data_url,
    media_of,
    media_type_of,
    url_misfit,
)
from graphflow.errors import ModelError
from graphflow.excerpts import excerpt_of
from graphflow.messages import AIMessage, HumanMessage, Message


def sendable(messages: Sequence[Message], provider: str, *, https_only: bool = False) -> Sequence[Message]:
    """The messages with the bytes of `data:` URLs as the parts' data, which every protocol has a form for.

    Args:
        https_only: whether the provider fetches `https:` URLs alone.

    Raises:
        ModelError: a provider would be sent an address that it must not have, or can't read.
    """
    out: list[Message] | None = None
    for number, message in enumerate(messages):
        if type(message.content) is str:
            continue
        parts: list[Part] = []
        for part in () if isinstance(message.content, str) else message.content:
            if isinstance(part, MEDIA_TYPES):
                try:
                    part = _checked(part, provider, https_only)
                except ValueError as why:
                    raise ModelError(
                        f"message {number} has a part of type {part.type!r} that can't be sent to provider {provider!r}: {why}",
                        code="provider_error",
                        retryable=False,
                        provider=provider,
                    ) from None
            parts.append(part)
        if any(new is not old for new, old in zip(parts, message.content, strict=True)):
            out = list(messages) if out is None else out
            out[number] = msgspec.structs.replace(message, content=tuple(parts))
    return messages if out is None else out


def _checked(part: MediaPart, provider: str, https_only: bool) -> MediaPart:
    """The part with the bytes of its URL, if they stand there.

    Raises:
        ValueError: it can't be sent.
    """
    if part.url is not None and part.data is not None:
        raise ValueError("it has a url and data, and they may differ; give it one of them")
    if part.url is None and part.data is None:
        if part.blob is None and part.upload is None:
            raise ValueError("it has neither data nor a url; give it one of them")
        raise ValueError("its bytes are kept by the store, and only a run reads them; give it data or a url")
    if (why := url_misfit(part.url)) is not None:
        raise ValueError(why)
    if part.url is not None and is_data_url(part.url):
        data, media_type = data_of(part.url)
        part = msgspec.structs.replace(part, url=None, data=data, media_type=media_type or part.media_type)
    if https_only and part.url is not None and (why := _http_misfit(part.url)) is not None:
        raise ValueError(why)
    if part.media_type is None and (known := media_type_of(part.url, part.name, part.data)) is not None:
        part = msgspec.structs.replace(part, media_type=known)
    if provider in _OPENAI and isinstance(part, AudioPart) and part.media_type not in (None, *_SOUNDS):
        raise ValueError(f"its type is {excerpt_of(part.media_type)}, and the provider takes wav and mp3; convert it")
    return part


def _http_misfit(url: str) -> str | None:
    if url.lower().startswith("https:"):
        return None
    return f"its URL is {excerpt_of(url, 160)}, and the provider fetches https: URLs only; give it data, or such a URL"


_OPENAI = frozenset({"openai", "azure"})
"""Keys of providers that take two forms of sound alone: https://platform.openai.com/docs/guides/audio"""
_SOUNDS = frozenset({"audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp3"})
_FILE_URLS = frozenset({"anthropic", "openrouter"})
"""Providers that fetch a document by its URL; the others take its bytes only."""
_HTTPS_ONLY = frozenset({"anthropic"})
"""Keys of providers that fetch no `http:` URL ("Only HTTPS URLs are supported")."""


def refusal_of(part: MediaPart, provider: str, model: str, takes: frozenset[str] | None) -> str | None:
    """Why a model can't be shown a part, or None.

    Args:
        takes: types of parts that it takes; `None` is unknown.
    """
    if takes is not None and part.type not in takes:
        return f"model {model!r} takes no {part.type} parts"
    if (why := url_misfit(part.url)) is not None:
        return why
    if provider in _OPENAI and isinstance(part, AudioPart) and part.media_type not in (None, *_SOUNDS):
        return f"provider {provider!r} takes sounds of the types wav and mp3, not {part.media_type}"
    if part.url is None or is_data_url(part.url):
        return None
    if provider in _HTTPS_ONLY and (why := _http_misfit(part.url)) is not None:
        return why
    by_bytes = isinstance(part, AudioPart) or (isinstance(part, FilePart) and provider not in _FILE_URLS)
    if part.data is None and by_bytes:
        return f"provider {provider!r} takes the bytes of {part.type} parts and no URL: upload it"
    return None


def apart(parts: Sequence[Part], given: Sequence[Part]) -> list[Part]:
    """The parts with the texts that stand for media of `given` on lines of their own: texts are joined as they are."""
    last = len(parts) - 1
    return [
        part
        if part is old or not isinstance(part, TextPart)
        else TextPart(text=("\n" if at else "") + part.text + ("\n" if at < last else ""))
        for at, (part, old) in enumerate(zip(parts, given, strict=True))
    ]


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
