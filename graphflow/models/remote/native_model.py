"""What the native clients of all protocols share: one address, one pool of connections, one exchange for each turn.

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
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.provider import Provider
from graphflow.models.remote.api_keys import keys_of
from graphflow.models.remote.connection import way_to
from graphflow.models.remote.exchange import Endpoint, Exchange, Reader
from graphflow.models.remote.failures import Masker
from graphflow.models.remote.remote_model import RemoteModel, random_token
from graphflow.models.remote.retry import Limits
from graphflow.models.remote.timeouts import TurnTimeouts
from graphflow.models.remote.transport import HttpxTransport, Transport
from graphflow.models.replay.refusals import without_thinking
from graphflow.models.replay.replay import Replay


class NativeModel(RemoteModel):
    """A `ChatModel` over HTTP; a protocol adds its `path`, how it writes a request, and how it reads an answer."""

    path = ""
    """Follows the base URL."""
    write: Callable[..., bytes]
    """Writes a request; a protocol that does it otherwise has its own `body`."""
    reader_type: Callable[..., Reader]
    """Reads an answer; a protocol that does it otherwise has its own `reader`."""

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
        way = way_to(provider)
        mask = Masker([provider.api_key or "", *provider.headers.values(), *way.secrets()])
        self._endpoint = Endpoint(
            provider=provider.key,
            url=self.url(provider.base_url),
            headers=self._headers(),
            mask=mask,
            transport=transport or HttpxTransport(way),
            connect_s=self._limits.connect_s,
            keys=keys_of(provider, mask),
            key_headers=self.key_headers,
        )
        self._new_token = new_token or random_token

    async def aclose(self) -> None:
        await self._endpoint.transport.aclose()

    def begin(
        self, watch: TurnTimeouts, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions
    ) -> Exchange:
        return Exchange(
            self._endpoint.for_call(options),
            watch,
            self.body(messages, tools, options, self.replay),
            # A reader holds the state of one stream, so each try needs a new one.
            lambda: self.reader(messages, tools),
            bare_body=lambda error: self.body(messages, tools, without_thinking(options, error), self.replay.bare),
        )

    def url(self, base_url: str) -> str:
        """Where requests go."""
        parts = urlsplit(base_url)
        # People paste the base URL or the whole endpoint; a query (Azure's `api-version`) stays where it is.
        path = parts.path.rstrip("/")
        if not path.endswith(self.path):
            path += self.path
        return urlunsplit(parts._replace(path=path))

    def key_headers(self, key: str) -> dict[str, str]:
        """The header that has the API key."""
        return {"api-key": key} if self._provider.profile.auth == "api-key" else {"authorization": f"Bearer {key}"}

    def body(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ChatOptions, replay: Replay
    ) -> bytes:
        """The request as JSON bytes; always a streaming one. `replay` says which provider state is in it."""
        return self.write(self._provider.profile, replay, messages, tools, options, notice)

    def reader(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reader:
        """A reader for one try."""
        return self.reader_type(
            self.provider,
            messages,
            self.replay,
            finish_optional=self._provider.profile.finish_optional,
            mask=self._endpoint.mask,
            new_token=self._new_token,
            warn=notice,
        )

    def _headers(self) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # a compressed stream arrives in lumps
            "user-agent": "graphflow",
        }
        if self._provider.api_key and self._provider.profile.api_key_function is None:
            headers |= self.key_headers(self._provider.api_key.strip())
        return headers | {name.lower(): value for name, value in self._provider.headers.items()}
