"""The sizes of values that are written to the state, and their bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from graphflow.errors import LimitExceeded
from graphflow.value_size import FIXED, size_of


class WrittenSizes:
    """Measures what is written; raises `LimitExceeded` for a value that is larger than the bound."""

    __slots__ = ("_most", "short")

    def __init__(self, value_bytes: int) -> None:
        self._most = value_bytes
        self.short = value_bytes // 4
        """A text of so many characters fits, whatever they are."""

    def value(self, key: str, value: Any) -> int:
        most = self._most
        size = size_of(value, most)
        if size > most:
            raise LimitExceeded(
                "value_bytes", most, f"what is written to state key {key!r} has more than {most:,} bytes"
            )
        return size

    def items(self, key: str, items: Collection[Any]) -> int:
        """Each item is a value of its own."""
        size = 8 * len(items)
        for item in items:
            kind = type(item)
            if kind is str and len(item) <= self.short:
                size += len(item)
            elif kind not in FIXED:
                size += self.value(key, item)
        return size

    def entries(self, key: str, entries: Iterable[tuple[Any, ...]]) -> int:
        """As `items`, of entries of a log."""
        size = 0
        for entry in entries:
            if entry[0] == "*":
                size += self.items(key, entry[1])
            else:  # of one that removes an item this is its position
                size += 8 + self.value(key, entry[-1])
        return size
