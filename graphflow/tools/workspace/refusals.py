"""What the file port refuses, each with the code of a tool's result."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType


class FileRefused(Exception):
    """A file that is not opened, listed or written; `code` is the code of the tool's result."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Swapped(Exception):
    """Somebody exchanged what was looked at before it was opened; the port looks again."""


def outside(path: str) -> FileRefused:
    """The same text whether or not the path exists: a refusal must not show what is outside."""
    return FileRefused("ACCESS_DENIED", f"path not allowed: {path!r} leads outside of the allowed folders")


def protected(path: str) -> FileRefused:
    return FileRefused("ACCESS_DENIED", f"path not allowed: {path!r} belongs to the server and is open to no tool")


def missing(path: str) -> FileRefused:
    return FileRefused("NOT_FOUND", f"{path!r} does not exist")


_TEXTS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        errno.ENOENT: ("NOT_FOUND", "does not exist"),
        errno.ENOTDIR: ("INVALID_PARAM", "leads through a file as if it were a folder"),
        errno.EISDIR: ("IS_DIRECTORY", "is a folder"),
        errno.EEXIST: ("CONFLICT", "is there already"),
        errno.ENOTEMPTY: ("CONFLICT", "is a folder that is not empty"),
        errno.EACCES: ("PERMISSION_DENIED", "may not be opened by the server's user"),
        errno.EPERM: ("PERMISSION_DENIED", "may not be changed by the server's user"),
        errno.EROFS: ("PERMISSION_DENIED", "is on a read-only file system"),
        errno.ENAMETOOLONG: ("INVALID_PARAM", "is too long for a path"),
        errno.ELOOP: ("INVALID_PARAM", "goes through too many links"),
    }
)


def of_error(path: str, error: OSError) -> FileRefused:
    """The refusal that an error of the operating system means; its own text is left out, as it may hold paths."""
    code, text = _TEXTS.get(error.errno or 0, ("EXECUTION_ERROR", f"can't be used: {error.strerror}"))
    return FileRefused(code, f"{path!r} {text}")
