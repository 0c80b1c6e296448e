"""Writes agent files into the agents' folder: checked by the loader first, atomically, and nowhere else."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from graphflow.agents.loader import LoadedAgent
from graphflow.modes.registry import MODES
from graphflow.private_files import make_private_folder
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace

LoadAgent = Callable[[Any], LoadedAgent]
"""Reads and checks an agent from a file, a text or data."""


class AgentFolder:
    """The folder of agent files, for those who write it.

    Args:
        folder: made when the first file is written.
        home: what paths are shown relative to.
        load: checks an agent.
        protected: files of the server that are never written, wherever the folder is.
    """

    def __init__(self, folder: Path, home: Path, load: LoadAgent, protected: ProtectedFiles | None = None) -> None:
        self._folder, self._home, self._load, self._protected = folder, home, load, protected

    @property
    def blocks(self) -> Mapping[str, str]:
        # Only what this version can run: a model would choose the others as well.
        return {name: mode.block for name, mode in MODES.items()}

    def write(self, key: str, config: Mapping[str, Any]) -> tuple[bool, str]:
        """See `AgentFiles.write`; `key` holds no path separator."""
        # Checked first: a broken agent is never written. With the key that the file's name will give it.
        self._load({**config, "key": key})
        make_private_folder(self._folder)
        files = Workspace(self._folder, protected=self._protected)
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
