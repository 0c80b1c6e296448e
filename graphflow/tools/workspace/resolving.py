"""Where a path leads: its real components below a root, found by descriptor, one component after the other.

No link is ever followed by the kernel: the resolver reads each link and goes on with its text, so what it looks at is below
the root whatever others swap meanwhile. `..` goes back to a folder that is still open. Each folder and the last entry are
compared with the protected files by name, place and identity.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from graphflow.excerpts import excerpt_of
from graphflow.tools.workspace.protected import Guard, Identity, ProtectedFiles, identity
from graphflow.tools.workspace.refusals import FileRefused, Swapped, missing, of_error, outside, protected
from graphflow.tools.workspace.system import PASS, System

MAX_LINKS = 40
MAX_BYTES = 4_096
MAX_NAME = 255
_SAME = frozenset({"", "."})


@dataclass(frozen=True, kw_only=True)
class Root:
    """A folder that paths may lead into."""

    given: Path
    """As the settings name it, absolute; links and clients may use this name too."""
    real: Path
    guard: Guard


@dataclass(frozen=True, kw_only=True)
class FoundPath:
    """Where a path leads."""

    root: Root
    parts: tuple[str, ...]
    """Real names below the root, no link among them; empty for the root itself."""
    facts: os.stat_result | None
    """None: nothing is there, but its folder is."""
    folder: Identity
    """The folder that the last part is in; of the root itself the root."""

    @property
    def path(self) -> Path:
        return self.root.real.joinpath(*self.parts)


def checked(path: object) -> str:
    """The path, taken literally.

    Raises:
        FileRefused: it is no path.
    """
    if not isinstance(path, str) or not path:
        raise FileRefused("INVALID_PARAM", f"{excerpt_of(path)} is not a path: a path is a text that is not empty")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise FileRefused("INVALID_PARAM", f"{excerpt_of(path)} is not a path: it holds half a character") from None
    if b"\0" in encoded:
        raise FileRefused("INVALID_PARAM", f"{excerpt_of(path)} is not a path: it holds a NUL byte")
    if len(encoded) > MAX_BYTES or any(len(name) > MAX_NAME for name in encoded.split(b"/")):
        rule = f"a path has at most {MAX_BYTES} bytes, each name in it {MAX_NAME}"
        raise FileRefused("INVALID_PARAM", f"{excerpt_of(path)}… is not a path: {rule}")
    return path


def as_given(folder: Path) -> Path:
    """The absolute path, its links kept."""
    return Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100 - `resolve` follows links


def real_root(given: Path, protected_files: ProtectedFiles) -> Root:
    """A root as it is now."""
    full = as_given(given)
    real = full.resolve()
    return Root(given=full, real=real, guard=protected_files.guard(real))


class Resolver:
    """One resolution; a context manager that closes every descriptor it opened."""

    def __init__(self, system: System, roots: Sequence[Root], path: str, *, follow_last: bool = True) -> None:
        self._system, self._roots, self._path, self._follow_last = system, roots, path, follow_last
        self._root = roots[0]
        self._open: list[int] = []
        self._parts: list[str] = []
        self._links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def resolve(self) -> FoundPath:
        """Where the path leads.

        Raises:
            FileRefused: outside, protected, missing or no path.
            Swapped: an entry was exchanged between two looks at it.
        """
        names = checked(self._path).split("/")
        remaining = self._absolute(names) if self._path.startswith("/") else self._start(self._root, names)
        while remaining:
            name = remaining.popleft()
            if name in _SAME:
                continue
            if name == "..":
                remaining = self._up(remaining)
                continue
            remaining, found = self._step(name, remaining)
            if found is not None:
                return found
        facts = self._system.facts_of(self._open[-1])
        return FoundPath(root=self._root, parts=tuple(self._parts), facts=facts, folder=identity(facts))

    def _start(self, root: Root, names: Sequence[str]) -> deque[str]:
        self._close()
        self._root, self._parts = root, []
        if root.guard.covers_root():
            raise protected(self._path)
        try:
            self._open.append(self._system.open_root(str(root.real)))
        except OSError as error:
            raise of_error(str(root.given), error) from None
        return deque(names)

    def _absolute(self, names: Sequence[str], roots: Sequence[Root] | None = None) -> deque[str]:
        """Enters the root that an absolute path leads to, and returns what is left of the path."""
        above: list[str] = []
        for index, name in enumerate(["", *names]):
            if name == "..":
                above = above[:-1]
            elif name not in _SAME:
                above.append(name)
            for root in self._roots if roots is None else roots:
                if tuple(above) in (root.given.parts[1:], root.real.parts[1:]):
                    return self._start(root, names[index:])
        raise outside(self._path)

    def _up(self, remaining: deque[str]) -> deque[str]:
        if self._parts:
            self._parts.pop()
            self._system.close(self._open.pop())
            return remaining
        # Another root may be above or beside this one; who leaves a root and comes back is refused, as by `openat2`.
        others = [root for root in self._roots if root is not self._root]
        return self._absolute([*self._root.real.parent.parts[1:], *remaining], others)

    def _step(self, name: str, remaining: deque[str]) -> tuple[deque[str], FoundPath | None]:
        """Goes to one entry of the folder reached so far; the last one is the end."""
        folder, parts = self._open[-1], (*self._parts, name)
        last = not remaining
        # By name, before anything is looked at: the answer must not depend on whether it exists.
        if self._root.guard.covers(parts):
            raise protected(self._path)
        try:
            target = self._link(name, folder) if self._follow_last or not last else None
            facts = None if target is not None else self._system.facts(name, folder)
        except FileNotFoundError:
            if all(each in _SAME for each in remaining):
                at = identity(self._system.facts_of(folder))
                return remaining, FoundPath(root=self._root, parts=parts, facts=None, folder=at)
            raise missing(self._path) from None
        except OSError as error:
            raise of_error(self._path, error) from None
        if target is not None:
            return self._linked(target, remaining), None
        assert facts is not None
        if self._root.guard.knows(facts):
            raise protected(self._path)
        if last:
            # What was no link a moment ago is one now.
            if self._follow_last and stat.S_ISLNK(facts.st_mode):
                raise Swapped
            at = identity(self._system.facts_of(folder))
            return remaining, FoundPath(root=self._root, parts=parts, facts=facts, folder=at)
        self._enter(name, folder, facts)
        return remaining, None

    def _link(self, name: str, folder: int) -> str | None:
        try:
            return self._system.link_target(name, folder)
        except OSError as error:
            if error.errno == errno.EINVAL:  # not a link
                return None
            raise

    def _linked(self, target: str, remaining: deque[str]) -> deque[str]:
        self._links += 1
        if self._links > MAX_LINKS:
            raise of_error(self._path, OSError(errno.ELOOP, ""))
        names = target.split("/")
        if target.startswith("/"):
            return self._absolute([*names, *remaining])
        remaining.extendleft(reversed(names))
        return remaining

    def _enter(self, name: str, folder: int, facts: os.stat_result) -> None:
        if not stat.S_ISDIR(facts.st_mode):
            if stat.S_ISLNK(facts.st_mode):
                raise Swapped
            raise of_error(self._path, OSError(errno.ENOTDIR, ""))
        try:
            opened = self._system.open(name, PASS, folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise Swapped from None
            raise of_error(self._path, error) from None
        self._open.append(opened)
        self._parts.append(name)
        if identity(self._system.facts_of(opened)) != identity(facts):
            raise Swapped

    def _close(self) -> None:
        while self._open:
            self._system.close(self._open.pop())
