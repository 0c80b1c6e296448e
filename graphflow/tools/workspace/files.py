"""The file port: every tool opens, lists and writes files through a `Workspace`, by descriptor beneath its roots.

A path is resolved to its real components first (`resolving`), and then that path without links is opened from the root, by
`openat2` where the kernel has it, else component by component. What was opened must be what was looked at, by device and
inode; if somebody swapped it in between, the port looks again. So there is no moment at which a check and a use can differ.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from graphflow.tools.workspace.new_file import NewFile
from graphflow.tools.workspace.protected import Identity, ProtectedFiles, identity
from graphflow.tools.workspace.refusals import FileRefused, Swapped, missing, of_error, protected
from graphflow.tools.workspace.resolving import FoundPath, Resolver, Root, as_given, checked, real_root
from graphflow.tools.workspace.system import FOLDER, READ, SYSTEM, System
from graphflow.tools.workspace.walking import Walk

TRIES = 100
"""Looks at a path that somebody keeps swapping, before it is refused."""
MAX_ENTRIES = 100_000
_SWAPPED = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EAGAIN, errno.EISDIR, errno.ENXIO, errno.ESTALE}
)
"""What opening says of a path that was resolved a moment ago and is another one now."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A name in a folder."""

    name: str
    facts: os.stat_result
    """Of the entry itself, links not followed."""
    target: str | None = None
    """Where a link leads, as it is written."""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.facts.st_mode)


