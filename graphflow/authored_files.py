"""Reading files that people write: agents, tools, viewports, cases, scripts, settings.

Whoever may put a file into a folder decides what it is, so a pipe must not hold its reader for ever, a device must not be
read without end, and a large file must not fill the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
"""Largest file; what people write has a thousandth of it."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_authored(path: str | Path) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it can't be opened, is no regular file, or has more than 4 MiB; `strerror` says so without the path.
        ValueError: a NUL in the path.
    """
    name = os.fspath(path)
    _check(name, os.stat(name))  # noqa: PTH116 - before it is opened: opening a device may act
    # Not blocking, and looked at again once it is open: it may have been swapped for a pipe.
    handle = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        _check(name, os.fstat(handle))
        content = file.read(MAX_BYTES + 1)
    # Some files grow while they are read, and those of `/proc` have no size.
    _check_size(name, len(content))
    return content


def _check(name: str, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'special')}, not a regular file", name)
    _check_size(name, found.st_size)


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise OSError(
            errno.EFBIG, f"it has {size} bytes; a file that people write has at most {MAX_BYTES} (4 MiB)", name
        )
