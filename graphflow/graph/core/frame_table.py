"""The table of a machine's frames: a plain dict while it is small, chunks once many branches are open.

Every tick works on a copy of the table. Copying ten thousand entries for each of ten thousand branches would
cost more than the branches do, so a large table copies only the chunk that it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

V = TypeVar("V")

CHUNK = 64
"""Entries of a chunk; numbers that follow each other share one."""
SMALL = 128
"""Entries up to which a plain dict is the faster table."""


class ChunkedTable(MutableMapping[int, V], Generic[V]):
    """A mapping from small integers whose copies share every chunk that neither has changed."""

    __slots__ = ("_chunks", "_own", "_size")

    def __init__(self, items: MutableMapping[int, V] | None = None) -> None:
        self._chunks: dict[int, dict[int, V]] = {}
        self._own: set[int] = set()
        self._size = 0
        for number, value in () if items is None else items.items():
            self._chunks.setdefault(number // CHUNK, {})[number] = value
        self._own.update(self._chunks)
        self._size = 0 if items is None else len(items)

    def copy(self) -> ChunkedTable[V]:
        """A table that may change without this one changing; this one must not change any more."""
        out: ChunkedTable[V] = ChunkedTable()
        out._chunks, out._size = dict(self._chunks), self._size
        return out

    def __getitem__(self, number: int) -> V:
        return self._chunks[number // CHUNK][number]

    def get(self, number: int, default: V | None = None) -> V | None:  # type: ignore[override]
        chunk = self._chunks.get(number // CHUNK)
        return default if chunk is None else chunk.get(number, default)

    def __setitem__(self, number: int, value: V) -> None:
        chunk = self._owned(number // CHUNK)
        if number not in chunk:
            self._size += 1
        chunk[number] = value

    def __delitem__(self, number: int) -> None:
        if number not in self:
            raise KeyError(number)
        place = number // CHUNK
        chunk = self._owned(place)
        del chunk[number]
        self._size -= 1
        if not chunk:
            del self._chunks[place]
            self._own.discard(place)

    def _owned(self, place: int) -> dict[int, V]:
        """The chunk, copied first if another table may hold it."""
        if place in self._own:
            return self._chunks[place]
        chunk = self._chunks[place] = dict(self._chunks.get(place, ()))
        self._own.add(place)
        return chunk

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._chunks.get(number // CHUNK, ())

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks.values():
            yield from chunk

    def values(self) -> Iterator[V]:  # type: ignore[override]
        """In one pass over the chunks: what `Mapping` has looks every number up."""
        for chunk in self._chunks.values():
            yield from chunk.values()

    def __len__(self) -> int:
        return self._size


def copied(table: MutableMapping[int, V]) -> MutableMapping[int, V]:
    """A copy to work on, of the kind that its size asks for."""
    if type(table) is dict:
        return table.copy() if len(table) <= SMALL else ChunkedTable(table)
    if len(table) <= SMALL // 4:
        return dict(table)
    assert isinstance(table, ChunkedTable)
    return table.copy()
