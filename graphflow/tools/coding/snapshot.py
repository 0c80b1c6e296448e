"""A file at one moment: its bytes, and the facts by which it is known again."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property

from graphflow.tools.workspace import FileRefused, Workspace

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Largest file that the tools read or edit."""
TRIES = 5
"""Looks at a file that changes while it is read."""


@dataclass(frozen=True)
class Snapshot:
    """One moment of a file."""

    data: bytes
    facts: os.stat_result

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


def take_snapshot(workspace: Workspace, path: str) -> Snapshot:
    """All of a regular file, as it was at one moment.

    Raises:
        FileRefused: `INVALID_PARAM` for a file that is too large, `CONFLICT` for one that changes all the time.
    """
    for _ in range(TRIES):
        with workspace.open(path) as file:
            before = os.fstat(file.fileno())
            if before.st_size > MAX_FILE_BYTES:
                raise FileRefused(
                    "INVALID_PARAM",
                    f"{path!r} has {before.st_size:,} bytes; files of up to {MAX_FILE_BYTES:,} bytes are read whole",
                )
            data = file.read(MAX_FILE_BYTES + 1)
            after = os.fstat(file.fileno())
        if len(data) == before.st_size and _moment(before) == _moment(after):
            return Snapshot(data, after)
    raise FileRefused("CONFLICT", f"{path!r} changes while it is read")


def _moment(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
