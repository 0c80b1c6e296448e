"""Two ways to one model: the second is tried when the first fails before its first delta (spec 7)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from graphflow.errors import ModelError
from graphflow.messages import Message
from graphflow.models.chat_model import ChatModel, WrappedModel
from graphflow.models.deltas import Delta
from graphflow.models.logs.log import notice
from graphflow.models.options import ChatOptions, ToolSpec

_SAME_ON_BOTH = frozenset({401, 402, 403, 429})
"""Statuses that depend on the user's account, so they are the same on both ways."""


class FallbackModel(WrappedModel):
    """A `ChatModel` over two; `second` opens the other way when it is first needed."""

    def __init__(self, first: ChatModel, second: Callable[[], ChatModel]) -> None:
        super().__init__(first)
        self._make = second
        self._second: ChatModel | None = None

    async def aclose(self) -> None:
        await super().aclose()
        if self._second is not None:
            await self._second.aclose()

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        begun = False
        try:
            async with aclosing(self._inner.stream(messages, tools, options)) as deltas:
                async for delta in deltas:
                    begun = True
                    yield delta
            return
        except ModelError as error:
            # Text that was streamed can't be taken back, and a wrong key or an empty account fails on either way.
            if begun or error.detail.get("status") in _SAME_ON_BOTH:
                raise
            failed = error
        notice("model.fallback", provider=self.provider, model=self.model, code=failed.code, error=failed.message)
        begun = False
        try:
            async with aclosing(self._other().stream(messages, tools, options)) as deltas:
                async for delta in deltas:
                    begun = True
                    yield delta
        except ModelError:
            if begun:
                raise
            raise failed from None  # the error of the way that was asked for is the more useful one

    def _other(self) -> ChatModel:
        if self._second is None:
            self._second = self._make()
        return self._second
