"""Writes agent files into the agents' folder: checked by the loader first, atomically, and nowhere else."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from graphflow.agents.loader import LoadedAgent
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.modes.registry import MODES
from graphflow.private_files import make_private_folder
from graphflow.tools.context import ToolContext
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace

LoadAgent = Callable[[Any], LoadedAgent]
"""Reads and checks an agent from a file, a text or data."""
FindExcess = Callable[[CheckedDocument, ToolContext], str | None]
"""What a file would grant beyond what its writer has, or None."""


class AgentFolder:
    """The folder of agent files, for those who write it.

    Args:
        folder: made when the first file is written.
        home: what paths are shown relative to.
        load: checks an agent.
        protected: files of the server that are never written, wherever the folder is.
        excess: what an agent would grant beyond what its writer has.
    """

    def __init__(
        self,
        folder: Path,
        home: Path,
        load: LoadAgent,
        protected: ProtectedFiles | None = None,
        excess: FindExcess | None = None,
    ) -> None:
        self._folder, self._home, self._load, self._protected = folder, home, load, protected
        self._excess = excess

    @property
    def blocks(self) -> Mapping[str, str]:
        # Only what this version can run: a model would choose the others as well.
        return {name: mode.block for name, mode in MODES.items()}

    def write(self, key: str, config: Mapping[str, Any], ctx: ToolContext) -> tuple[bool, str]:
        """See `AgentFiles.write`; `key` holds no path separator."""
        # Checked first: a broken agent is never written. With the key that the file's name will give it.
        made = self._load({**config, "key": key})
        if self._excess is not None and (beyond := self._excess(made.checked, ctx)) is not None:
            raise FileRefused("PERMISSION_DENIED", f"an agent grants only what it has: {beyond}")
        make_private_folder(self._folder)
        # This tool is for changing agents; any other is refused here.
        own = None if self._protected is None else replace(self._protected, authored=())
        files = Workspace(self._folder, protected=own)
        name = f"{key}.json"
        # A link could make another file of the folder this agent's; the port itself lets none lead out.
        found = files.find(name, follow_last=False)
        if found.facts is not None and not stat.S_ISREG(found.facts.st_mode):
            raise FileRefused("INVALID_PARAM", f"{name} is not a regular file")
        created = files.write(name, msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
        return created, _shown(self._folder / name, self._home)


def _shown(file: Path, home: Path) -> str:
    try:
        return file.resolve().relative_to(home.resolve()).as_posix()
    except ValueError:
        return file.name
