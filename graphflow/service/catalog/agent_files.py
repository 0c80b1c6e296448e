"""Writes agent files into the agents' folder: checked by the loader first, atomically, and nowhere else.

Which agent wrote a file is kept beside the files, in `.authors/KEY.json` with the digest of what it wrote: a file that
somebody has changed since is theirs. No tool can write there, and nothing of it enters the agent's document or hash.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from graphflow.agents.loader import LoadedAgent
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.modes.registry import MODES
from graphflow.private_files import make_private_folder
from graphflow.tools.context import ToolContext
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace

CheckAgent = Callable[[str, bytes], LoadedAgent]
"""The agent that a file of this key and content would be, as the loader sees it."""
FindExcess = Callable[[CheckedDocument, ToolContext], str | None]
"""What a file would grant beyond what its writer has, or None."""
AUTHORS = ".authors"


class _Author(msgspec.Struct, frozen=True):
    """Which agent wrote a file, and what."""

    agent: str
    sha256: str


class AgentFolder:
    """The folder of agent files, for those who write it.

    Args:
        folder: made when the first file is written.
        home: what paths are shown relative to.
        check: the loader; what it refuses is not written.
        protected: files of the server that are never written, wherever the folder is.
        excess: what an agent would grant beyond what its writer has.
        max_bytes: the largest file that is read.
    """

    def __init__(
        self,
        folder: Path,
        home: Path,
        check: CheckAgent,
        protected: ProtectedFiles | None = None,
        excess: FindExcess | None = None,
        *,
        max_bytes: int,
    ) -> None:
        self._folder, self._home, self._check = folder, home, check
        self._excess, self._max_bytes = excess, max_bytes
        # The tool that writes here is for changing agents; any other is refused here.
        self._protected = None if protected is None else replace(protected, authored=())

    @property
    def blocks(self) -> Mapping[str, str]:
        # Only what this version can run: a model would choose the others as well.
        return {name: mode.block for name, mode in MODES.items()}

    def write(self, key: str, config: Mapping[str, Any], ctx: ToolContext) -> tuple[bool, str]:
        """See `AgentFiles.write`; `key` holds no path separator."""
        # The very bytes are checked, so that nothing is written which the loader then refuses: for its size, its depth, a key
        # that differs from the file's name, or what only the text shows.
        content = _content(config)
        made = self._check(key, content)
        if self._excess is not None and (beyond := self._excess(made.checked, ctx)) is not None:
            raise FileRefused("PERMISSION_DENIED", f"an agent grants only what it has: {beyond}")
        make_private_folder(self._folder)
        files = self._files()
        # A link could make another file of the folder this agent's; the port itself lets none lead out.
        found = files.find(_file(key), follow_last=False)
        if found.facts is not None and not stat.S_ISREG(found.facts.st_mode):
            raise FileRefused("INVALID_PARAM", f"{_file(key)} is not a regular file")
        if ctx.agent_key is not None:
            # Before the file: a process that ends between the two leaves a file that counts as somebody else's.
            author = _Author(agent=ctx.agent_key, sha256=sha256(content).hexdigest())
            files.make_folder(AUTHORS, mode=0o700)
            files.write(f"{AUTHORS}/{_file(key)}", msgspec.json.encode(author), mode=0o600)
        created = files.write(_file(key), content)
        return created, self._shown(key)

    def replaced(self, key: str, agent_key: str | None) -> str | None:
        """See `AgentFiles.replaced`."""
        if not self._folder.is_dir():
            return None
        files = self._files()
        try:
            content = files.read(_file(key), self._max_bytes + 1)
        except FileRefused as refused:
            return None if refused.code == "NOT_FOUND" else self._shown(key)
        try:
            author = msgspec.json.decode(files.read(f"{AUTHORS}/{_file(key)}", 4096), type=_Author)
        except (FileRefused, msgspec.DecodeError):
            return self._shown(key)
        own = author.agent == agent_key and author.sha256 == sha256(content).hexdigest()
        return None if own else self._shown(key)

    def _files(self) -> Workspace:
        return Workspace(self._folder, protected=self._protected)

    def _shown(self, key: str) -> str:
        file = self._folder / _file(key)
        try:
            return file.resolve().relative_to(self._home.resolve()).as_posix()
        except ValueError:
            return file.name


def _file(key: str) -> str:
    return f"{key}.json"


def _content(config: Mapping[str, Any]) -> bytes:
    """The text of the file."""
    try:
        return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
    # A lone surrogate, a number that JSON readers do not keep, a nesting beyond all bounds.
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FileRefused("INVALID_PARAM", f"it can't be written as JSON: {error}") from error
