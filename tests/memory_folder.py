"""Temporary files of tests lie in memory where there is room: a test waits for no disk.

Nothing is lost by that: processes are killed here, machines are not, and what a killed process has written is kept by
the system in both places.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30
"""Bytes that must be free; containers often have 64 MB."""


def use_memory() -> None:
    """Makes it the place of temporary files, in this process and its children; `TMPDIR` wins."""
    if "TMPDIR" not in os.environ and _fits():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # it may have been looked up before


def _fits() -> bool:
    """Whether there is room, and files in it may be run: tests write scripts."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
