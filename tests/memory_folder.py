"""Temporary files of tests lie in memory where there is room: a test waits for no disk.

Nothing is lost by that: processes are killed here, machines are not, and what a killed process has written is kept by
the system in both places.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "gft-"
ENOUGH = 2 << 30
"""Bytes that must be free; containers often have 64 MB."""


def use_memory() -> None:
    """Makes a folder there the place of temporary files, of this process and its children; `TMPDIR` wins.

    Each run has a folder of its own: pytest gives the number of a removed folder again, and a run that ends could take
    the lock, and so the files, of another one for its own.
    """
    if "TMPDIR" in os.environ or not _fits():
        return
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.split("-")[1]).exists():  # of a run that failed or was killed, and is over
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    folder.chmod(0o711)  # PostgreSQL, which does not run as root, goes through it to its own
    atexit.register(_remove, folder, os.getpid())
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it may have been looked up before


def _remove(folder: Path, owner: int) -> None:
    """When the run is over; the folders of failed tests stay until the next run."""
    if os.getpid() == owner and not any(path.is_dir() for path in folder.glob("pytest-of-*/pytest-[0-9]*")):
        shutil.rmtree(folder, ignore_errors=True)


def _fits() -> bool:
    """Whether there is room, and files in it may be run: tests write scripts."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
