"""Finding chats by what was said in them (spec 5.2): the conversation store, brought up to date when it is asked.

The threads and their chat records are the truth. A search first looks which threads have changed since the last one, and
takes their records over; so nothing of this is on a run's way, and a crash can leave nothing out. A user's search looks at his
threads alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import ThreadNotFound
from graphflow.memory.conversations import Conversation, ConversationFilter, ConversationRun
from graphflow.runtime.runs.thread_list import LOOK_AT, NO_FILTER
from graphflow.runtime.thread_about import matches, title_of
from graphflow.service.context import ServiceContext

PAGE = 200

log = logging.getLogger("graphflow.memory")


async def find_chats(
    context: ServiceContext,
    query: str,
    which: ConversationFilter,
    status: str | None = None,
    metadata: Mapping[str, str] = NO_FILTER,
) -> tuple[list[tuple[Conversation, ThreadRow]], str | None]:
    """Chats that hold each word of the query, newest first, each with its thread, and the cursor of the next page; of
    about `LOOK_AT` chats with these words at most, so a page may be shorter than its limit although more follow.
    """
    await refresh(context, which.owner)
    found: list[tuple[Conversation, ThreadRow]] = []
    left = LOOK_AT
    while True:
        page = await context.conversations.search(query, which)
        for conversation in page:
            row = await context.store.thread(conversation.chat_id)
            if row is None or row.head is None:
                await context.conversations.delete(conversation.chat_id)  # the thread was deleted
            elif status in (None, context.runs.status_of(row)) and matches(row, metadata):
                found.append((conversation, row))
                if len(found) == which.limit:
                    return found, conversation.cursor
        if len(page) < which.limit:
            return found, None
        which = which._replace(cursor=page[-1].cursor)
        left -= len(page)
        if left <= 0:
            return found, which.cursor


async def refresh(context: ServiceContext, user: str | None = None) -> None:
    """Takes over what has changed since the last call; the first call of a process looks at the row of every thread.

    Args:
        user: only his threads.
    """
    # One refresh at a time: searches that come together would read the same threads twice.
    async with context.search.lock:
        known_upto = newest = context.search.upto.get(user, 0)
        whole = True
        cursor = None
        while rows := await _page(context, cursor, user):
            # `>=`, since two threads may have changed in the same ms.
            fresh = [row for row in rows if row.facts.updated_at >= known_upto]
            known = await context.conversations.updated([row.thread_id for row in fresh])
            for row in fresh:
                newest = max(newest, row.facts.updated_at)
                if row.head is not None and known.get(row.thread_id) != row.facts.updated_at:
                    whole = await _take_over(context, row) and whole
            # Newest first, so a page that is not all fresh ends the changes.
            if len(fresh) < PAGE:
                break
            cursor = rows[-1].thread_id
        # After a failure the mark stays, so that the next search tries the chat again.
        if whole:
            context.search.upto[user] = newest


async def _page(context: ServiceContext, cursor: str | None, user: str | None) -> list[ThreadRow]:
    try:
        return await context.store.threads(cursor=cursor, limit=PAGE, user=user)
    except ThreadNotFound:  # it was deleted meanwhile: from the top, where what is known costs little
        return await context.store.threads(limit=PAGE, user=user)


async def _take_over(context: ServiceContext, row: ThreadRow) -> bool:
    """False when the chat's record can't be read or repaired now: the others are found all the same."""
    chat_id = row.thread_id
    try:
        await context.chat_record.heal(chat_id)
        lines = (await context.chat_record.read(chat_id)).runs
    except OSError:
        log.exception("a chat can't be searched", extra={"facts": {"chat_id": chat_id}})
        return False
    await context.conversations.save(
        Conversation(
            chat_id=chat_id,
            name=title_of(row) or "",
            agent_key=row.facts.agent_key,
            owner=row.facts.user,
            created_at=row.created_at,
            updated_at=row.facts.updated_at,
            runs=tuple(ConversationRun(run_id=line["runId"], messages=line["messages"]) for line in lines),
        )
    )
    return True
