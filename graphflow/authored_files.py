"""Reading files that people write: agents, tools, viewports, cases, scripts, settings.

Whoever may put a file into a folder decides what it is, so a pipe must not hold its reader for ever, a device must not be
read without end, and a large file must not fill the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from graphflow.bounds import DEFAULTS

MAX_BYTES = DEFAULTS.document_bytes
"""Largest file unless the settings say otherwise; what people write has a thousandth of it."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_authored(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it can't be opened, is no regular file, or has more than `max_bytes`; `strerror` says so without the path.
        ValueError: a NUL in the path.
    """
    name = os.fspath(path)
    _check(name, os.stat(name), max_bytes)  # noqa: PTH116 - before it is opened: opening a device may act
    # Not blocking, and looked at again once it is open: it may have been swapped for a pipe.
    handle = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        _check(name, os.fstat(handle), max_bytes)
        content = file.read(max_bytes + 1)
    # Some files grow while they are read, and those of `/proc` have no size.
    _check_size(name, len(content), max_bytes)
    return content


def _check(name: str, found: os.stat_result, max_bytes: int) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'special')}, not a regular file", name)
    _check_size(name, found.st_size, max_bytes)


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise OSError(errno.EFBIG, too_large(size, max_bytes), name)


def too_large(size: int, max_bytes: int) -> str:
    """Why what people write is refused."""
    shown = f"{max_bytes} ({max_bytes >> 20} MiB)" if max_bytes % (1 << 20) == 0 else f"{max_bytes}"
    return f"it has {size} bytes; the setting bounds.document_bytes allows what people write {shown}"
