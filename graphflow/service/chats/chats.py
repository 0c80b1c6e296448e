"""Chats as clients list and reread them; all of it is read from the threads' journals (spec 3.1, 3.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.record_decoder import beside_loop, decode_meta
from graphflow.checkpoints.rows import Record, ThreadRow
from graphflow.content import MEDIA_TYPES, described, media_of, part_to_wire
from graphflow.errors import ThreadNotFound
from graphflow.events import (
    STREAM_ENDS,
    ChatStart,
    Event,
    InterruptRequest,
    InterruptResolve,
    RequestQuery,
    RunCancel,
    RunComplete,
    RunStart,
    TaskCancel,
    TaskComplete,
    TaskFail,
    TaskStart,
    event_dict,
)
from graphflow.graph.core.machine import ROOT
from graphflow.graph.engine.ports import Logged
from graphflow.memory.conversations import ConversationFilter
from graphflow.messages import MESSAGE_TYPES, Message, to_wire
from graphflow.runtime.history.stored_events import PAGE, Chain, place_before, stored_log_of, without_gap
from graphflow.runtime.runs.thread_list import LOOK_AT, NO_FILTER, threads_with
from graphflow.runtime.thread_about import about_of, title_of
from graphflow.service.access import Caller, sees
from graphflow.service.chats.search import find_chats
from graphflow.service.context import ServiceContext
from graphflow.service.inbox import entry
from graphflow.service.live_threads import flush_live
from graphflow.service.requests import unknown_chat, unknown_cursor
from graphflow.service.run_log import log_of_run

log = logging.getLogger("graphflow.memory")
_NOT_IN_HISTORY = (InterruptRequest, InterruptResolve)
"""Left out besides the graph family: `run.waiting` tells of open questions, `request.submit` of answers."""


async def chats(
    context: ServiceContext,
    *,
    cursor: str | None = None,
    limit: int = 50,
    agent_key: str | None = None,
    user: str | None = None,
    query: str | None = None,
    status: str | None = None,
    metadata: Mapping[str, str] = NO_FILTER,
) -> tuple[list[dict[str, Any]], str | None]:
    """Chats, newest first, and the cursor of the next page; with `user` this user's alone.

    Args:
        query: words that must each be found in a chat's name or in what was said in it.
        status: of the chats, `idle`, `running`, `waiting`, `failed` or `stopped`.
        metadata: keys that the chats' metadata have, each with this value.

    Raises:
        GraphflowError: `invalid_input` for an invalid cursor, or one whose chat was deleted.
    """
    await context.runs.ready()
    if query is not None and query.strip():
        which = ConversationFilter(agent_key=agent_key, owner=user, cursor=cursor, limit=limit)
        found, following = await find_chats(context, query, which, status, metadata)
        return [await _line(context, row) for _, row in found], following
    # A cursor is a chat id: another user's must look like one that was never there.
    if cursor is not None and not await sees(context, Caller(user=user), cursor):
        raise unknown_cursor(cursor)
    try:
        rows, following = await threads_with(
            context.runs,
            status=status,
            agent_key=agent_key,
            user=user,
            cursor=cursor,
            limit=limit,
            metadata=metadata,
            look_at=LOOK_AT,
        )
    except ThreadNotFound:
        raise unknown_cursor(cursor) from None
    return [await _line(context, row) for row in rows if row.head], following


async def _line(context: ServiceContext, row: ThreadRow) -> dict[str, Any]:
    waiting = []
    if row.facts.status == "waiting":
        waiting = await context.store.open_interrupts(thread_id=row.thread_id, limit=1)
    return {
        "chatId": row.thread_id,
        "chatName": title_of(row) or "",
        "metadata": about_of(row).metadata,
        "agentKey": row.facts.agent_key,
        "createdAt": row.created_at,
        "updatedAt": row.facts.updated_at,
        "status": context.runs.status_of(row),
        "driven": context.runs.is_driven(row),
        "waiting": entry(waiting[0]) if waiting else None,
    }


async def chat(
    context: ServiceContext,
    chat_id: str,
    *,
    raw_messages: bool = False,
    cursor: str | None = None,
    limit: int | None = None,
) -> dict[str, Any]:
    """One chat: `chatId, chatName, rawMessages, events, references`, and `cursor`.

    `rawMessages` is None unless they are asked for; `events` are those of every run on the chat's present branch, or a page
    of them: the newest `limit` before `cursor`, oldest first. `cursor` leads to the page before, absent on the oldest.

    Raises:
        ThreadNotFound: no such chat.
        GraphflowError: `invalid_input` for an invalid cursor.
    """
    await context.runs.ready()
    await flush_live(context, chat_id)
    await _heal_record(context, chat_id)
    loaded = await load_thread(context.store, chat_id, logs=raw_messages)
    if loaded is None or loaded.row.head is None:
        raise unknown_chat(chat_id)
    events, older = await history(context, chat_id, loaded.chain, loaded.machine.run_id, cursor=cursor, limit=limit)
    return {
        "chatId": chat_id,
        "chatName": title_of(loaded.row) or "",
        "rawMessages": await _raw(loaded.machine.frames[ROOT].state.get("messages", ())) if raw_messages else None,
        "events": await asyncio.to_thread(list, map(event_dict, events)),
        "references": _references(events),
        **({} if older is None else {"cursor": older}),
    }


async def _heal_record(context: ServiceContext, chat_id: str) -> None:
    """Adds the lines of the chat's record that a crash has left out; a disk that can't be written does not fail the
    reader.
    """
    try:
        await context.chat_record.heal(chat_id)
    except OSError:
        log.exception("the chat record could not be repaired", extra={"facts": {"chat_id": chat_id}})


async def history(
    context: ServiceContext,
    chat_id: str,
    chain: Chain,
    current: str,
    *,
    cursor: str | None = None,
    limit: int | None = None,
) -> tuple[list[Event], str | None]:
    """Every run's log as history shows it: snapshots, no graph family but `run.waiting`, `chat.start` once, every run but
    the `current` one with an end. With it the cursor of the page before.
    """
    last, before = (None, None) if cursor is None else _place_of(cursor)
    newest_first: list[tuple[str, Event]] = []
    begins: str | None = None
    # Read from the newest on, so that a page costs the runs that it shows and those after them.
    async for run in _runs(context.store, chat_id, chain, back=True):
        run_id = run.run_id
        if not _is_shown(context, chat_id, run) or last not in (None, run_id):
            continue
        last = None
        shown = await _shown(context, chat_id, chain, run, current)
        if any(isinstance(event, ChatStart) for event in shown):
            begins = begins or await _first_start(context, chat_id, chain, current)
            shown = [event for event in shown if run_id == begins or not isinstance(event, ChatStart)]
        page = (event for event in reversed(shown) if before is None or event.seq < before)
        newest_first += ((run_id, _as_history(event, chat_id)) for event in page)
        before = None
        if limit is not None and len(newest_first) > limit:
            run_id, oldest = newest_first[limit - 1]
            return [event for _, event in newest_first[limit - 1 :: -1]], f"{run_id}:{oldest.seq}"
    if last is not None:
        raise unknown_cursor(cursor)
    return [event for _, event in reversed(newest_first)], None


def _place_of(cursor: str) -> tuple[str, int]:
    """The run that a page ends in, and the number of the event before which it ends there."""
    run_id, _, seq = cursor.rpartition(":")
    if not (seq.isascii() and seq.isdigit() and len(seq) < 16):
        raise unknown_cursor(cursor)
    return run_id, int(seq)


class _ChatRun(msgspec.Struct, frozen=True):
    """A run on a chat's present branch."""

    run_id: str
    records: Sequence[Record]
    """Oldest first."""
    is_whole: bool
    """Its beginning is there; of a pruned one, what is left tells of a run that nobody began."""


