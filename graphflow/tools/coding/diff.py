"""A short view of what a change does: a unified diff whose cost is bounded by what changes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LINES, MAX_BYTES = 100, 10_240
CONTEXT = 3
COMPARED = 2_000
"""Changed lines up to which single lines are matched with each other."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A diff as far as it is shown."""

    text: str
    truncated: bool
    added: int
    removed: int


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with: by halves, each compared as a whole."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def preview(old: str, new: str) -> Preview:
    """The difference of two texts."""
    before, after = old.split("\n"), new.split("\n")
    # Only what is between the lines that both begin and end with is compared.
    most = min(len(before), len(after))
    top = _common(before, after)
    end = min(_common(before[::-1], after[::-1]), most - top)
    gone, come = before[top : len(before) - end], after[top : len(after) - end]
    if max(len(gone), len(come)) <= COMPARED:
        first = max(0, top - CONTEXT)
        tail = before[len(before) - end :][:CONTEXT]
        lead = before[first:top]
        lines = list(difflib.unified_diff([*lead, *gone, *tail], [*lead, *come, *tail], n=CONTEXT, lineterm=""))[2:]
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        if lines and first:
            lines.insert(0, f"# from line {first + 1}")
    else:
        lines = [f"# from line {top + 1}", *(f"-{line}" for line in gone), *(f"+{line}" for line in come)]
        added, removed = len(come), len(gone)
    shown = "\n".join(lines[:MAX_LINES])
    data = shown.encode("utf-8", "replace")
    cut = len(lines) > MAX_LINES or len(data) > MAX_BYTES
    return Preview(text=data[:MAX_BYTES].decode("utf-8", "ignore"), truncated=cut, added=added, removed=removed)
