"""The native client: any server that speaks the OpenAI chat-completions protocol, streamed.

One network read is decoded at once and every delta in it is given out before the next read; nothing is
buffered or merged. Retries happen only while no delta has been given out.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from graphflow.errors import ModelError
from graphflow.messages import Message
from graphflow.models.calls import TOKEN_LENGTH
from graphflow.models.deltas import Delta
from graphflow.models.exchange import Endpoint, Exchange
from graphflow.models.failures import Masker
from graphflow.models.notices import notice
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.port import Capabilities
from graphflow.models.providers import Provider
from graphflow.models.request import knows_compute, request_body
from graphflow.models.retry import Limits, backoff_s
from graphflow.models.tokens import estimate_message_tokens
from graphflow.models.transport import HttpxTransport, Transport
from graphflow.models.watch import Watch

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


class OpenAICompatibleModel:
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
        self._model = model
        self._limits = limits or Limits()
        self._sleep = sleep
        self._draw = draw
        self._endpoint = Endpoint(
            provider=provider.key,
            profile=provider.profile,
            url=_url(provider.base_url),
            headers=_headers(provider),
            mask=Masker([provider.api_key or "", *provider.headers.values()]),
            transport=transport or HttpxTransport(),
            connect_s=self._limits.connect_s,
            new_token=new_token or _random_token,
        )

    @property
    def provider(self) -> str:
        return self._endpoint.provider

    @property
    def model(self) -> str:
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        knobs = self._endpoint.profile.knobs
        return Capabilities(
            structured=knobs.structured,
            compute=knows_compute(knobs, self._model),
            parallel_tool_calls=knobs.parallel_tool_calls,
        )

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return estimate_message_tokens(messages)

    async def aclose(self) -> None:
        await self._endpoint.transport.aclose()

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        options: ChatOptions = ChatOptions(),
    ) -> AsyncGenerator[Delta, None]:
        body = request_body(self._endpoint.profile, self._model, messages, tools, options)
        watch = Watch(self._limits, options.timeout_s or self._limits.total_s)
        turn = Exchange(self._endpoint, watch, messages, tools)
        try:
            for delta in await self._first_deltas(turn, body):
                yield delta
            while not turn.ended:
                for delta in await turn.read():
                    yield delta
            await turn.drain()
        finally:
            watch.close()
            await turn.aclose()

    async def _first_deltas(self, turn: Exchange, body: bytes) -> list[Delta]:
        """The first deltas of the turn, after as many tries as it takes and the limits allow."""
        attempt = 0
        while True:
            try:
                await turn.open(body)
                while not turn.ended:
                    deltas = await turn.read()
                    if deltas:
                        return deltas
                return []
            except ModelError as error:
                pause = self._pause_s(error, attempt, turn.watch)
                if pause is None:
                    raise
                notice(
                    "model.retry",
                    provider=self.provider,
                    model=self._model,
                    retry=attempt + 1,
                    pause_s=round(pause, 3),
                    code=error.code,
                    error=error.message,
                )
            await turn.aclose()
            await self._sleep(pause)
            turn.watch.restart()
            attempt += 1

    def _pause_s(self, error: ModelError, attempt: int, watch: Watch) -> float | None:
        """Seconds to wait before the next try; `None` when there is none."""
        if not error.retryable or attempt >= self._limits.max_retries:
            return None
        asked = error.detail.get("retry_after_s")
        if asked is None:
            pause = backoff_s(self._limits, attempt, self._draw())
        elif asked > self._limits.max_retry_after_s:
            return None
        else:
            pause = asked * (1 + self._draw() / 10)  # never earlier than asked, and not all at once
        return pause if pause < watch.remaining_s() else None


def _url(base_url: str) -> str:
    parts = urlsplit(base_url)
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
    if provider.api_key:
        headers["authorization"] = f"Bearer {provider.api_key.strip()}"
    return headers | {name.lower(): value for name, value in provider.headers.items()}


def _random_token() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(TOKEN_LENGTH))
