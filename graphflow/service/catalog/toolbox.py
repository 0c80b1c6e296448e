"""All tools of an application in their newest version, and the viewports: read from files, changed while it runs.

A version of the tools is a `ToolRegistry`. What has begun keeps the one it began with; what begins takes the newest.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from graphflow.errors import Issue, summed_up
from graphflow.service.catalog.watched_folders import Contents, WatchedFolder
from graphflow.settings import Settings
from graphflow.tools.files.json_files import read_json
from graphflow.tools.files.tool_files import SUFFIXES, ToolFiles, next_tool_files
from graphflow.tools.files.viewports import SUFFIXES as VIEWPORT_SUFFIXES
from graphflow.tools.files.viewports import Viewports, next_viewports
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry

log = logging.getLogger("graphflow.tools")


class Toolbox:
    """The tools that Python registered, with the tool files over them, and the viewports.

    Args:
        settings: where the folders are.
        registered: the tools that Python registered; they stay the same.
        changed: called when the tools are new ones.
    """

    def __init__(
        self, settings: Settings, registered: ToolRegistry, changed: Callable[[ToolRegistry], Awaitable[None]]
    ) -> None:
        self._registered, self._changed = registered, changed
        self._python = registered
        watched: dict[str, Any] = {
            "interval_ms": settings.agents.refresh_interval_ms,
            "document_bytes": settings.bounds.document_bytes,
        }
        self._tool_folder = WatchedFolder(
            settings.tools.dir, SUFFIXES, take=self._take_tools, is_whole=_is_json, **watched
        )
        self._viewport_folder = WatchedFolder(
            settings.viewports.dir,
            VIEWPORT_SUFFIXES,
            take=self._take_viewports,
            is_whole=_is_whole_viewport,
            **watched,
        )
        # Read at once, not by `refresh`: agents are checked against the tools before anything runs.
        folder = self._tool_folder
        self.files = next_tool_files(ToolFiles(), folder.folder, folder.read(), registered)
        self.viewports = next_viewports(Viewports(), self._viewport_folder.folder, self._viewport_folder.read())
        self.registry = registered.overlaid(self.files.tools)
        self._told: frozenset[str] = frozenset()
        self._tell()

    def errors(self) -> list[Issue]:
        """Everything that is wrong with tool files and viewports."""
        return [*self.files.errors, *self.viewports.errors, *self._missing_viewports()]

    def names(self, path: Path | None = None) -> list[str]:
        """The files of both folders, or those that are this path or lie below it."""
        folders = (self._tool_folder, self._viewport_folder)
        files = [folder.folder / name for folder in folders for name in folder.contents]
        return [str(file) for file in files if path is None or _real(file).is_relative_to(_real(path))]

    def reads(self, path: Path) -> bool:
        """Whether a path is one of the two folders, or a file in one of them."""
        folders = [_real(folder.folder) for folder in (self._tool_folder, self._viewport_folder)]
        return _real(path) in folders or _real(path).parent in folders

    async def refresh(self) -> None:
        """Takes changed tool files and viewports into service."""
        # Viewports first: a new frontend tool finds its viewport and is not reported without one.
        await self._viewport_folder.refresh()
        await self._tool_folder.refresh()

    async def take_served(self, tools: Sequence[Tool], unreachable: Mapping[str, str]) -> None:
        """Takes the tools of MCP servers into service, in the place of those that they offered before."""
        self._registered = self._python.overlaid(tools)
        self._registered.unreachable = unreachable
        folder = self._tool_folder
        self.files = await asyncio.to_thread(
            next_tool_files, self.files, folder.folder, folder.contents, self._registered
        )
        self._tell()
        self.registry = self._registered.overlaid(self.files.tools)
        await self._changed(self.registry)

    async def watch(self) -> None:
        """Keeps both folders up to date until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tool_folder.watch())
            group.create_task(self._viewport_folder.watch())

    async def _take_tools(self, contents: Contents) -> None:
        old = self.files
        self.files = await asyncio.to_thread(next_tool_files, old, self._tool_folder.folder, contents, self._registered)
        # Errors may change although the tools stay as they are.
        self._tell()
        # Every agent is checked again, so only when a tool is really another.
        if self.files.tools != old.tools:
            self.registry = self._registered.overlaid(self.files.tools)
            await self._changed(self.registry)

    async def _take_viewports(self, contents: Contents) -> None:
        self.viewports = await asyncio.to_thread(next_viewports, self.viewports, self._viewport_folder.folder, contents)
        self._tell()

    def _tell(self) -> None:
        """Logs what is newly wrong."""
        # Compared with the last time, or every look at the folder would log the same errors again.
        texts = [issue.render() for issue in summed_up(self.errors())]
        for text in texts:
            if text not in self._told:
                log.warning("tools: %s", text)
        self._told = frozenset(texts)

    def _missing_viewports(self) -> list[Issue]:
        """Frontend tools without a viewport here: their client may have one of its own."""
        found = []
        made = {tool.name: tool for tool in self.files.tools if tool.kind == "frontend"}
        for entry in (entry for file in self.files.files.values() for entry in file.entries):
            tool = made.get(entry.name)
            if tool is not None and self.viewports.get(tool.viewport or "") is None:
                message = f"no viewport {tool.viewport!r} lies in {self._viewport_folder.folder}"
                hint = "add its file, unless the client has one of its own"
                issue = entry.issue(message, hint, at="/name", kind="reference")
                found.append(dataclasses.replace(issue, severity="warning"))
        return found


def _is_json(name: str, content: bytes | str) -> bool:
    return read_json(content, name)[1] is None


def _is_whole_viewport(name: str, content: bytes | str) -> bool:
    """An HTML file does not tell whether it is whole, but that an empty one is not."""
    # Editors truncate before they write, so the empty file is the state that a reader is most likely to catch.
    return bool(content) if PurePath(name).suffix == ".html" else _is_json(name, content)


def _real(path: Path) -> Path:
    # `Path.resolve` raises for links that lead in a circle.
    return Path(os.path.realpath(path))
