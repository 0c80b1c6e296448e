"""The way to a server: a program on this machine, or an address; watched, so that its end is known when it happens."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from graphflow.excerpts import excerpt_of
from graphflow.tools.mcp.config import ServerConfig
from graphflow.tools.mcp.listing import read_tools
from graphflow.tools.mcp.sdk import sdk

TAIL_BYTES = 2_048
"""What is kept of what a server's program writes to its stderr."""
KNOWN_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})


class StderrTail:
    """The end of what a program writes to its stderr, for the error of one that does not start."""

    def __init__(self) -> None:
        self._kept = b""
        self._read, write = os.pipe()
        self.file = os.fdopen(write, "w", encoding="utf-8")
        os.set_blocking(self._read, False)
        asyncio.get_running_loop().add_reader(self._read, self._more)

    def _more(self) -> None:
        try:
            new = os.read(self._read, 65_536)
        except BlockingIOError:
            return
        if not new:
            asyncio.get_running_loop().remove_reader(self._read)
        self._kept = (self._kept + new)[-TAIL_BYTES:]

    def text(self) -> str:
        """The last lines so far."""
        return self._kept.decode("utf-8", "replace").strip()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._read)
        self.file.close()
        os.close(self._read)


class WatchedStream:
    """What comes from a server, as the SDK reads it: bad tools and unknown content are taken out, and its end is reported.

    The SDK refuses a whole list for one bad tool, and a whole result for one block that it does not know.
    """

    def __init__(self, inner: Any, ended: Callable[[], None], skipped: Callable[[tuple[str, ...]], None]) -> None:
        self._inner, self._ended, self._skipped = inner, ended, skipped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._inner.__aexit__(*exc)

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._inner.__anext__()
        except BaseException:
            self._ended()
            raise
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict):
            self._clean(result)
        return item

    def _clean(self, result: dict[str, Any]) -> None:
        listed, content = result.get("tools"), result.get("content")
        if isinstance(listed, list):
            good, bad = read_tools(listed)
            by_name = {tool.name: tool.parameters for tool in good}
            kept: dict[str, Any] = {}
            for item in listed:
                if isinstance(item, Mapping) and item.get("name") in by_name:
                    kept.setdefault(item["name"], {**item, "inputSchema": by_name[item["name"]]})
            result["tools"] = list(kept.values())
            self._skipped(bad)
        elif isinstance(content, list):
            result["content"] = [_known(block) for block in content]


def _known(block: Any) -> Any:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind in KNOWN_BLOCKS:
        return block
    return {
        "type": "text",
        "text": f"[content of the type {excerpt_of(kind, 40)}, which is not known here, is left out]",
    }


@asynccontextmanager
async def opened(
    config: ServerConfig,
    stderr: StderrTail | None,
    ended: Callable[[], None],
    skipped: Callable[[tuple[str, ...]], None],
) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams of a server, as the SDK's client takes them.

    Raises:
        LookupError: a variable that the settings name is not set.
        OSError: the program can't be started.
    """
    async with _transport(config, stderr) as (read, write):
        yield WatchedStream(read, ended, skipped), write


def _program(command: str) -> str:
    """The program of a command; one that is installed beside this Python is found without being on the PATH."""
    beside = Path(sys.executable).parent
    return shutil.which(command) or shutil.which(command, path=str(beside)) or command


@asynccontextmanager
async def _transport(config: ServerConfig, stderr: StderrTail | None) -> AsyncIterator[tuple[Any, Any]]:
    mcp = sdk()
    if config.transport == "stdio":
        parameters = mcp.StdioServerParameters(
            command=_program(config.filled(config.command)),
            args=[config.filled(word) for word in config.args],
            env=config.resolved(config.env),
            cwd=str(config.folder),
        )
        assert stderr is not None
        async with mcp.client.stdio.stdio_client(parameters, errlog=stderr.file) as streams:
            yield streams
        return
    url, headers = config.filled(config.url), config.resolved(config.headers)
    if config.transport == "sse":
        async with mcp.client.sse.sse_client(url, headers=headers) as streams:
            yield streams
        return
    import httpx2

    # The runner keeps the time of a call; a stream may be silent as long as the call may take.
    times = httpx2.Timeout(30.0, read=max(config.timeout_s, 30.0) + 5)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=times) as client,
        mcp.client.streamable_http.streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams
