"""The long-term store: values under keys in namespaces, across threads (spec 5.3).

Nodes reach it as `ctx.store`. All stores keep the same promises; `graphflow.testing.store_conformance` states them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from graphflow.errors import GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.memory.text_normalization import folded_texts, patterns_of, words_of

if TYPE_CHECKING:
    from graphflow.checkpoints.encryption.cipher import Cipher
    from graphflow.graph.engine.ports import Clock
    from graphflow.memory.tables import MemoryTables, Row

Namespace = tuple[str, ...]
END = "\x1f"
"""Ends each part of a stored namespace; no part may contain it."""
LONGEST = 512
"""Longest key or part of a namespace, in code points."""
LONGEST_TTL_S = 1_000_000_000
"""Some thirty years."""
# PostgreSQL and SQLite both take it as LIMIT and OFFSET.
MOST_ROWS = 2**31 - 1


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its namespace, key and times."""

    namespace: Namespace
    key: str
    value: Any
    """As JSON gives it back."""
    created_at: int
    """Epoch ms."""
    updated_at: int
    expires_at: int | None = None
    """Epoch ms; None never."""


class Store(Protocol):
    """A key-value store with namespaces. Expired items are not returned.

    Every method raises `GraphflowError` (`invalid_input`) for an invalid namespace or key, and `StoreError` when
    the store can't be read or written.
    """

    async def put(self, namespace: Namespace, key: str, value: Any, *, ttl_s: float | None = None) -> None:
        """Stores a JSON-like value durably, replacing an earlier one; with `ttl_s` it expires after that many seconds.

        Raises:
            GraphflowError: `not_serializable` when the value is not JSON.
        """

    async def get(self, namespace: Namespace, key: str) -> MemoryItem | None:
        """The item, or None."""

    async def search(
        self, namespace: Namespace = (), *, query: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[MemoryItem]:
        """Items of this namespace and of those below it, most recently written first.

        Args:
            query: words that must all be found in the key or in texts of the value, in any case and place.
        """

    async def delete(self, namespace: Namespace, key: str) -> bool:
        """Deletes the item; returns whether there was one."""

    async def close(self) -> None:
        """Closes connections; a later call opens them again."""


_COLUMNS = "namespace, name, value, created_at, updated_at, expires_at"
_PUT = (
    f"INSERT INTO store_items (root, {_COLUMNS}, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
    " ON CONFLICT (namespace, name) DO UPDATE SET value = excluded.value, folded = excluded.folded,"
    " updated_at = excluded.updated_at, expires_at = excluded.expires_at"
)
_EXPIRED = "DELETE FROM store_items WHERE expires_at <= ?"
_LIVING = "(expires_at IS NULL OR expires_at > ?)"


class SqlStore:
    """A `Store` in the memory tables.

    Args:
        cipher: encrypts and compresses values; a search then decrypts them first.
    """

    def __init__(self, tables: MemoryTables, clock: Clock, cipher: Cipher | None = None) -> None:
        self._tables, self._clock, self._cipher = tables, clock, cipher

    async def put(self, namespace: Namespace, key: str, value: Any, *, ttl_s: float | None = None) -> None:
        namespace, _ = checked(namespace, key)
        now, data = self._clock.now_ms(), encoded(value)
        place = joined(namespace)
        # A text for the search would be the value in clear.
        texts = "" if self._cipher is not None else folded_texts(key, msgspec.json.decode(data))
        row = (namespace[0], place, key, self._encrypted(place, key, data), now, now, expiry(now, ttl_s), texts)
        # Expired rows go with each write, so the store needs no task of its own for them.
        await self._tables.write((_EXPIRED, (now,)), (_PUT, row))

    async def get(self, namespace: Namespace, key: str) -> MemoryItem | None:
        namespace, _ = checked(namespace, key)
        sql = f"SELECT {_COLUMNS} FROM store_items WHERE namespace = ? AND name = ? AND {_LIVING}"  # noqa: S608 - ours
        rows = await self._tables.read(sql, joined(namespace), key, self._clock.now_ms())
        return self._item(rows[0]) if rows else None

    async def search(
        self, namespace: Namespace = (), *, query: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[MemoryItem]:
        namespace = checked_namespace(namespace)
        check_page(limit, offset)
        conditions, values = [_LIVING], list[Any]([self._clock.now_ms()])
        if namespace:
            place = joined(namespace)
            # `root` has the index; `substr` and not LIKE, which would read `%` and `_` in a name as wildcards.
            conditions += ["root = ?", "substr(namespace, 1, CAST(? AS INTEGER)) = ?"]
            values += [namespace[0], len(place), place]
        if self._cipher is None:
            for pattern in patterns_of(query or ""):
                conditions.append("folded LIKE ? ESCAPE '!'")
                values.append(pattern)
        sql = (
            f"SELECT {_COLUMNS} FROM store_items WHERE {' AND '.join(conditions)}"  # noqa: S608 - ours
            " ORDER BY updated_at DESC"
        )
        if self._cipher is None:
            rows = await self._tables.read(f"{sql}, namespace, name LIMIT ? OFFSET ?", *values, limit, offset)
            return [self._item(row) for row in rows]
        words = words_of(query or "")
        items = [self._item(row) for row in await self._tables.read(f"{sql}, namespace, name", *values)]
        found = [each for each in items if all(word in folded_texts(each.key, each.value) for word in words)]
        return found[offset : offset + limit]

    async def delete(self, namespace: Namespace, key: str) -> bool:
        namespace, _ = checked(namespace, key)
        place, now = joined(namespace), self._clock.now_ms()
        gone = "DELETE FROM store_items WHERE namespace = ? AND name = ?"
        return await self._tables.write((_EXPIRED, (now,)), (gone, (place, key))) > 0

    async def close(self) -> None:
        await self._tables.close()

    def _item(self, row: Row) -> MemoryItem:
        place, key, value, created, updated, expires = row
        data = value if self._cipher is None else self._cipher.decrypt(_place(place, key), b64decode(value))
        return MemoryItem(
            namespace=tuple(place.split(END)[:-1]),
            key=key,
            value=msgspec.json.decode(data),
            created_at=created,
            updated_at=updated,
            expires_at=expires,
        )

    def _encrypted(self, place: str, key: str, data: bytes) -> str:
        if self._cipher is None:
            return data.decode()
        return b64encode(self._cipher.encrypt(_place(place, key), data)).decode()


def _place(namespace: str, key: str) -> Any:
    """The place that an encrypted value is bound to, so that rows can't be swapped."""
    from graphflow.checkpoints.rows import Place

    return Place("document", f"store {namespace}{key}")


# --- what all stores share -----------------------------------------------------------------------


def joined(namespace: Namespace) -> str:
    return "".join(part + END for part in namespace)


def checked(namespace: Sequence[str], key: str) -> tuple[Namespace, str]:
    """The checked place; its namespace needs at least one part.

    Raises:
        GraphflowError: `invalid_input`.
    """
    parts = checked_namespace(namespace)
    if not parts:
        raise _refused("a namespace needs at least one part, like ('notes',)")
    _check_name(key)
    return parts, key


def checked_namespace(namespace: Sequence[str]) -> Namespace:
    """The checked namespace; the empty one contains all others.

    Raises:
        GraphflowError: `invalid_input`.
    """
    # A string is a sequence of strings to Python: 'notes' would become five parts.
    if isinstance(namespace, str):
        raise _refused(f"a namespace is a tuple of texts, not {excerpt_of(namespace)}")
    parts = tuple(namespace)
    for part in parts:
        _check_name(part)
    return parts


def _check_name(text: Any) -> None:
    # Printable excludes `END`, so stored namespaces can be split again.
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST or not text.isprintable():
        raise _refused(f"{excerpt_of(text)} must be a text of 1 to {LONGEST} characters that can be printed")


def check_page(limit: int, offset: int) -> None:
    if not 1 <= limit <= MOST_ROWS or not 0 <= offset <= MOST_ROWS:
        raise _refused(f"limit={limit!r} must be 1 to {MOST_ROWS}, offset={offset!r} 0 to {MOST_ROWS}")


def expiry(now_ms: int, ttl_s: float | None) -> int | None:
    if ttl_s is None:
        return None
    if not 0 < ttl_s <= LONGEST_TTL_S:
        raise _refused(
            f"ttl_s={ttl_s!r} must be above 0 and at most {LONGEST_TTL_S}; leave it out to keep the value for ever"
        )
    # At least a millisecond: a tiny `ttl_s` must not expire before it is written.
    return now_ms + max(1, int(ttl_s * 1000))


def encoded(value: Any) -> bytes:
    """The value as JSON.

    Raises:
        GraphflowError: `not_serializable`.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_json_like)
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise GraphflowError(f"the value is not JSON: {error}", code="not_serializable") from None


def _json_like(value: Any) -> Any:
    """Views of a state as lists and dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} can't be kept")


def _refused(message: str) -> GraphflowError:
    return GraphflowError(f"long-term store: {message}", code="invalid_input")
