"""A folder of files that take effect while the process runs: read at the start, and whenever one changes (spec 1.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

from graphflow.agents.polling import folder_changes, until_sure
from graphflow.authored_files import MAX_BYTES
from graphflow.tools.files.tool_files import read_folder

Contents = Mapping[str, bytes | str]
"""File name → its bytes, or why it can't be read."""


class WatchedFolder:
    """The files of a folder with certain suffixes.

    Args:
        folder: need not exist.
        suffixes: with their dots.
        take: activates the files; never called twice at a time.
        is_whole: whether a file looks complete; another may be half written and is read again before that is believed.
        interval_ms: how often `watch` looks by itself.
        document_bytes: largest file.
        sleep: waits; tests give their own.
    """

    def __init__(
        self,
        folder: Path,
        suffixes: tuple[str, ...],
        *,
        take: Callable[[Contents], Awaitable[None]],
        is_whole: Callable[[str, bytes | str], bool],
        interval_ms: int,
        document_bytes: int = MAX_BYTES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.folder = Path(folder)
        self._suffixes, self._take, self._is_whole = suffixes, take, is_whole
        self._interval_ms, self._sleep, self._document_bytes = interval_ms, sleep, document_bytes
        self.contents: Contents = {}
        """Those in service."""
        self._lock = asyncio.Lock()

    def read(self) -> Contents:
        """The files as they are now, which are those in service from here on."""
        self.contents = read_folder(self.folder, self._suffixes, self._document_bytes)
        return self.contents

    async def refresh(self) -> None:
        """Activates what changed; a file that vanished or is not whole is read again before that is believed."""
        await until_sure(self._look, self._sleep)

    async def watch(self) -> None:
        """Keeps the files up to date until it is cancelled; runs in a task group of its caller."""
        found = folder_changes(self.folder, suffix=self._suffixes, interval_ms=self._interval_ms, sleep=self._sleep)
        async with aclosing(found) as due:
            async for _ in due:
                await self.refresh()

    async def _look(self, sure: bool) -> bool:
        # `watch` and `refresh` may look at the same time, and `take` must not run twice at once.
        async with self._lock:
            old = self.contents
            new = dict(await asyncio.to_thread(read_folder, self.folder, self._suffixes))
            doubtful = {name for name in {**old, **new} if old.get(name) != new.get(name) and self._doubts(name, new)}
            # A file may be empty or gone while an editor saves it: it keeps its old content until a second look agrees.
            if sure:
                for name in doubtful:
                    new.pop(name, None)
                    if name in old:
                        new[name] = old[name]
            if new != old:
                self.contents = dict(sorted(new.items()))
                await self._take(self.contents)
            return bool(doubtful) and sure

    def _doubts(self, name: str, new: Contents) -> bool:
        return name not in new or not self._is_whole(name, new[name])
