"""The conversation store: what was said in each chat, to be listed and searched (spec 5.2).

It is made from the chats' records and can be thrown away; the threads stay the truth. All stores keep the same promises,
which `graphflow.testing.conversation_store_conformance` states.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from graphflow.checkpoints.ids import check_text, clean_title
from graphflow.errors import GraphflowError
from graphflow.excerpts import excerpt_of
from graphflow.json_data import plain, whole_characters
from graphflow.memory.text_normalization import folded, folded_texts, patterns_of, words_of

if TYPE_CHECKING:
    from graphflow.memory.tables import MemoryTables, Row, Write


class ConversationRun(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one run."""

    run_id: str
    messages: Sequence[Mapping[str, Any]] = ()
    """As the chat record has them (`docs/how-to/transcripts.md`)."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A chat; lists and searches give it without its runs."""

    chat_id: str
    name: str = ""
    agent_key: str | None = None
    owner: str | None = None
    """The user who owns the chat; None for no owner."""
    created_at: int = 0
    """Epoch ms."""
    updated_at: int = 0
    """Epoch ms; decides the order."""
    runs: tuple[ConversationRun, ...] = ()
    """Oldest first."""

    @property
    def cursor(self) -> str:
        """The start of the next page; it stays valid after the conversation is deleted."""
        return f"{self.updated_at}:{self.chat_id}"


class ConversationFilter(NamedTuple):
    """The conversations that a list or search includes."""

    agent_key: str | None = None
    owner: str | None = None
    cursor: str | None = None
    """`Conversation.cursor` of the last item of the previous page."""
    limit: int = 50


ALL = ConversationFilter()


class ConversationStore(Protocol):
    """A store of conversations, newest first by `updated_at`, then by id.

    Every method may raise `StoreError`; an invalid cursor, and an id with a NUL or half of a surrogate pair, is rejected as
    `invalid_input`.
    """

    async def save(self, conversation: Conversation) -> None:
        """Stores the conversation's facts, replacing earlier ones; runs are merged by id."""

    async def load(self, chat_id: str) -> Conversation | None:
        """The conversation with its runs, or None."""

    async def list(self, which: ConversationFilter = ALL) -> list[Conversation]:
        """Conversations, newest first."""

    async def search(self, query: str, which: ConversationFilter = ALL) -> builtins.list[Conversation]:
        """Conversations with every word of the query in their name or messages; case is ignored."""

    async def updated(self, chat_ids: Sequence[str]) -> dict[str, int]:
        """Chat id → `updated_at`, for the known ones of these chats."""

    async def delete(self, chat_id: str) -> None:
        """Deletes the conversation; no effect if there is none."""

    async def close(self) -> None:
        """Closes connections; a later call opens them again."""


class InMemoryConversations:
    """A `ConversationStore` in the memory of this process."""

    def __init__(self) -> None:
        self._known: dict[str, Conversation] = {}
        self._folded: dict[tuple[str, str | None], str] = {}
        """(chat, run, or None for the name) → normalized text for the search."""

    async def save(self, conversation: Conversation) -> None:
        # Thousands of messages are prepared beside the event loop.
        conversation, said = await asyncio.to_thread(_prepared, conversation)
        chat_id = conversation.chat_id
        before = self._known.get(chat_id)
        runs = {run.run_id: run for run in (*(before.runs if before else ()), *conversation.runs)}
        self._known[chat_id] = msgspec.structs.replace(conversation, runs=tuple(runs.values()))
        self._folded[chat_id, None] = folded(conversation.name)
        for run, text in zip(conversation.runs, said, strict=True):
            self._folded[chat_id, run.run_id] = text

    async def load(self, chat_id: str) -> Conversation | None:
        check_text(chat_id)
        return self._known.get(chat_id)

    async def list(self, which: ConversationFilter = ALL) -> list[Conversation]:
        return await self.search("", which)

    async def search(self, query: str, which: ConversationFilter = ALL) -> builtins.list[Conversation]:
        words, after = words_of(query), _start_of(which)
        found = [
            each
            for each in self._known.values()
            if which.agent_key in (None, each.agent_key)
            and which.owner in (None, each.owner)
            and (after is None or (each.updated_at, each.chat_id) < after)
            and all(any(word in text for text in self._texts(each)) for word in words)
        ]
        found.sort(key=lambda each: (each.updated_at, each.chat_id), reverse=True)
        return [msgspec.structs.replace(each, runs=()) for each in found[: which.limit]]

    def _texts(self, conversation: Conversation) -> Iterable[str]:
        yield self._folded[conversation.chat_id, None]
        for run in conversation.runs:
            yield self._folded[conversation.chat_id, run.run_id]

    async def updated(self, chat_ids: Sequence[str]) -> dict[str, int]:
        check_text(*chat_ids)
        return {key: self._known[key].updated_at for key in chat_ids if key in self._known}

    async def delete(self, chat_id: str) -> None:
        check_text(chat_id)
        gone = self._known.pop(chat_id, None)
        for run_id in (None, *(run.run_id for run in gone.runs)) if gone is not None else ():
            self._folded.pop((chat_id, run_id), None)

    async def close(self) -> None:
        """Nothing is open."""