def _is_shown(context: ServiceContext, chat_id: str, run: _ChatRun) -> bool:
    return run.is_whole or _is_live(context, chat_id, run.run_id)


def _is_live(context: ServiceContext, chat_id: str, run_id: str) -> bool:
    live = context.runs.by_thread.get(chat_id)
    return live is not None and live.run_id == run_id


async def _runs(store: Checkpointer, chat_id: str, chain: Chain, *, back: bool) -> AsyncIterator[_ChatRun]:
    """The runs of a branch, the newest first with `back`; reads pages of records as they are asked for."""
    run_id, own = "", list[Record]()
    before: Record | None = None
    async for record in _records(store, chat_id, chain, back=back):
        # The records of one run lie side by side on a branch.
        found = decode_meta(record.meta, record.id).run_id or ""
        if own and found != run_id:
            yield await beside_loop(own, _chat_run, chain, run_id, own, record if back else before, back)
            before, own = own[-1], []
        run_id = found
        own.append(record)
    if own:
        yield await beside_loop(own, _chat_run, chain, run_id, own, None if back else before, back)


async def _records(store: Checkpointer, chat_id: str, chain: Chain, *, back: bool) -> AsyncIterator[Record]:
    for lineage, last in reversed(chain) if back else chain:
        places = range(0, last, PAGE)
        for after in reversed(places) if back else places:
            page = await store.read_records(chat_id, lineage=lineage, after=after, upto=min(after + PAGE, last))
            for record in reversed(page) if back else page:
                yield record


