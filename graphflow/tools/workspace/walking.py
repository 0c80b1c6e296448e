"""A walk below a folder of a workspace: every folder and file is opened by handle beneath the root, and no link is followed.

What is protected is in no listing, and can't be opened. A folder that somebody exchanges for a link meanwhile is left out.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, Self

from graphflow.tools.workspace.protected import FIRST_LETTERS, Identity, ProtectedFiles, identity, is_protected_name
from graphflow.tools.workspace.resolving import FoundPath
from graphflow.tools.workspace.system import FOLDER, PASS, READ, System

Aborted = Literal["count_limit", "time_limit"]
_AT_ONCE = 1_024
"""Entries between two looks at the clock."""


@dataclass(kw_only=True, slots=True)
class FolderListing:
    """The names in one folder, by kind, in no order; a link is none of the others."""

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Pipes, sockets and devices."""


class Walk:
    """One walk; a context manager that closes its handle. Paths are relative to the root that the start is in.

    Args:
        system: the calls of the operating system.
        start: the folder that it begins in.
        protected: what stays closed.
        roots: the real roots of the workspace.
        max_entries: entries that are looked at.
        max_s: seconds from now.
        clock: a monotonic clock.
    """

    def __init__(
        self,
        system: System,
        start: FoundPath,
        protected: ProtectedFiles,
        roots: Sequence[Path],
        *,
        max_entries: int = 200_000,
        max_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root, self.start = start.root, "/".join(start.parts)
        self.visited, self.skipped = 0, 0
        """Entries that were looked at, and folders that could not be."""
        self.aborted: Aborted | None = None
        """Which limit ended it."""
        self._system, self._guard, self._protected, self._roots = system, start.root.guard, protected, roots
        self._max_entries, self._until, self._clock = max_entries, clock() + max_s, clock
        self._inodes = frozenset(inode for _, inode in self._guard.identities)
        self._allowed: dict[str, bool] = {}
        self._linked: frozenset[Identity] | None = None
        self._top = -1

    def __enter__(self) -> Self:
        self._top = self._system.open_root(str(self.root.real))
        return self

    def __exit__(self, *_: object) -> None:
        self._system.close(self._top)

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached."""
        if self.aborted is None and self._clock() > self._until:
            self.aborted = "time_limit"
        return self.aborted is not None

    def stop(self) -> None:
        """Ends the walk early, from any thread."""
        self._until = float("-inf")

    def listing(self, folder: str) -> FolderListing | None:
        """What is in a folder; None for one that is gone, no folder any more, protected, or closed to the server's user.

        Args:
            folder: empty for the root.
        """
        opened = self._open_folder(folder, FOLDER)
        if opened is None:
            return None
        try:
            return self._listed(opened, folder)
        except OSError:  # a damaged disk
            self.skipped += 1
            return None
        finally:
            self._system.close(opened)

    def open(self, path: str) -> tuple[int, os.stat_result] | None:
        """A descriptor of a regular file and its facts, which the caller closes; None for whatever may not be read."""
        folder = path.rpartition("/")[0]
        if not self._is_allowed(folder) or self._guard.covers(tuple(path.split("/"))):
            return None
        try:
            opened = self._system.open_parts(self._top, path.split("/"), READ)
        except OSError:
            return None
        with suppress(OSError):
            facts = self._system.facts_of(opened)
            if stat.S_ISREG(facts.st_mode) and not self._guard.knows(facts) and not self._is_linked(facts):
                return opened, facts
        self._system.close(opened)
        return None

    def facts(self, path: str) -> os.stat_result | None:
        """The facts of a regular file that `open` would open, as far as its name says; for many files."""
        folder = path.rpartition("/")[0]
        if not self._is_allowed(folder) or self._guard.covers(tuple(path.split("/"))):
            return None
        try:
            facts = self._system.facts(path, self._top)
        except OSError:
            return None
        if not stat.S_ISREG(facts.st_mode) or self._guard.knows(facts) or self._is_linked(facts):
            return None
        return facts

    def start_handle(self) -> int | None:
        """A descriptor of the folder where the walk starts, which the caller closes."""
        return self._open_folder(self.start, FOLDER)

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """The first bytes of a regular file; None for whatever may not be read."""
        found = self.open(path)
        if found is None:
            return None
        blocks: list[bytes] = []
        left = max_bytes
        try:
            while left > 0 and (block := os.read(found[0], min(left, 1 << 20))):
                blocks.append(block)
                left -= len(block)
        except OSError:
            return None
        finally:
            self._system.close(found[0])
        return b"".join(blocks)

    # --- parts

    def _listed(self, opened: int, folder: str) -> FolderListing:
        listing = FolderListing()
        closed = self._guard.names_below(folder.split("/") if folder else ())
        with self._system.entries(opened) as entries:
            while not self.is_over:
                room = self._max_entries - self.visited
                some = list(islice(entries, min(_AT_ONCE, room + 1)))
                self.aborted = "count_limit" if len(some) > room else None
                self._sort_in(some[:room], listing, *closed)
                self.visited += len(some[:room])
                if not some:
                    break
        return listing

    def _sort_in(
        self,
        entries: list[os.DirEntry[str]],
        listing: FolderListing,
        names: frozenset[str],
        beginnings: tuple[str, ...],
    ) -> None:
        # The inner loop of every search: most entries pass four comparisons.
        first, inodes, add = FIRST_LETTERS if self._guard.names else "", self._inodes, listing.files.append
        for entry in entries:
            name = entry.name
            if (
                (name[0] in first and is_protected_name(name))
                or (names and name in names)
                or (beginnings and name.startswith(beginnings))
                or (entry.inode() in inodes and self._knows(entry))
            ):
                continue
            if entry.is_file(follow_symlinks=False):
                add(name)
            elif entry.is_dir(follow_symlinks=False):
                listing.folders.append(name)
            elif entry.is_symlink():
                listing.links.append(name)
            else:
                listing.others.append(name)

    def _knows(self, entry: os.DirEntry[str]) -> bool:
        try:
            return self._guard.knows(entry.stat(follow_symlinks=False))
        except OSError:  # gone
            return True

    def _open_folder(self, folder: str, flags: int) -> int | None:
        try:
            opened = self._system.open_parts(self._top, folder.split("/") if folder else (), flags)
        except OSError:
            self.skipped += 1
            return None
        try:
            if not self._guard.knows(self._system.facts_of(opened)):
                return opened
        except OSError:
            pass
        self._system.close(opened)
        return None

    def _is_allowed(self, folder: str) -> bool:
        """Whether a folder and all above it are open to tools."""
        known = self._allowed.get(folder)
        if known is None:
            known = self._looked_at(folder)
            self._allowed[folder] = known
        return known

    def _looked_at(self, folder: str) -> bool:
        if folder:
            above = folder.rpartition("/")[0]
            if not self._is_allowed(above) or self._guard.covers(tuple(folder.split("/"))):
                return False
        opened = self._open_folder(folder, PASS)
        if opened is None:
            return False
        self._system.close(opened)
        return True

    def _is_linked(self, facts: os.stat_result) -> bool:
        """Whether a file has one more name, which is protected."""
        if facts.st_nlink < 2:
            return False
        if self._linked is None:
            self._linked = frozenset(self._protected.linked(self._roots))
        return identity(facts) in self._linked
