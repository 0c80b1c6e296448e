"""A long-term store without a file, for tests of agents and as the shortest one that keeps the promises of the port."""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.graph.engine.ports import Clock
from graphflow.memory.store import MemoryItem, Namespace, check_page, checked, checked_namespace, encoded, expiry
from graphflow.memory.text_normalization import folded_texts, words_of


class InMemoryStore:
    """A `Store` in the memory of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: dict[tuple[Namespace, str], tuple[bytes, MemoryItem, str]] = {}
        """Place → the value's JSON, the item without it, its normalized text for the search."""

    async def put(self, namespace: Namespace, key: str, value: Any, *, ttl_s: float | None = None) -> None:
        place = checked(namespace, key)
        now = self._clock.now_ms()
        before = await self.get(*place)
        item = MemoryItem(
            namespace=place[0],
            key=key,
            value=None,
            created_at=now if before is None else before.created_at,
            updated_at=now,
            expires_at=expiry(now, ttl_s),
        )
        data = encoded(value)
        self._items.pop(place, None)  # the order of writing decides between equal times
        self._items[place] = (data, item, folded_texts(key, msgspec.json.decode(data)))

    async def get(self, namespace: Namespace, key: str) -> MemoryItem | None:
        found = self._items.get(checked(namespace, key))
        return None if found is None or self._is_over(found[1]) else _with_value(found)

    async def search(
        self, namespace: Namespace = (), *, query: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[MemoryItem]:
        namespace = checked_namespace(namespace)
        check_page(limit, offset)
        words = words_of(query or "")
        found = [
            entry
            for (where, _), entry in reversed(self._items.items())
            if where[: len(namespace)] == namespace
            and not self._is_over(entry[1])
            and all(word in entry[2] for word in words)
        ]
        found.sort(key=lambda entry: (-entry[1].updated_at, entry[1].namespace, entry[1].key))
        return [_with_value(entry) for entry in found[offset : offset + limit]]

    async def delete(self, namespace: Namespace, key: str) -> bool:
        found = self._items.pop(checked(namespace, key), None)
        return found is not None and not self._is_over(found[1])

    async def close(self) -> None:
        """Nothing is open."""

    def _is_over(self, item: MemoryItem) -> bool:
        return item.expires_at is not None and item.expires_at <= self._clock.now_ms()


def _with_value(entry: tuple[bytes, MemoryItem, str]) -> MemoryItem:
    # Decoded for each reader: a caller that changes its value must not change the stored one.
    return msgspec.structs.replace(entry[1], value=msgspec.json.decode(entry[0]))