class Workspace:
    """Files beneath a folder, and beneath further ones.

    Paths are relative to the first folder, or absolute. Every method raises `FileRefused`, whose code is one of tool results.

    Args:
        root: the folder; must exist.
        further: other folders that paths may lead into.
        protected: files of the server that stay closed wherever the roots are.
        system: the calls of the operating system.
    """

    def __init__(
        self,
        root: Path,
        further: Sequence[Path] = (),
        *,
        protected: ProtectedFiles | None = None,
        system: System = SYSTEM,
    ) -> None:
        if sys.platform == "win32":
            raise FileRefused(
                "EXECUTION_ERROR", "tools that open files don't run on Windows: it has no way to open beneath a folder"
            )
        self.root = as_given(root)
        self.folders = (self.root, *(self.root / path.expanduser() for path in further))
        self.protected = protected or ProtectedFiles()
        self._system = system

    def find(self, path: str, *, follow_last: bool = True) -> FoundPath:
        """Where a path leads; `facts` is None for a name that is free."""
        return self._again(path, lambda: self._find(path, follow_last=follow_last))

    def stat(self, path: str) -> FileEntry:
        """The facts of a file or folder, links followed."""
        found = self.find(path)
        if found.facts is None:
            raise missing(path)
        return FileEntry(name=found.parts[-1] if found.parts else ".", facts=found.facts)

    def open(self, path: str) -> BinaryIO:
        """A regular file, for reading; anything else is refused at once and never waited for."""

        def opened() -> BinaryIO:
            found = self._find(path)
            self._check_regular(path, found)
            file = self._opened(path, found, READ)
            # The number of a removed file may be given to a pipe.
            if not stat.S_ISREG(self._system.facts_of(file).st_mode):
                self._system.close(file)
                raise Swapped
            return os.fdopen(file, "rb")

        return self._again(path, opened)

    def read(self, path: str, max_bytes: int) -> bytes:
        """The first bytes of a regular file."""
        with self.open(path) as file:
            try:
                return file.read(max_bytes)
            except OSError as error:  # a damaged disk, a file of the kernel
                raise of_error(path, error) from None

    def entries(self, path: str = ".", *, limit: int = MAX_ENTRIES) -> tuple[list[FileEntry], bool]:
        """The entries of a folder by name, protected ones left out, and whether there are more than `limit`."""

        def listed() -> tuple[list[FileEntry], bool]:
            found = self._find(path)
            if found.facts is None:
                raise missing(path)
            if not stat.S_ISDIR(found.facts.st_mode):
                raise of_error(path, OSError(errno.ENOTDIR, ""))
            folder = self._opened(path, found, FOLDER)
            try:
                names = self._system.names(folder, limit)
                return [entry for name in sorted(names[:limit]) for entry in self._entry(found, name, folder)], (
                    len(names) > limit
                )
            finally:
                self._system.close(folder)

        return self._again(path, listed)

    def walk(self, path: str = ".", **limits: Any) -> Walk:
        """A walk below a folder; `limits` are those of `Walk`."""

        def begun() -> Walk:
            found = self._find(path)
            if found.facts is None:
                raise missing(path)
            if not stat.S_ISDIR(found.facts.st_mode):
                raise of_error(path, OSError(errno.ENOTDIR, ""))
            self._system.close(self._opened(path, found, FOLDER))
            return Walk(self._system, found, self.protected, [each.real for each in self._roots()], **limits)

        return self._again(path, begun)

    def write(
        self,
        path: str,
        data: bytes | Iterable[bytes],
        *,
        replace: bool = True,
        mode: int = 0o644,
        expected: str | None = None,
    ) -> bool:
        """Writes a whole file, atomically and durably: others see the old or the new one. Whether it is a new one.

        A file that is replaced keeps its mode, its owner and its attributes; a link to a file stays, and the file that it
        leads to is replaced. One that has a second name or is read-only is not replaced.

        Args:
            path: of the file; its folder must exist.
            data: the content, or blocks of it; what the iterator raises leaves everything as it was.
            replace: False refuses a file that exists, as `CONFLICT`.
            mode: of a new file.
            expected: SHA-256 of the content that is replaced; other content is refused as `CONFLICT`.
        """
        return self._again(path, lambda: self._write(path, data, replace=replace, mode=mode, expected=expected))

    def make_folder(self, path: str, *, mode: int = 0o755) -> None:
        """Makes a folder and the missing ones above it; one that exists stays as it is."""
        names = [name for name in checked(path).split("/") if name not in ("", ".")]
        start = "/" if path.startswith("/") else ""
        for count in range(1, len(names) + 1):
            step = start + "/".join(names[:count])
            # What is above a root is there, and may not be looked at.
            if names[count - 1] != ".." and not (start and self._is_above(step)):
                self._again(step, lambda step=step: self._make_folder(step, mode))  # type: ignore[misc] # bound now

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, a link itself, or a folder; `recursive` with everything in it."""
        self._again(path, lambda: self._delete(path, recursive=recursive))

    # --- parts

    def _again(self, path: str, step: Callable[[], T]) -> T:
        for _ in range(TRIES):
            try:
                return step()
            except Swapped:
                continue
            except FileRefused:
                raise
            except OSError as error:
                raise of_error(path, error) from None
        raise FileRefused("CONFLICT", f"{path!r} is exchanged all the time")

    def _roots(self) -> list[Root]:
        # Resolved for each call: a link may have been changed since the last one.
        return [real_root(folder, self.protected) for folder in self.folders]

    def _find(self, path: str, *, follow_last: bool = True) -> FoundPath:
        roots = self._roots()
        with Resolver(self._system, roots, path, follow_last=follow_last) as resolver:
            found = resolver.resolve()
        facts = found.facts
        if (
            facts is not None
            and facts.st_nlink > 1
            and stat.S_ISREG(facts.st_mode)
            and self.protected.has_link_to(identity(facts), [root.real for root in roots])
        ):
            raise protected(path)
        return found

    def _opened(self, path: str, found: FoundPath, flags: int) -> int:
        """A descriptor of exactly what was found."""
        assert found.facts is not None
        return self._open_parts(path, found.root, found.parts, identity(found.facts), flags)

    def _open_parts(self, path: str, root: Root, parts: Sequence[str], expected: Identity, flags: int) -> int:
        system = self._system
        top = system.open_root(str(root.real))
        try:
            opened = system.open_parts(top, parts, flags)
        except OSError as error:
            if error.errno in _SWAPPED:
                raise Swapped from None
            raise of_error(path, error) from None
        finally:
            system.close(top)
        if identity(system.facts_of(opened)) != expected:
            system.close(opened)
            raise Swapped
        return opened

    @contextmanager
    def _folder_of(self, path: str, found: FoundPath) -> Iterator[int]:
        """The folder in which something found is, still as it was found."""
        if not found.parts:
            raise FileRefused("PERMISSION_DENIED", f"{path!r} is the workspace itself")
        if found.root.guard.is_authored(found.parts):
            raise FileRefused("ACCESS_DENIED", f"{path!r} says what agents may do, and this tool may not change that")
        folder = self._open_parts(path, found.root, found.parts[:-1], found.folder, FOLDER)
        try:
            self._check_same(found, folder)
            yield folder
        finally:
            self._system.close(folder)

    def _check_same(self, found: FoundPath, folder: int) -> None:
        try:
            now: os.stat_result | None = self._system.facts(found.parts[-1], folder)
        except FileNotFoundError:
            now = None
        if (now and identity(now)) != (found.facts and identity(found.facts)):
            raise Swapped

    def _check_regular(self, path: str, found: FoundPath) -> None:
        if found.facts is None:
            raise missing(path)
        if stat.S_ISDIR(found.facts.st_mode):
            raise of_error(path, OSError(errno.EISDIR, ""))
        if not stat.S_ISREG(found.facts.st_mode):
            raise FileRefused("INVALID_PARAM", f"{path!r} is not a regular file")

    def _entry(self, found: FoundPath, name: str, folder: int) -> Iterator[FileEntry]:
        """The entry of a listing, or nothing for one that is protected or gone."""
        guard = found.root.guard
        if guard.covers((*found.parts, name)):
            return
        with suppress(OSError):
            facts = self._system.facts(name, folder)
            if not guard.knows(facts):
                target = self._system.link_target(name, folder) if stat.S_ISLNK(facts.st_mode) else None
                yield FileEntry(name=name, facts=facts, target=target)

    def _write(
        self, path: str, data: bytes | Iterable[bytes], *, replace: bool, mode: int, expected: str | None
    ) -> bool:
        found = self._find(path)
        if found.facts is not None:
            self._check_regular(path, found)
            if not replace:
                raise of_error(path, OSError(errno.EEXIST, ""))
            if found.facts.st_nlink > 1:
                raise FileRefused("ACCESS_DENIED", f"{path!r} has a second name (a hard link), perhaps outside")
            mode = stat.S_IMODE(found.facts.st_mode)
        elif expected is not None:
            raise missing(path)
        with self._folder_of(path, found) as folder:
            name = found.parts[-1]
            if found.facts is not None and not self._system.may_write(name, folder):
                raise of_error(path, OSError(errno.EPERM, ""))
            new = NewFile(self._system, folder, name, old=found.facts, mode=mode)
            new.put(path, data, replace=replace, expected=expected)
        return found.facts is None

    def _is_above(self, step: str) -> bool:
        return any(Path(step) in folder.parents for root in self._roots() for folder in (root.given, root.real))

    def _make_folder(self, path: str, mode: int) -> None:
        found = self._find(path)
        if found.facts is not None:
            if not stat.S_ISDIR(found.facts.st_mode):
                raise of_error(path, OSError(errno.EEXIST, ""))
            return
        with self._folder_of(path, found) as folder:
            try:
                self._system.make_folder(found.parts[-1], folder, mode)
            except FileExistsError:
                raise Swapped from None

    def _delete(self, path: str, *, recursive: bool) -> None:
        found = self._find(path, follow_last=False)
        if found.facts is None:
            raise missing(path)
        with self._folder_of(path, found) as folder:
            self._remove(path, found.root, found.parts, folder, found.facts, recursive=recursive)

    def _remove(
        self, path: str, root: Root, parts: tuple[str, ...], folder: int, facts: os.stat_result, *, recursive: bool
    ) -> None:
        system, name = self._system, parts[-1]
        if not stat.S_ISDIR(facts.st_mode):
            system.remove(name, folder)
            return
        if recursive:
            inside = system.open(name, FOLDER, folder)
            try:
                below = [(each, system.facts(each, inside)) for each in system.names(inside, sys.maxsize)]
                # Nothing is removed from a folder that holds a protected file.
                if any(root.guard.covers((*parts, each)) or root.guard.knows(its) for each, its in below):
                    raise protected(path)
                for each, its in below:
                    self._remove(path, root, (*parts, each), inside, its, recursive=True)
            finally:
                system.close(inside)
        system.remove_folder(name, folder)
