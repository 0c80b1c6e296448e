"""HTTP for the model client: the one file that knows httpx (loaded when the first request is sent)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies

from graphflow.models.remote.bodies import EncodingRefused, decoded
from graphflow.models.remote.connection import DIRECT, ConnectionWay

if TYPE_CHECKING:
    import httpx


_DEEPEST = 8
_LASTING_TLS = frozenset({
    "WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "SSLV3_ALERT_HANDSHAKE_FAILURE",
    "TLSV1_ALERT_PROTOCOL_VERSION", "TLSV13_ALERT_CERTIFICATE_REQUIRED", "NO_SHARED_CIPHER", "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE", "TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE",
})  # fmt: skip
"""Reasons of OpenSSL that no later try changes: another protocol on the port, no common version, a certificate asked for."""


class TransportError(Exception):
    """The connection failed or broke; the text says how, without address or headers."""

    def __init__(self, message: str, *, connecting: bool, hint: str = "", lasting: bool = False) -> None:
        super().__init__(message)
        self.connecting = connecting
        """Whether the request certainly never reached the provider."""
        self.hint = hint
        """What to do about it."""
        self.lasting = lasting
        """Whether the same happens again until somebody changes something."""


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
    """Keep-alive pools of HTTP/1.1 connections over httpx.

    Sockets belong to their event loop, so each loop has pools of its own; they close with `aclose` or,
    where nobody calls it, when the loop ends (`asyncio.run` ends its asynchronous generators).
    """

    def __init__(self, way: ConnectionWay | None = None) -> None:
        self._way = way or ConnectionWay()
        self._pools: dict[bool, _LoopClient] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, connect_s: float) -> Response:
        import httpx

        client = await self._client(_is_loopback(url) and self._way.usual)
        timeout = httpx.Timeout(None, connect=connect_s)  # reads are bounded by the caller, by data events
        try:
            request = client.build_request("POST", url, headers=dict(headers), content=body, timeout=timeout)
            response = await client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as error:
            # These fail before a byte of the request is sent, so it can't have acted at the provider.
            early = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
            never = isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL | UnicodeEncodeError)
            tls_hint = tls_failure(error)
            raise TransportError(
                _text(error),
                connecting=early or never,
                hint=tls_hint or self._hint(error),
                # A proxy that answers "no" does so again.
                lasting=never or tls_hint is not None or isinstance(error, httpx.ProxyError),
            ) from error
        return _HttpxResponse(response)

    async def _client(self, loopback: bool) -> httpx.AsyncClient:
        """The pool for this machine's own plain HTTP (no proxy, no certificates to load), or the other."""
        loop = asyncio.get_running_loop()
        # Pools of an ended loop are dropped unclosed: their generators were closed with that loop.
        if self._loop is not loop:
            self._pools, self._loop = {}, loop
        pool = self._pools.get(loopback)
        if pool is None:
            try:
                pool = self._pools[loopback] = _LoopClient(loopback, self._way)
            except (ValueError, ImportError) as error:  # a proxy in the environment that httpx can't use
                hint = "check the proxy in the environment (HTTPS_PROXY, ALL_PROXY)"
                if not self._way.usual:
                    hint = "check `proxy` and `tls` in the provider's table"
                raise TransportError(_text(error), connecting=True, hint=hint, lasting=True) from error
            await pool.open()
        return pool.client

    def _hint(self, error: Exception) -> str:
        import httpx

        if isinstance(error, httpx.ProxyError) and str(error).startswith("407"):
            return "the proxy asks for credentials; write them into its URL"
        if self._way.proxy is None:
            proxied = getproxies().keys() & {"http", "https", "all"}
            return "check the base URL" + (" and the proxy in the environment" if proxied else "")
        return "check the base URL" + (" and the proxy" if self._way.proxy != DIRECT else "")

    async def aclose(self) -> None:
        pools, self._pools = self._pools, {}
        # Sockets of another loop can't be closed from this one.
        if self._loop is asyncio.get_running_loop():
            for pool in pools.values():
                await pool.aclose()


class _LoopClient:
    """A client that closes at the latest with its event loop."""

    def __init__(self, loopback: bool, way: ConnectionWay) -> None:
        import httpx

        # Each stream holds a connection for its whole turn, so a limit would queue runs behind each other.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        proxy = None
        if way.proxy not in (None, DIRECT):
            assert way.proxy is not None
            secure = way.proxy.startswith("https:")
            proxy = httpx.Proxy(way.proxy, ssl_context=way.proxy_context() if secure else None)
        self.client = httpx.AsyncClient(
            limits=limits,
            trust_env=not loopback and way.proxy is None,
            proxy=proxy,
            verify=False if loopback else way.context(),
        )
        self._life = self._live()

    async def open(self) -> None:
        # Only a generator that has started is known to the loop, which closes it at its end.
        await anext(self._life)

    async def aclose(self) -> None:
        await self._life.aclose()

    async def _live(self) -> AsyncGenerator[None, None]:
        # A loop closes the generators that are still open when it ends, and so this client.
        try:
            yield
        finally:
            await self.client.aclose()


class _HttpxResponse:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in response.headers.items()}

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        import httpx

        # Raw blocks pass at once; identity is asked for, but a server may compress all the same.
        source = self._response.aiter_raw()
        encoding = self.headers.get("content-encoding", "identity")
        try:
            async for block in source if encoding == "identity" else decoded(source, encoding):
                yield block
        except EncodingRefused as error:
            raise TransportError(str(error), connecting=False, lasting=True) from error
        except httpx.HTTPError as error:
            raise TransportError(_text(error), connecting=False) from error

    async def aclose(self) -> None:
        with contextlib.suppress(Exception):  # nobody can do anything about a close that fails
            await self._response.aclose()


def tls_failure(error: BaseException) -> str | None:
    """What to do where a TLS handshake failed for a reason that stays, at any depth of causes; None for all else."""
    import ssl

    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        if isinstance(seen, ssl.SSLCertVerificationError):
            return (
                f"the server's certificate was refused ({seen.verify_message}); if a private authority signed it, set"
                " SSL_CERT_FILE to its certificates, and check host name and clock"
            )
        if isinstance(seen, ssl.SSLError) and seen.reason in _LASTING_TLS:
            return "server and client found no common form of TLS; check whether the base URL is http:// or https://"
        seen = None if seen is None else seen.__cause__ or seen.__context__
    return None


def _is_loopback(url: str) -> bool:
    parts = urlsplit(url)
    # Only plain HTTP: TLS on this machine still needs the certificates of the other pool.
    return parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
