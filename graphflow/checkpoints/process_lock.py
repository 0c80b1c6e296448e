"""Owners: who drives a thread, and whether that process still lives (E2).

An owner is `host/boot id/uuid`. Beside an embedded store lies a folder `<store>.owners` with one file per
owner, on which the owner holds an OS lock. The kernel drops the lock when the process ends, however it ends,
so another process of the same host need not wait for the lease to run out. Where there are no such locks
(Windows, another host) the lease alone decides.
"""

from __future__ import annotations

import os
import socket
import uuid
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from graphflow.private_files import make_private_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: leases only
    fcntl = None


@cache
def this_host() -> str:
    """`host/boot id`: the same for all processes until the machine starts anew."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname().replace('/', '_')}/{boot or '-'}"


def new_owner() -> str:
    """A fresh owner id of this process."""
    return f"{this_host()}/{uuid.uuid4()}"


class OwnerLock:
    """One owner and its OS lock, which is gone when this process is.

    A forked child gets neither the lock nor the owner: `forked` is set there.
    """

    def __init__(self, folder: Path, *, mark: str = "") -> None:
        self.folder = folder
        host, _, boot = this_host().partition("/")
        self._host = f"{host}{mark and '.'}{mark}/{boot}"
        """With what tells its folder from the same path elsewhere, where two stores with the same path are not the same."""
        self.id = f"{self._host}/{uuid.uuid4()}"
        self.forked = False
        self._handle: int | None = None
        _locks.add(self)

    def acquire(self) -> None:
        """Takes the OS lock; calling it again has no effect. Sweeps away what dead owners left."""
        if self._handle is not None or fcntl is None:
            return
        path = self.folder / self.id.rpartition("/")[2]
        while self._handle is None:
            make_private_folder(self.folder)
            try:
                handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the last one out removed the folder just now
                continue
            # The kernel keeps this lock for the process, whose end gives it back, kill -9 included. A file with a pid
            # could not tell a new process of the same pid from the old one.
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                self._handle = handle
            else:  # another process swept the file between its making and its locking
                os.close(handle)
        for other in self.folder.iterdir():
            _sweep(other)

    def touch(self) -> None:
        """Keeps the lock's file young where a system sweeps old files away."""
        if self._handle is not None:
            with suppress(OSError):
                os.utime(self._handle)

    def release(self) -> None:
        """Gives the lock back and removes the file."""
        if self._handle is None:
            return
        # Removed before the lock is given back: a file without its lock means a dead owner.
        with suppress(OSError):
            (self.folder / self.id.rpartition("/")[2]).unlink()
        os.close(self._handle)
        self._handle = None
        with suppress(OSError):  # the last one out removes the folder
            self.folder.rmdir()

    def is_dead(self, owner: str) -> bool:
        """Whether this owner's process is surely gone; False when that can't be known."""
        # A lock file says nothing about other hosts or other stores, and this object itself is alive.
        host, _, name = owner.rpartition("/")
        if fcntl is None or host != self._host or owner == self.id or not _is_uuid(name):
            return False
        return _sweep(self.folder / name)

    def after_fork(self) -> None:
        """In the child: drops the inherited handle, so that the lock ends with the parent."""
        self.forked = True
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_locks: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


def _forget_locks() -> None:
    for lock in list(_locks):
        lock.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def _is_uuid(name: str) -> bool:
    # The name becomes a path, so nothing else may pass.
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _sweep(path: Path) -> bool:
    """Removes the file of a dead owner; True when it was dead or already gone."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        # Shared: two who look at once must not take each other for the owner, who alone holds it for itself.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        with suppress(OSError):
            path.unlink()
        return True
    finally:
        os.close(handle)
