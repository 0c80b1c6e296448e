"""What waits for people, over all threads (spec 3.2)."""

from __future__ import annotations

from typing import Any

from graphflow.checkpoints import codec
from graphflow.checkpoints.record_decoder import decode_interrupt
from graphflow.checkpoints.rows import OpenInterrupt, parse_cursor
from graphflow.errors import StoreError
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import WAITS, Interrupt
from graphflow.service.access import check_filter
from graphflow.service.context import ServiceContext
from graphflow.service.requests import unknown_cursor


async def inbox(
    context: ServiceContext,
    *,
    owner: str | None = None,
    role: str | None = None,
    agent_key: str | None = None,
    thread_id: str | None = None,
    user: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> tuple[list[dict[str, Any]], str | None]:
    """Open interrupts, oldest first, and the cursor of the next page.

    Args:
        user: only those of this user's threads.

    Raises:
        GraphflowError: `invalid_input` for an invalid cursor.
    """
    if cursor is not None:
        try:
            parse_cursor(cursor)
        except StoreError:
            raise unknown_cursor(cursor) from None
    await context.runs.ready()
    await check_filter(context, thread_id, user)
    rows: list[OpenInterrupt] = []
    # A page may hold waits for signals and timers only, so pages are read until the limit is reached or none follow.
    while True:
        page = await context.store.open_interrupts(
            owner=owner,
            role=role,
            agent_key=agent_key,
            thread_id=thread_id,
            user=user,
            cursor=cursor,
            limit=limit - len(rows),
        )
        full = len(page) == limit - len(rows)
        rows += [row for row in page if row.kind not in WAITS]  # those wait for no person
        if not full or len(rows) == limit:
            return [entry(row) for row in rows], page[-1].cursor if full else None
        cursor = page[-1].cursor


def entry(row: OpenInterrupt) -> dict[str, Any]:
    """A line of the inbox: the interrupt with its thread and agent."""
    out = {
        "threadId": row.thread_id,
        "agentKey": row.agent_key,
        **interrupt_dict(decode_interrupt(codec.decode(row.data))),
    }
    return {key: value for key, value in out.items() if value is not None}


def interrupt_dict(interrupt: Interrupt) -> dict[str, Any]:
    """An open interrupt as people and their programs see it."""
    out = {
        "interruptId": interrupt.id,
        "kind": interrupt.kind,
        "runId": interrupt.run_id,
        "node": interrupt.node,
        "path": interrupt.path or None,
        "payload": thaw(interrupt.payload),
        "schema": thaw(interrupt.schema),
        "toolId": interrupt.tool_id,
        "toolName": interrupt.tool_name,
        "arguments": thaw(interrupt.arguments),
        "owner": interrupt.owner,
        "role": interrupt.role,
        "openedAt": interrupt.opened_at,
        "expiresAt": interrupt.expires_at,
        "reissueOf": interrupt.reissue_of,
    }
    return {key: value for key, value in out.items() if value is not None}