def _chat_run(chain: Chain, run_id: str, own: list[Record], before: Record | None, back: bool) -> _ChatRun:
    """A run of the branch; `before` is the record that the store has before its first."""
    records = own[::-1] if back else own
    place = None if before is None else (before.lineage, before.ordinal)
    is_whole = not without_gap(chain, records)[1] and place_before(chain, records[0]) in (None, place)
    return _ChatRun(run_id, records, is_whole)


async def _shown(context: ServiceContext, chat_id: str, chain: Chain, run: _ChatRun, current: str) -> list[Event]:
    # The newest events of a live run are in its ring and not in the store yet.
    if live := _is_live(context, chat_id, run.run_id):
        log = await log_of_run(context, chat_id, run.run_id)
    else:
        log = (await stored_log_of(context.store, chain, run.records)).events
    return await beside_loop(log, _told_of, log, run.run_id, live or run.run_id == current)


def _told_of(log: Iterable[Logged], run_id: str, goes_on: bool) -> list[Event]:
    shown = [event for event, _ in log if event.family != "graph" and not isinstance(event, _NOT_IN_HISTORY)]
    return shown if goes_on else shown + _cut_off(shown, run_id)


async def _first_start(context: ServiceContext, chat_id: str, chain: Chain, current: str) -> str | None:
    """The run whose `chat.start` is shown: every query sends one, and a history has one chat."""
    async for run in _runs(context.store, chat_id, chain, back=False):
        if _is_shown(context, chat_id, run):
            events = await _shown(context, chat_id, chain, run, current)
            if any(isinstance(event, ChatStart) for event in events):
                return run.run_id
    return None


def _cut_off(events: Sequence[Event], run_id: str) -> list[Event]:
    """The end of a run that has none on this branch: the thread went back to its middle, or on from there with new input."""
    if not any(isinstance(event, RunStart) for event in events) or isinstance(events[-1], STREAM_ENDS):
        return []
    task: str | None = None
    for event in events:
        if isinstance(event, TaskStart):
            task = event.task_id
        elif isinstance(event, TaskComplete | TaskCancel | TaskFail):
            task = None
    ends: list[Event] = [TaskCancel(task_id=task)] if task is not None else []
    ends.append(RunCancel(run_id=run_id))
    for end, number in zip(ends, count(events[-1].seq + 1), strict=False):
        end.seq, end.timestamp = number, events[-1].timestamp
    return ends


def _as_history(event: Event, chat_id: str) -> Event:
    """The event for this chat: what a fork shares with another chat names the fork. A run that simply stopped ends with
    `end_turn` (spec 3.3).
    """
    if isinstance(event, RunComplete) and event.finish_reason in (None, "stop"):
        return msgspec.structs.replace(event, finish_reason="end_turn")
    if getattr(event, "chat_id", chat_id) != chat_id:
        return msgspec.structs.replace(event, chat_id=chat_id)
    return event


async def _raw(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages in OpenAI form, media as what they are and how large."""
    return await beside_loop(messages, lambda: [_shown_message(message) for message in _each(messages)])


def _shown_message(message: Message | Any) -> dict[str, Any]:
    if not isinstance(message, MESSAGE_TYPES):
        return dict(message)
    wire = to_wire(message)
    if not isinstance(message.content, str) and media_of(message.content):
        wire["content"] = [
            described(part) if isinstance(part, MEDIA_TYPES) and part.url is None else shown
            for part in message.content
            if (shown := part_to_wire(part)) is not None
        ]
    return wire


def _each(messages: Sequence[Any]) -> Iterable[Message | Any]:
    return iter(messages)


def _references(events: Iterable[Event]) -> list[Any]:
    """References of all queries, each id once; the first wins."""
    seen: dict[str, Any] = {}
    for event in events:
        if isinstance(event, RequestQuery):
            for reference in event.references or ():
                key = reference.get("id") if isinstance(reference, dict) else None
                # References without an id can't be compared, so each one is kept.
                seen.setdefault(str(key) if key is not None else f"{len(seen)}:{reference!r}", reference)
    return list(seen.values())
