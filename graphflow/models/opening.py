"""One way to open a model, for applications and for graphs without one: by settings, `.env`, profiles, limits and the log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from graphflow.models.chat_model import Capabilities, ChatModel, WrappedModel
from graphflow.models.deltas import Delta
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.pool import ModelPool
from graphflow.models.providers import open_provider, resolve_fallback, resolve_provider
from graphflow.text_width import wrap

if TYPE_CHECKING:
    from graphflow.messages import Message
    from graphflow.models.provider import Provider
    from graphflow.settings import Settings

NOBODY = (
    "graphflow: no model provider is configured, so the built-in scripted model answers. Set a provider's key"
    " (`graphflow doctor` shows what is found), or name it: LLM_PROVIDER=scripted"
)


def pool_of(settings: Callable[[], Settings]) -> ModelPool:
    """Models opened by the settings, which are asked for with the first model and not before."""
    told: list[str] = []

    def opened(found: Settings, provider: Provider, model: str | None) -> ChatModel:
        def logged(client: ChatModel) -> ChatModel:
            if provider.stands_in:
                client = StandInModel(client, told)
            if not found.llm.interaction_log_enabled:
                return client
            from graphflow.models.logs.interaction_log import LoggedModel

            return LoggedModel(client, mask_sensitive=found.llm.interaction_log_mask_sensitive)

        # Each client by itself, so that the log has each attempt of a fallback.
        return open_provider(provider, model, found.environ, wrap=logged)

    def open_by_settings(provider_key: str | None, model: str | None) -> ChatModel:
        found = settings()
        return opened(found, resolve_provider(provider_key, found.environ, found.providers), model)

    def open_fallback(first: str, provider_key: str | None, model: str | None) -> ChatModel:
        found = settings()
        return opened(found, resolve_fallback(first, provider_key, found.environ, found.providers), model)

    return ModelPool(open_by_settings, open_fallback)


class StandInModel(WrappedModel):
    """The scripted model where nobody named it: its first call says so on stderr, and the run's usage counts its calls."""

    def __init__(self, inner: ChatModel, told: list[str]) -> None:
        super().__init__(inner)
        self._told = told

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self._inner.capabilities, stands_in=True)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        if not self._told:
            self._told.append(NOBODY)
            lines = wrap(NOBODY, shutil.get_terminal_size().columns, "  ") if _on_terminal() else [NOBODY]
            sys.stderr.write("\n".join([*lines, ""]))
            sys.stderr.flush()
        async with aclosing(self._inner.stream(messages, tools, options)) as deltas:
            async for delta in deltas:
                yield delta


def _on_terminal() -> bool:
    return sys.stderr.isatty()
