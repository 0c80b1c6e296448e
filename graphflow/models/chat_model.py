"""The port of models: what a node may ask of any model, and the words that go in and out.

Importing this file loads no HTTP client and no logger.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from graphflow.errors import ModelError
from graphflow.models.accumulator import Completion, TurnAccumulator, arguments_error
from graphflow.models.deltas import (
    Delta,
    FallbackDelta,
    Finish,
    FinishReason,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from graphflow.models.options import ChatOptions, Compute, OneTool, ToolSpec, options_from_document
from graphflow.models.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from graphflow.messages import Message

__all__ = [
    "Capabilities", "ChatModel", "ChatOptions", "Completion", "Compute", "Delta", "FallbackDelta", "Finish", "FinishReason",
    "OneTool", "PartDelta", "StateDelta", "TextDelta", "ThinkingDelta", "ToolCallDelta", "ToolSpec", "TurnAccumulator", "Usage",
    "arguments_error", "complete", "estimate_tokens", "options_from_document",
]  # fmt: skip


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Known abilities of a model; what is unknown is assumed to work."""

    tools: bool = True
    parallel_tool_calls: bool = True
    structured: str = "json_schema"
    """How `ChatOptions.schema` reaches it: `json_schema`, `json_object` (any JSON; the prompt contains the
    schema) or `prompt` (the prompt contains the schema)."""
    compute: bool = False
    """Whether `ChatOptions.compute` changes anything."""
    input: frozenset[str] | None = None
    """Types of content parts that it takes: of `image`, `audio`, `file`; `None` is unknown."""
    exact_tokens: bool = False
    """Whether `count_tokens` uses the model's own tokenizer; else it estimates."""
    fallback: tuple[str, ...] = ()
    """Models that are asked where it fails and the call names none: `fallback` of its provider's table."""
    stands_in: bool = False
    """Whether it is the scripted model, which answers because no provider is configured."""


@runtime_checkable
class ChatModel(Protocol):
    """A model that answers messages with a stream of deltas. Safe for several streams at a time."""

    @property
    def provider(self) -> str:
        """Key of the provider (`bailian`, `scripted`)."""

    @property
    def model(self) -> str:
        """The provider's name of the model."""

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do, and how exactly its tokens are counted."""

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ...
    ) -> AsyncGenerator[Delta, None]:
        """Deltas as they come, `Finish` last. Closing the generator early ends the call at the provider.

        Raises:
            ModelError: with code `provider_error`, `rate_limit`, `connection`, `stream_truncated` or
                `timeout`; what had been yielded until then stays valid.
        """

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens that these messages take in the prompt, see `Capabilities.exact_tokens`."""

    async def aclose(self) -> None:
        """Frees connections; may be called twice."""


class WrappedModel:
    """Base of a model that passes everything but `stream` on to another."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def provider(self) -> str:
        return self._inner.provider

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self._inner.count_tokens(messages)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def complete(
    model: ChatModel, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions | None = None
) -> Completion:
    """One whole turn: `model.stream` run to its end.

    Raises:
        ModelError: as `ChatModel.stream` does.
    """
    turn = TurnAccumulator()
    # Closed at once on an error: an abandoned generator would hold its connection until it is collected.
    async with aclosing(model.stream(messages, tools, options or ChatOptions())) as deltas:
        async for delta in deltas:
            turn.feed(delta)
    # A model of a user may break the contract of the port; half a turn must not pass for a whole one.
    if turn.finish is None:
        raise without_finish(model)
    return turn.completion()


def without_finish(model: ChatModel) -> ModelError:
    """What a stream that ended without a `Finish` raises where a whole turn is needed."""
    return ModelError(
        f"model {model.model!r} of provider {model.provider!r} ended its stream without a Finish",
        code="stream_truncated",
        provider=model.provider,
    )
