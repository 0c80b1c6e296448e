"""The long-term store as tools of an agent: `memory_put`, `memory_get`, `memory_search`, `memory_delete` (spec 5.3, 8.1).

An agent's notes are kept for the user whose the chat is: one user's agents never see what was kept for another, and a chat
that is nobody's has what all such chats share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from graphflow.memory.store import MemoryItem, Namespace, Store
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool, tool

OwnerOf = Callable[[str], Awaitable[str | None]]
"""Thread id → the user who owns it."""
_KEY = {"type": "string", "minLength": 1, "maxLength": 512, "description": "A short name for what is kept."}
MOST_FOUND = 20


def namespace_of(user: str | None) -> Namespace:
    """Where what is kept for a user is; None: for nobody in particular."""
    return ("shared",) if user is None else ("users", user)


def memory_tools(store: Callable[[], Store], owner_of: OwnerOf) -> list[Tool]:
    """The tools.

    Args:
        store: returns the long-term store; called when a tool runs.
        owner_of: returns the user who owns a thread.
    """

    async def place(ctx: ToolContext) -> Namespace:
        owner = await owner_of(ctx.thread_id)
        # From the thread and not from the model's arguments: a model must not reach another user's memory.
        return namespace_of(owner)

    @tool(
        effects="write",
        idempotent=True,
        parameters={
            "type": "object",
            "properties": {
                "key": _KEY,
                "value": {"description": "What to keep: a text, or any JSON."},
                "ttl_s": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "Seconds to keep it; default: for ever.",
                },
            },
            "required": ["key", "value"],
            "additionalProperties": False,
        },
    )
    async def memory_put(key: str, value: Any, ctx: ToolContext, ttl_s: float | None = None) -> dict[str, Any]:
        """Keeps something beyond this chat, in the place of what was kept under the key."""
        await store().put(await place(ctx), key, value, ttl_s=ttl_s)
        return {"kept": key}

    @tool(effects="read", parameters=_with({"key": _KEY}, "key"))
    async def memory_get(key: str, ctx: ToolContext) -> dict[str, Any]:
        """What was kept under a key, in this or another chat."""
        item = await store().get(await place(ctx), key)
        return {"found": False, "key": key} if item is None else {"found": True, **_shown(item)}

    @tool(
        effects="read",
        parameters=_with({
            "query": {"type": "string", "description": "Words that must all be found; empty lists the newest."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND},
        }),
    )  # fmt: skip
    async def memory_search(ctx: ToolContext, query: str = "", limit: int = 10) -> dict[str, Any]:
        """Searches what was kept, in keys and texts, the newest first."""
        items = await store().search(await place(ctx), query=query, limit=limit)
        return {"items": [_shown(item) for item in items]}

    @tool(effects="write", idempotent=True, parameters=_with({"key": _KEY}, "key"))
    async def memory_delete(key: str, ctx: ToolContext) -> dict[str, Any]:
        """Forgets what was kept under a key."""
        return {"key": key, "deleted": await store().delete(await place(ctx), key)}

    return [memory_put, memory_get, memory_search, memory_delete]


def _with(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _shown(item: MemoryItem) -> dict[str, Any]:
    return {"key": item.key, "value": item.value, "updatedAt": item.updated_at}
