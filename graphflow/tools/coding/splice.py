"""Exact replacement in a text whose line ends stay as they are, each at its place."""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

SHOWN = 3
LOOKED_AT = 2_000
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")


@dataclass(frozen=True)
class Splice:
    """One replacement, by offsets in the text with one character for every line end."""

    start: int
    end: int
    text: str


class SplicedText:
    """A text that is searched with one character for every line end.

    Args:
        text: as the file has it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.plain = text.replace("\r\n", "\n")

    @cached_property
    def _breaks(self) -> Sequence[int]:
        """Offsets of those newlines that are two characters in the file."""
        if len(self.plain) == len(self._text):
            return []
        return [found.start() - index for index, found in enumerate(re.finditer("\r\n", self._text))]

    def places(self, old: str) -> Iterator[int]:
        """Where a plain text occurs, from left to right, without overlaps."""
        at = self.plain.find(old)
        while at >= 0:
            yield at
            at = self.plain.find(old, at + len(old))

    def replaced(self, splices: Iterable[Splice]) -> str:
        """The text of the file after these replacements, which do not overlap and come in order."""
        out: list[str] = []
        done = 0
        for splice in splices:
            start, end = self._offset(splice.start), self._offset(splice.end)
            text = splice.text
            if "\n" in text and self._breaks and self._is_long(splice.start, splice.end):
                text = text.replace("\n", "\r\n")
            out += [self._text[done:start], text]
            done = end
        out.append(self._text[done:])
        return "".join(out)

    def _offset(self, plain: int) -> int:
        return plain + (bisect_left(self._breaks, plain) if self._breaks else 0)

    def _is_long(self, start: int, end: int) -> bool:
        """Whether lines end with two characters here: those replaced, else the next one, else the one before."""
        at = self.plain.find("\n", start)
        if at < 0:
            at = self.plain.rfind("\n", 0, start)
        found = bisect_left(self._breaks, at)
        return found < len(self._breaks) and self._breaks[found] == at


def splice_of(at: int, old: str, new: str) -> Splice:
    """The replacement of a text at an offset, without what both have in common: its line ends stay."""
    most = min(len(old), len(new))
    same = next((i for i in range(most) if old[i] != new[i]), most)
    most -= same
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    return Splice(at + same, at + len(old) - tail, new[same : len(new) - tail])


def nearest_lines(text: str, wanted: str) -> list[str]:
    """Lines that may be meant by one that does not occur, with their numbers."""
    line = next((each for each in wanted.split("\n") if each.strip()), wanted)
    lines = text.split("\n")
    simple = _simplified(line)
    same = [n for n, each in enumerate(lines) if len(each) < 2_000 and _simplified(each) == simple][:SHOWN]
    if not same:
        near = difflib.get_close_matches(line[:300], [each[:300] for each in lines[:LOOKED_AT]], n=SHOWN)
        same = [n for n, each in enumerate(lines[:LOOKED_AT]) if each[:300] in near][:SHOWN]
    return [f"{n + 1:4d} | {lines[n][:200]}" for n in same]


def _simplified(line: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", line).translate(_QUOTES).split())