_FACTS = "chat_id, name, agent_key, owner, created_at, updated_at"
_SAVE = (
    f"INSERT INTO conversations ({_FACTS}, folded) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
    " ON CONFLICT (chat_id) DO UPDATE SET name = excluded.name, agent_key = excluded.agent_key, owner = excluded.owner,"
    " created_at = excluded.created_at, updated_at = excluded.updated_at, folded = excluded.folded"
)
_SAVE_RUN = (
    "INSERT INTO conversation_runs (chat_id, run_id, position, messages, folded)"
    " VALUES (?, ?, (SELECT coalesce(max(position), -1) + 1 FROM conversation_runs WHERE chat_id = ?), ?, ?)"
    " ON CONFLICT (chat_id, run_id) DO UPDATE SET messages = excluded.messages, folded = excluded.folded"
)
_HOLDS = (
    "(conversations.folded LIKE ? ESCAPE '!' OR EXISTS (SELECT 1 FROM conversation_runs AS said"
    " WHERE said.chat_id = conversations.chat_id AND said.folded LIKE ? ESCAPE '!'))"
)


class SqlConversations:
    """A `ConversationStore` in the memory tables."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def save(self, conversation: Conversation) -> None:
        await self._tables.write(*await asyncio.to_thread(_writes, conversation))

    async def load(self, chat_id: str) -> Conversation | None:
        check_text(chat_id)
        sql = f"SELECT {_FACTS} FROM conversations WHERE chat_id = ?"  # noqa: S608 - ours
        rows = await self._tables.read(sql, chat_id)
        if not rows:
            return None
        said = "SELECT run_id, messages FROM conversation_runs WHERE chat_id = ? ORDER BY position"
        runs = [
            ConversationRun(run_id=run_id, messages=msgspec.json.decode(messages))
            for run_id, messages in await self._tables.read(said, chat_id)
        ]
        return msgspec.structs.replace(_conversation(rows[0]), runs=tuple(runs))

    async def list(self, which: ConversationFilter = ALL) -> list[Conversation]:
        return await self.search("", which)

    async def search(self, query: str, which: ConversationFilter = ALL) -> builtins.list[Conversation]:
        conditions, values, after = ["1 = 1"], list[Any](), _start_of(which)
        for column, value in (("agent_key", which.agent_key), ("owner", which.owner)):
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(value)
        if after is not None:
            # By value, not by offset: a page stays right when conversations come or go meanwhile.
            conditions.append("(updated_at < ? OR (updated_at = ? AND chat_id < ?))")
            values += [after[0], *after]
        for pattern in patterns_of(query):
            conditions.append(_HOLDS)
            values += [pattern, pattern]
        sql = (
            f"SELECT {_FACTS} FROM conversations WHERE {' AND '.join(conditions)}"  # noqa: S608 - ours
            " ORDER BY updated_at DESC, chat_id DESC LIMIT ?"
        )
        return [_conversation(row) for row in await self._tables.read(sql, *values, which.limit)]

    async def updated(self, chat_ids: Sequence[str]) -> dict[str, int]:
        check_text(*chat_ids)
        if not chat_ids:
            return {}
        marks = ", ".join("?" * len(chat_ids))
        sql = f"SELECT chat_id, updated_at FROM conversations WHERE chat_id IN ({marks})"  # noqa: S608 - marks only
        rows = await self._tables.read(sql, *chat_ids)
        return {str(row[0]): int(row[1]) for row in rows}

    async def delete(self, chat_id: str) -> None:
        check_text(chat_id)
        await self._tables.write(
            # Runs first, in one transaction: no run may outlive its conversation.
            ("DELETE FROM conversation_runs WHERE chat_id = ?", (chat_id,)),
            ("DELETE FROM conversations WHERE chat_id = ?", (chat_id,)),
        )

    async def close(self) -> None:
        await self._tables.close()


def _conversation(row: Row) -> Conversation:
    chat_id, name, agent_key, owner, created_at, updated_at = row
    return Conversation(
        chat_id=chat_id, name=name, agent_key=agent_key, owner=owner, created_at=created_at, updated_at=updated_at
    )


def _said(run: ConversationRun) -> str:
    """The searchable text of a run: messages, names and arguments of calls; neither ids nor reasoning."""
    out: list[Any] = []
    for message in run.messages:
        out += [part.get("text") for part in _objects(message.get("content"))]
        for call in _objects(message.get("tool_calls")):
            for function in _objects([call.get("function")]):
                out += [function.get("name"), function.get("arguments")]
    return folded_texts(*out)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; other values, from records edited by hand, are skipped."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def _writes(conversation: Conversation) -> list[Write]:
    c, said = _prepared(conversation)
    facts = (c.chat_id, c.name, c.agent_key, c.owner, c.created_at, c.updated_at, folded(c.name))
    writes: list[Write] = [(_SAVE, facts)]
    for run, text in zip(c.runs, said, strict=True):
        messages = msgspec.json.encode(run.messages, enc_hook=plain).decode()
        writes.append((_SAVE_RUN, (c.chat_id, run.run_id, c.chat_id, messages, text)))
    return writes


def _prepared(conversation: Conversation) -> tuple[Conversation, list[str]]:
    """The conversation as it is stored, and the text of each of its runs for the search."""
    storable = _storable(conversation)
    return storable, [_said(run) for run in storable.runs]


def _storable(conversation: Conversation) -> Conversation:
    """The conversation as every store keeps it; of what was said, half characters become U+FFFD.

    Raises:
        StoreError: `invalid_input` for an id that not every store can keep.
    """
    c = conversation
    check_text(c.chat_id, c.agent_key, c.owner, *(run.run_id for run in c.runs))
    runs = [ConversationRun(run_id=run.run_id, messages=whole_characters(list(run.messages))) for run in c.runs]
    return msgspec.structs.replace(c, name=clean_title(c.name) or "", runs=tuple(runs))


def _start_of(which: ConversationFilter) -> tuple[int, str] | None:
    """Where the page begins, of a filter whose ids every store could keep."""
    check_text(which.agent_key, which.owner, which.cursor)
    return parse_cursor(which.cursor)


def parse_cursor(cursor: str | None) -> tuple[int, str] | None:
    """`(updated_at, chat id)` of a `Conversation.cursor`.

    Raises:
        GraphflowError: `invalid_input` if it is not a cursor.
    """
    if cursor is None:
        return None
    at, colon, chat_id = cursor.partition(":")
    # Eighteen digits fit the databases' 64-bit integers.
    if not colon or not at.isascii() or not at.isdigit() or len(at) > 18:
        rule = f"{excerpt_of(cursor)} is not a cursor of this list; leave it out to start over"
        raise GraphflowError(f"cursor: {rule}", code="invalid_input", fields={"cursor": rule})
    return int(at), chat_id
