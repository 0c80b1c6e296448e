"""Finding chats by what was said in them (spec 5.2): the conversation store, brought up to date when it is asked.

The threads and their chat records are the truth. A search first looks which threads have changed since the last one, and
takes their records over; so nothing of this is on a run's way, and a crash can leave nothing out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from graphflow.errors import ThreadNotFound
from graphflow.memory.conversations import Conversation, ConversationRun, Which

if TYPE_CHECKING:
    from graphflow.checkpoints.rows import ThreadRow
    from graphflow.service.application import Application

PAGE = 200


class ChatSearch:
    """The conversations of one application."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._upto = 0
        """Threads that have not changed after this moment (epoch ms) are known."""
        self._turn = asyncio.Lock()

    async def find(self, query: str, which: Which) -> list[tuple[Conversation, ThreadRow]]:
        """Chats that hold each word of the query, newest first, each with its thread."""
        await self.refresh()
        found: list[tuple[Conversation, ThreadRow]] = []
        while len(found) < which.limit:
            page = await self._app.conversations.search(query, which)
            for conversation in page:
                row = await self._app.store.thread(conversation.chat_id)
                if row is None or row.head is None:
                    await self._app.conversations.delete(conversation.chat_id)  # the thread was deleted
                else:
                    found.append((conversation, row))
            if len(page) < which.limit:
                break
            which = which._replace(cursor=page[-1].cursor)
        return found[: which.limit]

    async def refresh(self) -> None:
        """Takes over what has changed since the last call; the first call of a process looks at every thread's row."""
        async with self._turn:
            newest, whole = self._upto, True
            cursor = None
            while rows := await self._page(cursor):
                fresh = [row for row in rows if row.facts.updated_at >= self._upto]
                known = await self._app.conversations.updated([row.thread_id for row in fresh])
                for row in fresh:
                    newest = max(newest, row.facts.updated_at)
                    if row.head is not None and known.get(row.thread_id) != row.facts.updated_at:
                        whole = await self._take_over(row) and whole
                if len(fresh) < PAGE:
                    break
                cursor = rows[-1].thread_id
            if whole:
                self._upto = newest

    async def _page(self, cursor: str | None) -> list[ThreadRow]:
        try:
            return await self._app.store.threads(cursor=cursor, limit=PAGE)
        except ThreadNotFound:  # it was deleted meanwhile: from the top, where what is known costs little
            return await self._app.store.threads(limit=PAGE)

    async def _take_over(self, row: ThreadRow) -> bool:
        """False when the chat's record can't be read or mended now: the others are found all the same."""
        app, chat_id = self._app, row.thread_id
        try:
            await app.chat_record.heal(chat_id)
            lines = (await app.chat_record.read(chat_id)).runs
        except OSError:
            import structlog

            structlog.get_logger("graphflow.memory").exception("a chat can't be searched", chat_id=chat_id)
            return False
        await app.conversations.save(
            Conversation(
                chat_id=chat_id,
                name=row.facts.title or "",
                agent_key=row.facts.agent_key,
                owner=row.facts.user,
                created_at=row.created_at,
                updated_at=row.facts.updated_at,
                runs=tuple(ConversationRun(run_id=line["runId"], messages=line["messages"]) for line in lines),
            )
        )
        return True
