"""How many tokens a text takes, estimated: for models whose tokenizer is not at hand."""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.messages import AIMessage, Message

_PER_MESSAGE = 4
"""Role and separators of one message in the common chat templates."""


def estimate_tokens(text: str) -> int:
    """About four ASCII characters a token, and one token for each other character but accents.

    Errs on the large side for Chinese and Japanese (0.6 to 1 token a character), so that a window is
    compacted early rather than late.
    """
    if text.isascii():
        return (len(text) + 3) // 4
    # U+2E80 and above: CJK, kana and emoji, which tokenizers seldom join.
    wide = sum(1 for character in text if character > "\u2e7f")
    return wide + (len(text) - wide + 3) // 4


def estimate_message_tokens(messages: Sequence[Message]) -> int:
    """The prompt tokens of `messages`, estimated; reasoning is not counted, for it is not sent."""
    total = 0
    for message in messages:
        total += _PER_MESSAGE + estimate_tokens(message.text)
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                total += _PER_MESSAGE + estimate_tokens(call.name) + estimate_tokens(call.arguments)
    return total
