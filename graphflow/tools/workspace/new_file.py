"""A file that takes a name at once: written beside it under a passing name, made durable, then put in its place.

A writer holds a lock on its file while it has a passing name. A file with such a name and without a lock is what a dead
process left; the next writer in the folder removes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress

from graphflow.tools.workspace.protected import identity
from graphflow.tools.workspace.refusals import FileRefused, Swapped, missing, of_error
from graphflow.tools.workspace.system import CREATE, READ, System

_PART = re.compile(r"\.graphflow-[0-9a-f]{16}\.part")
MAX_LOOKED_AT = 10_000
"""Entries of a folder among which leftovers are looked for."""
BLOCK_BYTES = 1024 * 1024


class NewFile:
    """The next content of a name in a folder.

    Args:
        system: the operating system.
        folder: descriptor of the folder.
        name: the name that it takes.
        old: facts of the file that has the name now; None for a free one.
        mode: of the new file.
    """

    def __init__(self, system: System, folder: int, name: str, *, old: os.stat_result | None, mode: int) -> None:
        self._system, self._folder, self._name, self._old, self._mode = system, folder, name, old, mode

    def put(self, path: str, data: bytes | Iterable[bytes], *, replace: bool, expected: str | None) -> None:
        """Writes the data and puts it in place; whatever is raised leaves everything as it was.

        Args:
            path: for messages.
            data: the content, or blocks of it.
            replace: False takes a free name only.
            expected: SHA-256 of what is replaced.

        Raises:
            FileRefused: `CONFLICT`, other content is there now.
        """
        system, folder = self._system, self._folder
        self._remove_leftovers()
        part = f".graphflow-{os.urandom(8).hex()}.part"
        file = system.open(part, CREATE, folder, 0o600)
        try:
            try:
                if not system.lock(file):
                    raise Swapped  # taken for a leftover, before it was locked
                for block in (data,) if isinstance(data, bytes) else data:
                    _write_all(file, block)
                if self._old is not None:
                    self._take_after(file)
                # After the owner: a change of owner takes the set-id bits away.
                system.change_mode(file, self._mode)
                system.sync(file)
                if expected is not None:
                    self._check_content(path, expected)
                # A rename replaces the name and follows nothing.
                if replace:
                    system.rename(part, self._name, folder)
                else:
                    system.link(part, self._name, folder)
                    system.remove(part, folder)
            finally:
                system.close(file)
        except BaseException:
            with suppress(OSError):
                system.remove(part, folder)
            raise
        system.sync(folder)

    def _take_after(self, file: int) -> None:
        with suppress(PermissionError):  # it may be written and not read: then nothing of it is known
            before = self._system.open(self._name, READ, self._folder)
            try:
                self._system.take_after(file, before)
            finally:
                self._system.close(before)

    def _check_content(self, path: str, expected: str) -> None:
        """Compares right before the swap: a block of data may have taken long to come."""
        assert self._old is not None
        try:
            now = self._system.open(self._name, READ, self._folder)
        except FileNotFoundError:
            raise missing(path) from None
        except OSError as error:
            raise (Swapped() if error.errno in (errno.ELOOP, errno.ENXIO) else of_error(path, error)) from None
        try:
            facts = self._system.facts_of(now)
            if not stat.S_ISREG(facts.st_mode):
                raise Swapped
            if facts.st_nlink > 1:
                raise FileRefused("ACCESS_DENIED", f"{path!r} has a second name (a hard link), perhaps outside")
            if _digest_of(now) != expected:
                raise FileRefused("CONFLICT", f"{path!r} has changed since it was read")
            if identity(facts) != identity(self._old) or facts.st_ctime_ns != self._old.st_ctime_ns:
                raise Swapped  # the same content with another mode or owner: what is kept is looked up again
        finally:
            self._system.close(now)

    def _remove_leftovers(self) -> None:
        system, folder = self._system, self._folder
        for name in filter(_PART.fullmatch, system.names(folder, MAX_LOOKED_AT)):
            with suppress(OSError):
                left = system.open(name, READ, folder)
                try:
                    if stat.S_ISREG(system.facts_of(left).st_mode) and system.lock(left):
                        system.remove(name, folder)
                finally:
                    system.close(left)


def _digest_of(file: int) -> str:
    digest, at = hashlib.sha256(), 0
    while block := os.pread(file, BLOCK_BYTES, at):
        digest.update(block)
        at += len(block)
    return digest.hexdigest()


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
