"""The long-term store for clients: what is kept for the caller's own user, and nothing else (spec 5.3).

A caller without a user has what all chats without one share. The agents' memory tools use the same place.
"""

from __future__ import annotations

from typing import Any

from graphflow.errors import GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.memory.store import MemoryItem, Namespace, encoded
from graphflow.memory.tools import namespace_of
from graphflow.service.access import Caller
from graphflow.service.context import ServiceContext
from graphflow.service.requests import bad_argument, unknown_cursor

MOST_BYTES = 65_536
"""Of a value as JSON."""
LAST_OFFSET = 1_000_000


def _place(caller: Caller, namespace: str | None) -> Namespace:
    """A namespace within the caller's own: parts joined by `/`."""
    parts = () if not namespace else tuple(namespace.split("/"))
    return (*namespace_of(caller.user), *parts)


async def search(
    context: ServiceContext,
    caller: Caller,
    *,
    namespace: str | None = None,
    query: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> tuple[list[dict[str, Any]], str | None]:
    """Items of the caller, the most recently written first, and the cursor of the next page.

    Args:
        query: words that must all be found in the key or in texts of the value.

    Raises:
        GraphflowError: `invalid_input` for an invalid namespace or cursor.
    """
    offset = 0
    if cursor is not None:
        if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 7 or int(cursor) > LAST_OFFSET:
            raise unknown_cursor(cursor)
        offset = int(cursor)
    place = _place(caller, namespace)
    found = await context.long_term.search(place, query=query, limit=limit + 1, offset=offset)
    following = str(offset + limit) if len(found) > limit and offset + limit <= LAST_OFFSET else None
    return [_line(caller, item) for item in found[:limit]], following


async def get(context: ServiceContext, caller: Caller, key: str, namespace: str | None = None) -> dict[str, Any]:
    """The item of this key.

    Raises:
        GraphflowError: `not_found`.
    """
    item = await context.long_term.get(_place(caller, namespace), key)
    if item is None:
        raise unknown_item(key)
    return _line(caller, item)


async def put(
    context: ServiceContext,
    caller: Caller,
    key: str,
    value: Any,
    *,
    namespace: str | None = None,
    ttl_s: float | None = None,
) -> dict[str, Any]:
    """Keeps the value in the place of an earlier one; the item.

    Raises:
        GraphflowError: `invalid_input` for an invalid key, namespace or time, and for a value that is too large.
    """
    if (size := len(encoded(value))) > MOST_BYTES:
        raise bad_argument("value", f"has {size} bytes as JSON; {MOST_BYTES} are allowed")
    place = _place(caller, namespace)
    await context.long_term.put(place, key, value, ttl_s=ttl_s)
    item = await context.long_term.get(place, key)
    if item is None:  # it has expired, or somebody has deleted it, in between
        raise unknown_item(key)
    return _line(caller, item)


async def delete(context: ServiceContext, caller: Caller, key: str, namespace: str | None = None) -> None:
    """Deletes the item.

    Raises:
        GraphflowError: `not_found`.
    """
    if not await context.long_term.delete(_place(caller, namespace), key):
        raise unknown_item(key)


def unknown_item(key: str) -> GraphflowError:
    return GraphflowError(f"nothing is kept under the key {excerpt_of(key, 160)}", code="not_found")


def _line(caller: Caller, item: MemoryItem) -> dict[str, Any]:
    return {
        "key": item.key,
        "namespace": "/".join(item.namespace[len(namespace_of(caller.user)) :]),
        "value": item.value,
        "createdAt": item.created_at,
        "updatedAt": item.updated_at,
        "expiresAt": item.expires_at,
    }
