"""The calls of the operating system that the file port makes, one method each.

All take a folder's descriptor and a name in it, never a path from the process's working directory. Tests inject a
system that swaps files and folders between two calls.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
# Never inherited by a child, and never the terminal of the process.
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
FOLDER = os.O_RDONLY | _DIRECTORY | _NOFOLLOW | _ALWAYS
# A folder that is only passed through needs no right to be listed; `openat2` takes O_PATH with no flag that means nothing for it.
PASS = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
# A FIFO that takes the place of a file must not hold the open.
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NOFOLLOW | _ALWAYS
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _ALWAYS

# https://man7.org/linux/man-pages/man2/openat2.2.html; the number is the same on all architectures but Alpha.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_UNAVAILABLE = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
"""What an old kernel, and a container's system call filter, answer to `openat2`."""


class System:
    """The operating system.

    Args:
        openat2: whether to use the kernel's own resolution beneath a folder; None: if it has one.
    """

    def __init__(self, *, openat2: bool | None = None) -> None:
        self._openat2 = openat2

    def resolves_beneath(self) -> bool:
        """Whether `open_beneath` works here."""
        if self._openat2 is None:
            self._openat2 = sys.platform == "linux" and self._tried()
        return self._openat2

    def _tried(self) -> bool:
        folder = os.open("/", FOLDER)
        try:
            os.close(self.open_beneath(folder, "."))
        except OSError as error:
            if error.errno in _UNAVAILABLE:
                return False
            raise
        finally:
            os.close(folder)
        return True

    def open_beneath(self, folder: int, path: str, flags: int = FOLDER) -> int:
        """A descriptor of a path without links beneath a folder: the kernel refuses every link and every way out."""
        import ctypes

        how = (ctypes.c_uint64 * 3)(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)
        name = os.fsencode(path)
        opened: int = _libc().syscall(_OPENAT2, folder, name, ctypes.byref(how), ctypes.sizeof(how))
        if opened < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return opened

    def open_root(self, path: str) -> int:
        """A descriptor of a root; links on the way to it are followed, as its owner set them."""
        return os.open(path, os.O_RDONLY | _DIRECTORY | _ALWAYS)

    def open(self, name: str, flags: int, folder: int, mode: int = 0o600) -> int:
        return os.open(name, flags, mode, dir_fd=folder)

    def open_parts(self, folder: int, parts: Sequence[str], flags: int) -> int:
        """What `open_beneath` opens, also on a system without `openat2`: no component may be a link."""
        if self.resolves_beneath():
            return self.open_beneath(folder, "/".join(parts) or ".", flags)
        *folders, last = parts or ["."]
        opened: list[int] = []
        try:
            for name in folders:
                opened.append(self.open(name, PASS, opened[-1] if opened else folder))
            return self.open(last, flags, opened[-1] if opened else folder)
        finally:
            for each in opened:
                self.close(each)

    def link_target(self, name: str, folder: int) -> str:
        return os.readlink(name, dir_fd=folder)

    def facts(self, name: str, folder: int) -> os.stat_result:
        """Of the entry itself, links not followed."""
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def facts_of(self, opened: int) -> os.stat_result:
        return os.fstat(opened)

    def names(self, folder: int, limit: int) -> list[str]:
        """The names in a folder, at most `limit` + 1, in no order."""
        out = []
        with os.scandir(folder) as entries:
            for entry in entries:
                out.append(entry.name)
                if len(out) > limit:
                    break
        return out

    def entries(self, folder: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """The entries of a folder, in no order; their facts may be asked for inside the block only."""
        return os.scandir(folder)

    def make_folder(self, name: str, folder: int, mode: int) -> None:
        os.mkdir(name, mode, dir_fd=folder)

    def rename(self, old: str, new: str, folder: int) -> None:
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def link(self, old: str, new: str, folder: int) -> None:
        os.link(old, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def remove(self, name: str, folder: int) -> None:
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, name: str, folder: int) -> None:
        os.rmdir(name, dir_fd=folder)

    def may_write(self, name: str, folder: int) -> bool:
        """Whether the file has a bit that lets anybody write it, and this process is let to; links not followed."""
        facts = self.facts(name, folder)
        if not facts.st_mode & 0o222:  # the superuser may write it all the same, and somebody meant something by it
            return False
        return os.access(name, os.W_OK, dir_fd=folder, effective_ids=True, follow_symlinks=False)

    def lock(self, opened: int) -> bool:
        """Locks a file for as long as it is open; False: somebody else has it."""
        import fcntl

        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take_after(self, opened: int, before: int) -> None:
        """Gives a new file the owner and the attributes of the one that it replaces, as far as this process may."""
        facts = os.fstat(before)
        if (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
            for owner in ((facts.st_uid, facts.st_gid), (-1, facts.st_gid)):
                with suppress(PermissionError):
                    os.fchown(opened, *owner)
                    break
        if hasattr(os, "listxattr"):
            with suppress(OSError):
                for name in os.listxattr(before):
                    with suppress(OSError):
                        os.setxattr(opened, name, os.getxattr(before, name))

    def change_mode(self, opened: int, mode: int) -> None:
        os.fchmod(opened, mode)

    def sync(self, opened: int) -> None:
        os.fsync(opened)

    def close(self, opened: int) -> None:
        os.close(opened)


_loaded: list[Any] = []


def _libc() -> Any:
    """The C library, loaded with the first use: importing ctypes takes milliseconds."""
    if not _loaded:
        import ctypes

        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


SYSTEM = System()
