"""All MCP servers of an application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from graphflow.tools.mcp.config import ServerConfig
from graphflow.tools.mcp.server import McpServer
from graphflow.tools.mcp.tools import tools_of
from graphflow.tools.port import Tool


class McpServers:
    """The servers by name; a dead or slow one costs only its own tools.

    Args:
        configs: the enabled ones.
        take: called with all their tools when these are new ones.
        monotonic: seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        configs: Mapping[str, ServerConfig],
        take: Callable[[list[Tool]], Awaitable[None]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.by_name = {name: McpServer(config, self._note, monotonic) for name, config in configs.items()}
        self._take = take
        self._news = asyncio.Event()
        self._lock = asyncio.Lock()
        self._taken: Any = None
        self._updates: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to connect to every server; what they offer is taken into service as it comes."""
        self._keep_up_to_date()
        for server in self.by_name.values():
            server.connect_soon()

    async def ready(self, names: Iterable[str] | None = None) -> None:
        """Returns when these servers (None: all) have connected or failed, or were waited for long enough, and their tools
        are in service.
        """
        self._keep_up_to_date()
        wanted = self.by_name if names is None else [name for name in names if name in self.by_name]
        await asyncio.gather(*(self.by_name[name].settled() for name in wanted))
        await self._update()

    def status(self) -> list[dict[str, Any]]:
        """Each server's state, for people: no secret is in it."""
        return [
            {
                "name": name,
                "transport": server.config.transport,
                "place": server.config.place,
                "state": server.state,
                "tools": len(server.tools),
                "protocol": server.protocol,
                "error": server.error,
                "skipped": list(server.skipped),
            }
            for name, server in self.by_name.items()
        ]

    async def aclose(self) -> None:
        """Ends all connections."""
        if self._updates is not None:
            self._updates.cancel()
            await asyncio.gather(self._updates, return_exceptions=True)
            self._updates = None
        await asyncio.gather(*(server.aclose() for server in self.by_name.values()))

    def _note(self) -> None:
        self._news.set()

    def _keep_up_to_date(self) -> None:
        if self._updates is None:
            self._updates = asyncio.create_task(self._follow())  # noqa: TID251 - ended by `aclose`

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            await self._update()

    async def _update(self) -> None:
        async with self._lock:
            self._news.clear()
            now = {name: server.tools for name, server in self.by_name.items()}
            if now != self._taken:
                self._taken = now
                await self._take([tool for server in self.by_name.values() for tool in tools_of(server)])
