"""How many tokens a text takes, estimated: for models whose tokenizer is not at hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphflow.content import ImagePart, MediaPart, media_of
from graphflow.messages import AIMessage, Message, ProviderState
from graphflow.value_size import size_of

OwnState = Callable[[ProviderState | None], Mapping[str, Any] | None]
"""The data of a state that goes back to a model; None where it stays behind."""

_PER_MESSAGE = 4
"""Role and separators of one message in the common chat templates."""

_BELOW_WIDE = bytes(range(0xE3))
"""In UTF-8: all bytes but the first ones of U+3000 and above."""
_FIRST_WIDE = tuple(bytes((0xE2, second)) for second in range(0xBA, 0xC0))
"""How U+2E80 to U+2FFF begin."""
_PER_IMAGE = 1_200
"""Between what providers count for an image of 1024 × 1024: 765 (OpenAI), 1,290 (Gemini), 1,400 (Claude)."""


def estimate_tokens(text: str) -> int:
    """About four ASCII characters a token, and one token for each other character but accents.

    Errs on the large side for Chinese and Japanese (0.6 to 1 token a character), so that a window is
    compacted early rather than late.
    """
    if text.isascii():
        return (len(text) + 3) // 4
    # U+2E80 and above: CJK, kana and emoji, which tokenizers seldom join. Counted by their first bytes: a look at each
    # character of a long text would keep the event loop.
    data = text.encode("utf-8", "surrogatepass")
    wide = len(data.translate(None, _BELOW_WIDE)) + sum(map(data.count, _FIRST_WIDE))
    return wide + (len(text) - wide + 3) // 4


def _part_tokens(part: MediaPart) -> int:
    """About what a medium takes: an image of a million pixels, or a token for every 100 bytes of sound and text of a document."""
    if isinstance(part, ImagePart):
        return _PER_IMAGE
    size = part.size if part.data is None else len(part.data)
    return _PER_IMAGE if size is None else max(_PER_MESSAGE, size // 100)


def _any_state(state: ProviderState | None) -> Mapping[str, Any] | None:
    return None if state is None else state.data.fields


def estimate_message_tokens(messages: Sequence[Message], own: OwnState = _any_state) -> int:
    """The prompt tokens of `messages`, estimated; `own` says which provider state goes with them.

    Reasoning counts where it is part of that state: nobody else is sent it.
    """
    total = 0
    for message in messages:
        total += _PER_MESSAGE + estimate_tokens(message.text)
        if type(message.content) is not str:
            total += sum(map(_part_tokens, media_of(message.content)))
        if isinstance(message, AIMessage):
            total += _state_tokens(own(message.provider_state), message.reasoning)
            for call in message.tool_calls:
                total += _PER_MESSAGE + estimate_tokens(call.name) + estimate_tokens(call.arguments)
                total += _state_tokens(own(call.provider_state), "")
    return total


def _state_tokens(data: Mapping[str, Any] | None, reasoning: str) -> int:
    """A token for every four bytes: encrypted reasoning is longer than what it was made of, so this errs on the large side."""
    if not data:
        return 0
    # `True` stands for the message's reasoning, which is not stored twice.
    shown = estimate_tokens(reasoning) if any(value is True for value in data.values()) else 0
    return shown + size_of(data, sys.maxsize) // 4
