"""One MCP server of this process: a single task opens its connection, keeps it, and closes it.

The SDK's client must be left by the task that entered it, so nobody else touches it; calls come from any task. A
connection that is lost is opened again when the server is needed next, after a pause that grows with each failure.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Literal

from graphflow.errors import described
from graphflow.json_data import whole_characters
from graphflow.tools.mcp.config import ServerConfig
from graphflow.tools.mcp.elicitation import CannotAsk, OpenCalls
from graphflow.tools.mcp.listing import McpTool, read_tools
from graphflow.tools.mcp.sdk import sdk
from graphflow.tools.mcp.transport import StderrTail, opened

log = logging.getLogger("graphflow.mcp")

State = Literal["idle", "connecting", "ready", "failed", "closed"]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
CLOSE_S = 10.0
MOST_PAGES = 50
_LISTENING = "2026-"
"""Protocol versions in which changes of the list are asked for, not sent by themselves."""


class McpUnavailable(Exception):
    """The server can't be reached; the text says why and holds no secret."""


class McpServer:
    """The connection to one server, and what it offers.

    Args:
        config: how it is reached.
        changed: called when its tools or its state are new.
        monotonic: seconds of a clock that only goes forward.
    """

    def __init__(
        self, config: ServerConfig, changed: Callable[[], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = config
        self.state: State = "idle"
        self.error: str | None = None
        self.tools: tuple[McpTool, ...] = ()
        """As listed last; kept while the connection is opened again."""
        self.skipped: tuple[str, ...] = ()
        """Why tools of its list are left out."""
        self.protocol: str | None = None
        self.calls = OpenCalls(config.name)
        self._changed, self._monotonic = changed, monotonic
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._wake = asyncio.Event()
        self._lost = self._relist = False
        self._began = self._not_before = 0.0
        self._pause_s = FIRST_PAUSE_S

    # --- connecting

    def connect_soon(self) -> None:
        """Begins to connect, unless the connection stands, is being opened, or failed a moment ago."""
        if self._task is not None or self.state == "closed" or self._monotonic() < self._not_before:
            return
        self.state, self._began = "connecting", self._monotonic()
        self._settled.clear()
        self._wake.clear()
        self._lost = self._relist = False
        self._task = asyncio.create_task(self._own())  # noqa: TID251 - ended by `aclose`

    @property
    def asks_by_results(self) -> bool:
        """Whether the protocol of the connection gives questions to people, and news of the list, only when asked."""
        return str(self.protocol) >= _LISTENING

    async def settled(self) -> None:
        """Returns when the server is ready or has failed, at the latest `connect_s` after connecting began."""
        if self._lost and self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_S)
        self.connect_soon()
        left = self._began + self.config.connect_s - self._monotonic()
        if self.state == "connecting" and left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), left)

    async def aclose(self) -> None:
        """Ends the connection, and the program if there is one."""
        self.state = "closed"
        if (task := self._task) is not None:
            self._wake.set()
            _, late = await asyncio.wait([task], timeout=CLOSE_S if self._client is not None else 0.1)
            for each in late:
                each.cancel()
                await asyncio.wait([each], timeout=CLOSE_S)

    async def _own(self) -> None:
        """The life of one connection."""
        stderr: StderrTail | None = None
        try:
            await asyncio.to_thread(sdk)
            if self.config.transport == "stdio":
                stderr = StderrTail()
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.config.timeout_s):
                    client = await stack.enter_async_context(self._new_client(stderr))
                    await self._list(client)
                self._client, self.protocol = client, client.protocol_version
                self._pause_s, self.error = FIRST_PAUSE_S, None
                if self.state != "closed":
                    self.state = "ready"
                self._settled.set()
                log.info("MCP server %s: %d tools (protocol %s)", self.config.name, len(self.tools), self.protocol)
                self._changed()
                await self._keep(client)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever is wrong with a server costs its own tools only
            self._failed(error, stderr)
        finally:
            self._client, self._task = None, None
            if self.state not in {"closed", "failed"}:
                self.state = "idle"
            self._settled.set()
            if stderr is not None:
                stderr.close()

    def _new_client(self, stderr: StderrTail | None) -> Any:
        mcp = sdk()
        transport = opened(self.config, stderr, self._end, self._skip)
        info = mcp.types.Implementation(name="graphflow", version="1")
        return mcp.Client(
            transport,
            message_handler=self._notified,
            elicitation_callback=self._asked,
            client_info=info,
            cache=None,
        )

    async def _asked(self, _context: Any, params: Any) -> Any:
        types = sdk().types
        try:
            given = await self.calls.asked(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        except CannotAsk as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        return types.ElicitResult(**given)

    async def _keep(self, client: Any) -> None:
        """Waits for the end, and lists the tools again when the server says that they have changed."""
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(self._listen(client)) if self.asks_by_results else None
            while not self._over():
                await self._wake.wait()
                self._wake.clear()
                if self._relist and not self._over():
                    self._relist = False
                    async with asyncio.timeout(self.config.timeout_s):
                        await self._list(client)
                    self._changed()
            if listener is not None:
                listener.cancel()

    def _over(self) -> bool:
        return self._lost or self.state == "closed"

    async def _list(self, client: Any) -> None:
        if client.server_capabilities.tools is None:
            return
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            # Halves of characters are in no request to a model, and in nothing that is stored.
            found += [
                whole_characters(tool.model_dump(mode="json", by_alias=True, exclude_none=True)) for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor:
                break
        self.tools, _ = read_tools(found)

    async def _listen(self, client: Any) -> None:
        # A server that sends no changes refuses this; its list is then read with each connection only.
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._relist = True
                    self._wake.set()

    async def _notified(self, message: Any) -> None:
        if isinstance(message, sdk().types.ToolListChangedNotification):
            self._relist = True
            self._wake.set()

    def _skip(self, reasons: tuple[str, ...]) -> None:
        self.skipped = reasons
        for reason in reasons:
            log.warning("MCP server %s: %s", self.config.name, reason)

    def _end(self) -> None:
        self._lost = True
        self._wake.set()

    def _failed(self, error: BaseException, stderr: StderrTail | None) -> None:
        self.error = self.config.masked(_reason(error, self.config, stderr))
        self.state = "failed" if self.state != "closed" else "closed"
        self.tools = ()
        self._not_before = self._monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        log.warning("MCP server %s can't be used: %s", self.config.name, self.error)
        self._changed()

    # --- using

    async def use(self, act: Callable[[Any], Awaitable[Any]], *, repeatable: bool) -> Any:
        """What `act` gives for the connected client; tried once more on a new connection if that can do no harm.

        Raises:
            McpUnavailable: there is no connection, and nothing was sent.
            ConnectionError: the connection was lost, and whether the request took effect is unknown.
            MCPError: the server refuses the request.
        """
        client = await self._connected()
        try:
            return await act(client)
        except sdk().MCPError as error:
            if not self._was_lost(error):
                raise
            unsent, why = _was_unsent(error), described(error)
        except (OSError, RuntimeError) as error:  # the transport's own errors
            unsent, why = False, described(error)
        if not (repeatable or unsent):
            raise ConnectionError(f"the connection to the MCP server {self.config.name!r} was lost: {why}")
        return await act(await self._connected())

    async def _connected(self) -> Any:
        await self.settled()
        if self._client is None or self._lost:
            why = self.error or f"no connection after {self.config.connect_s:g} s; it is still tried"
            raise McpUnavailable(f"the MCP server {self.config.name!r} can't be reached: {why}")
        return self._client

    def _was_lost(self, error: Any) -> bool:
        """Whether the error means the connection; then it is ended, and opened again when it is needed."""
        codes = sdk().types
        gone = error.code == codes.CONNECTION_CLOSED or _was_unsent(error)
        if gone or (self.config.transport != "stdio" and error.code == codes.INTERNAL_ERROR):
            self._end()
            return True
        return False


def _was_unsent(error: Any) -> bool:
    """Whether the server says that it does not know the session: it has restarted, and has not run the request."""
    return "Session terminated" in str(error)


def _reason(error: BaseException, config: ServerConfig, stderr: StderrTail | None) -> str:
    """What is wrong, in one line, with what to do."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case LookupError():
            return (
                f"the environment variable {error.args[0]!r} is not set; set it, or write ${{{error.args[0]}:-default}}"
            )
        case FileNotFoundError():
            return f"there is no command {config.command!r}; install the server, or correct `command`"
        case TimeoutError():
            why = f"no answer within {config.timeout_s:g} s"
        case _:
            why = described(error)
    said = stderr.text() if stderr is not None else ""
    return f"{why}; it says: {said[-400:]}" if said else why
