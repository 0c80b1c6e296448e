"""HTTP for the model client: the one file that knows httpx (loaded when the first request is sent)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import httpx


class TransportError(Exception):
    """The connection could not be made, or broke; the text says how, without address or headers."""

    def __init__(self, message: str, *, connecting: bool) -> None:
        super().__init__(message)
        self.connecting = connecting
        """Whether the request can't have reached the provider."""


class Response(Protocol):
    """An answer whose body has not been read yet."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""

    def blocks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives; raises `TransportError` when the connection breaks."""

    async def aclose(self) -> None:
        """Ends the response; the connection is kept for reuse only if the body was read to its end."""


class Transport(Protocol):
    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, connect_s: float) -> Response:
        """Sends one request and returns once the head of the answer is there.

        Raises:
            TransportError: when no answer comes.
        """

    async def aclose(self) -> None: ...


class HttpxTransport:
    """A keep-alive pool of HTTP/1.1 connections over httpx, one pool per event loop."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, connect_s: float) -> Response:
        import httpx

        client = self._open()
        timeout = httpx.Timeout(None, connect=connect_s)  # reads are bounded by the caller, by data events
        try:
            request = client.build_request("POST", url, headers=dict(headers), content=body, timeout=timeout)
            response = await client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            early = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            never = isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL)
            raise TransportError(_text(error), connecting=early or never) from error
        return _HttpxResponse(response)

    def _open(self) -> httpx.AsyncClient:
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # Sockets belong to their loop: a pool of a loop that has ended can only be dropped.
            try:
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
                direct = {f"all://{host}": httpx.AsyncHTTPTransport(limits=limits) for host in _LOOPBACK}
                self._client = httpx.AsyncClient(limits=limits, mounts=direct, follow_redirects=False)
            except (ValueError, ImportError) as error:  # a proxy in the environment that httpx can't use
                raise TransportError(_text(error), connecting=True) from error
            self._loop = loop
        return self._client

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()


class _HttpxResponse:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in response.headers.items()}

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        import httpx

        encoded = self.headers.get("content-encoding", "identity") != "identity"
        source = self._response.aiter_bytes() if encoded else self._response.aiter_raw()
        try:
            async for block in source:
                yield block
        except httpx.HTTPError as error:
            raise TransportError(_text(error), connecting=False) from error

    async def aclose(self) -> None:
        with contextlib.suppress(Exception):  # nobody can do anything about a close that fails
            await self._response.aclose()


_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Reached directly even where the environment names a proxy."""


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
