"""Serving over a socket with uvicorn."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn

from graphflow.addresses import is_loopback
from graphflow.errors import GraphflowError
from graphflow.server.app import create_app, stop
from graphflow.server.client_addresses import TrustedProxies
from graphflow.server.connections import BoundedProtocol, OneLine, survive_exhaustion
from graphflow.server.listening import listen_on, plain_host
from graphflow.service.application import Application
from graphflow.settings import Settings

CLOSING_S = 5
"""How long connections may take to end after the runs have; the rest is cut."""


class Server(uvicorn.Server):
    """uvicorn that ends the runs, and so their streams, before it waits for connections: else it would wait for ever."""

    def __init__(
        self, config: uvicorn.Config, application: Application, on_start: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(config)
        self.application = application
        self._on_start = on_start

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until a signal ends it.

        Raises:
            GraphflowError: the address can't be had, or the application can't be opened.
        """
        listening = listen_on(self.config.host, self.config.port) if sockets is None else sockets
        survive_exhaustion(asyncio.get_running_loop())
        logger, one_line = logging.getLogger("uvicorn.error"), OneLine()
        logger.addFilter(one_line)
        try:
            await super().serve(listening)
        finally:
            logger.removeFilter(one_line)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            with _unheard():
                await super().startup(sockets)
        except SystemExit:  # uvicorn's end when the lifespan fails
            for each in sockets or ():
                each.close()
            raise self.config.app.state.start_error from None  # type: ignore[union-attr] # `create_app` made it
        if self.started and self._on_start is not None:
            self._on_start(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await stop(self.application)
        await super().shutdown(sockets)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def _unheard() -> Iterator[None]:
    """Nothing of what uvicorn says: it would print the trace of a start that fails, which the caller reports in a line."""
    logger = logging.getLogger("uvicorn.error")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def make_server(
    application: Application,
    *,
    host: str | None = None,
    port: int | None = None,
    token: str | None = None,
    on_start: Callable[[str], None] | None = None,
    own_process: bool = False,
) -> Server:
    """A server ready for `serve()` on an event loop.

    Args:
        host, port, token: over the settings'; port 0 takes a free one.
        on_start: called with the address once it listens.
        own_process: as of `create_app`.

    Raises:
        GraphflowError: `invalid_input` when others could reach it and no token is set.
    """
    settings = application.settings.server
    host = plain_host(settings.host if host is None else host)
    tokens = [] if token is None else [token]
    # Without a token everybody on the network could start runs.
    if not is_loopback(host) and not tokens and not settings.tokens:
        raise GraphflowError(
            f"{host!r} can be reached from other machines, so a token is needed: pass --token or set GRAPHFLOW_TOKENS",
            code="invalid_input",
        )
    proxies = TrustedProxies(settings.trusted_proxies)
    protocol = partial(BoundedProtocol, bounds=settings, proxies=proxies, addresses=Counter())
    config = uvicorn.Config(
        create_app(application, tokens=tokens, own_process=own_process),
        http=protocol,  # type: ignore[arg-type] # called as the class would be
        host=host,
        port=settings.port if port is None else port,
        # Logging is set up by the process, and `AccessLog` writes the request lines.
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,  # uvicorn's own would believe every process of this machine
        timeout_graceful_shutdown=CLOSING_S,
    )
    return Server(config, application, on_start)


def serve(
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    token: str | None = None,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serves until a signal ends it; see `make_server`. The process is the server's: its garbage collector is set too."""
    application = Application(settings)
    make_server(application, host=host, port=port, token=token, on_start=on_start, own_process=True).run()
