"""The native client: any server that speaks the OpenAI chat-completions protocol, streamed.

One network read is decoded at once and every delta in it is given out before the next read; nothing is
buffered or merged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from graphflow.messages import Message
from graphflow.models.logs.log import notice
from graphflow.models.openai.request import request_body
from graphflow.models.openai.stream_reader import TurnReader
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.provider import Provider
from graphflow.models.remote.exchange import Endpoint, Exchange
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.remote_model import RemoteModel, random_token
from graphflow.models.remote.retry import Limits
from graphflow.models.remote.timeouts import TurnTimeouts
from graphflow.models.remote.transport import HttpxTransport, Transport


class OpenAICompatibleModel(RemoteModel):
    """A `ChatModel` behind `<base_url>/chat/completions`."""

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        limits: Limits | None = None,
        transport: Transport | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,  # noqa: S311 - jitter, no secret
        new_token: Callable[[], str] | None = None,
    ) -> None:
        """`sleep`, `draw` (jitter in [0, 1)) and `new_token` (8 characters, for call ids) are for tests."""
        super().__init__(provider, model, limits, sleep, draw)
        self._endpoint = Endpoint(
            provider=provider.key,
            url=_url(provider.base_url),
            headers=_headers(provider),
            mask=Masker([provider.api_key or "", *provider.headers.values()]),
            transport=transport or HttpxTransport(),
            connect_s=self._limits.connect_s,
        )
        self._new_token = new_token or random_token

    async def aclose(self) -> None:
        await self._endpoint.transport.aclose()

    def begin(
        self, watch: TurnTimeouts, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
    ) -> Exchange:
        profile, mask = self._provider.profile, self._endpoint.mask
        body = request_body(profile, self.replay, messages, tools, options)
        # A reader holds the state of one stream, so each try needs a new one.
        reader = lambda: TurnReader(  # noqa: E731 - one per try
            self.provider, profile, messages, tools, self.replay, mask=mask, new_token=self._new_token, warn=notice
        )
        return Exchange(self._endpoint, watch, body, reader)


def _url(base_url: str) -> str:
    parts = urlsplit(base_url)
    # People paste the base URL or the whole endpoint; a query (Azure's `api-version`) stays where it is.
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    return urlunsplit(parts._replace(path=path))


def _headers(provider: Provider) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",  # a compressed stream arrives in lumps
        "user-agent": "graphflow",
    }
    if provider.api_key and provider.profile.auth == "api-key":
        headers["api-key"] = provider.api_key.strip()
    elif provider.api_key:
        headers["authorization"] = f"Bearer {provider.api_key.strip()}"
    return headers | {name.lower(): value for name, value in provider.headers.items()}
