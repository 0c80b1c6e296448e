"""Writes agent files into the agents' folder: checked by the loader first, atomically, and nowhere else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from graphflow.agents.loader import LoadedAgent
from graphflow.modes.registry import MODES

LoadAgent = Callable[[Any], LoadedAgent]
"""Reads and checks an agent from a file, a text or data."""


class AgentFolder:
    """The folder of agent files, for those who write it.

    Args:
        folder: made when the first file is written.
        home: what paths are shown relative to.
        load: checks an agent.
    """

    def __init__(self, folder: Path, home: Path, load: LoadAgent) -> None:
        self._folder, self._home, self._load = folder, home, load

    @property
    def blocks(self) -> Mapping[str, str]:
        # Only what this version can run: a model would choose the others as well.
        return {name: mode.block for name, mode in MODES.items()}

    def write(self, key: str, config: Mapping[str, Any]) -> tuple[bool, str]:
        """See `AgentFiles.write`; `key` holds no path separator."""
        # Checked first: a broken agent is never written. With the key that the file's name will give it.
        self._load({**config, "key": key})
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{key}.json"
        # A link could lead the write out of the folder.
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise OSError(f"{file.name} is not a regular file")
        created = not file.exists()
        _replace(file, msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
        return created, _shown(file, self._home)


def _replace(file: Path, data: bytes) -> None:
    """Writes the file so that others see the old or the new one, and never a part."""
    handle, name = tempfile.mkstemp(prefix=f".{file.stem}.", suffix=".tmp", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        # `mkstemp` makes files that only their owner can read.
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _shown(file: Path, home: Path) -> str:
    try:
        return file.resolve().relative_to(home.resolve()).as_posix()
    except ValueError:
        return file.name
