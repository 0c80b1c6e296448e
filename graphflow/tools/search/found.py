"""What a search for lines asks and finds, whichever engine it runs on."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from graphflow.tools.search.file_walk import Looked

KEPT_FILES = 4_096
"""Files that are remembered before those that can't be shown are dropped."""


@dataclass(frozen=True, kw_only=True)
class LineQuery:
    """Which lines are searched."""

    text: str
    """The expression, or the text itself."""
    literal: bool = False
    case_sensitive: bool = False
    looked: Looked = Looked()
    include: str | None = None
    """A pattern of names that `looked` contains already, if it is a plain one; it spares ripgrep the other files."""
    lines_of_a_file: int | None = None
    """The most that are looked for in each file; None: all."""
    most_lines: int = 100
    """Lines that are remembered, those of the newest files first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundLine:
    """A line that fits."""

    number: int
    mark: int
    """Of its text, by which it is known again when it is read for the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundFile:
    """A file with lines that fit."""

    path: str
    """Relative to the root."""
    mtime_ns: int
    count: int
    """Of lines, as far as they were looked for."""
    lines: tuple[FoundLine, ...]

    @property
    def order(self) -> tuple[int, str]:
        """Newest first, then by path."""
        return -self.mtime_ns, self.path


@dataclass(kw_only=True)
class FoundLines:
    """The outcome of a search, bounded however much fits."""

    most_lines: int
    matched_files: int = 0
    matched_lines: int = 0
    stopped: bool = False
    """Whether the time was over before all files were searched."""
    confined: bool = True
    """Whether nothing outside can have been searched, so that the numbers tell nothing of it."""
    unreadable: int = 0
    """Files that could not be read."""
    too_long: int = 0
    """Lines that are too long to look at."""
    _files: list[FoundFile] = field(default_factory=list)

    def add(self, file: FoundFile) -> None:
        """Adds a file, each once."""
        self.matched_files += 1
        self.matched_lines += file.count
        self._files.append(file)
        if len(self._files) >= KEPT_FILES:
            self._files = self._newest()

    @property
    def files(self) -> list[FoundFile]:
        """Those with the lines that can be shown, in their order."""
        return self._newest()

    def _newest(self) -> list[FoundFile]:
        return heapq.nsmallest(self.most_lines, self._files, key=lambda file: file.order)


def mark_of(text: str) -> int:
    """The mark of a line, without its end."""
    return hash(text.rstrip("\r\n"))
