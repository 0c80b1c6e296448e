"""All MCP servers of an application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.tools.mcp.config import ServerConfig
from graphflow.tools.mcp.named import servers_named
from graphflow.tools.mcp.recorded import Lists, RecordedTools, lists_of
from graphflow.tools.mcp.server import McpServer
from graphflow.tools.mcp.tools import tools_of
from graphflow.tools.port import Tool


class McpServers:
    """The servers by name; a dead or slow one costs only its own tools.

    Args:
        configs: the enabled ones.
        take: called with all their tools, and why which servers can't be reached, when one of these is new.
        monotonic: seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        configs: Mapping[str, ServerConfig],
        take: Callable[[list[Tool], Mapping[str, str]], Awaitable[None]],
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

    def recorded(self, checked: CheckedDocument) -> RecordedTools | None:
        """What the servers that a document names offer now, for the record of its runs; None if it names none."""
        return lists_of(servers_named(checked, self.by_name), {n: server.tools for n, server in self.by_name.items()})

    def tools(self, lists: Lists) -> list[Tool]:
        """The tools of such lists; those of servers that are configured no more are left out."""
        return [tool for name in lists if name in self.by_name for tool in tools_of(self.by_name[name], lists[name])]

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
            servers = self.by_name.values()
            now = [(server.tools, server.error) for server in servers]
            if now != self._taken:
                self._taken = now
                unreachable = {server.config.name: server.error for server in servers if server.error is not None}
                await self._take([tool for server in servers for tool in tools_of(server, server.tools)], unreachable)
