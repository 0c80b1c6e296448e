"""The messages of a thread by their ids: what people said and what was answered, and the turn that a message belongs to.

A user's message has the id of the run that it began (`messageId` of `request.query`), an answer that of its block
(`contentId`). Both stand in the journal, so they are the same in live events, after a crash, in history and in forks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import msgspec

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.event_log import CODES, EPOCH, read_events, was_checkpoint
from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.media.large_bytes import with_bytes
from graphflow.checkpoints.record_decoder import RecordBody, decode_meta
from graphflow.checkpoints.rows import Record
from graphflow.errors import CheckpointNotFound, GraphflowError
from graphflow.events import ContentSnapshot, RequestQuery
from graphflow.excerpts import excerpt_of
from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import ROOT, Machine
from graphflow.runtime.history.walk import Chain, chain_before, walk_back

_BLOCKS = {
    CODES["content.snapshot"]: "contentId",
    CODES["reasoning.snapshot"]: "reasoningId",
    CODES["tool.snapshot"]: "toolId",
    CODES["action.snapshot"]: "actionId",
}
_SPOKEN = (CODES["request.query"], CODES["content.snapshot"])
_CURSOR = re.compile(r"(\d{1,19})\.(\d{1,10})\.(\d{1,10})")


class MessageInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One message of a thread's present branch."""

    message_id: str
    role: Literal["user", "assistant"]
    content: str
    run_id: str
    at: int
    """Epoch ms."""
    checkpoint_id: str | None
    """The checkpoint that has it; None for one that was left unfinished."""
    references: list[Any] | None = None
    """Files that came with it."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message and everything that answered it."""

    message_id: str
    """Of the user's message."""
    checkpoint_id: str
    """Where the message has come and nothing has run yet."""
    chain: Chain
    record: Record


async def turn_of(store: Checkpointer, thread_id: str, message_id: str) -> Turn:
    """The turn of a message, on the thread's present branch or else on one that it has left.

    Args:
        message_id: of the user's message, or of any block of the answer.

    Raises:
        GraphflowError: `message_not_found`.
    """
    seen: set[str] = set()
    async for chain in _branches(store, thread_id):
        found = False
        async for record, body in walk_back(store, thread_id, chain, whole=False):
            if record.id in seen and not found:
                break  # the rest of this branch was looked through as part of another
            seen.add(record.id)
            run_id = decode_meta(record.meta, record.id).run_id
            found = found or run_id == message_id or _has_block(body, message_id)
            if found and body.source == "input":
                return Turn(message_id=run_id, checkpoint_id=record.id, chain=chain, record=record)
    raise GraphflowError(
        f"no message of thread {thread_id!r} has the id {excerpt_of(message_id, 160)}", code="message_not_found"
    )


def _has_block(body: RecordBody, block_id: str) -> bool:
    return any(row[0] in _BLOCKS and row[3].get(_BLOCKS[row[0]]) == block_id for row in body.events)


async def _branches(store: Checkpointer, thread_id: str) -> AsyncIterator[Chain]:
    """The present branch, then those that were left, the newest first."""
    stored = await store.load(thread_id)
    if stored is None:
        return
    yield stored.chain
    kept, tips = dict(stored.chain), set[int]()
    for row in await store.list_checkpoints(thread_id, all_lineages=True):
        # Newest first, so the first of a lineage that the present branch does not share is where that was left.
        if row.lineage not in tips and row.ordinal > kept.get(row.lineage, 0):
            tips.add(row.lineage)
            if (other := await store.load(thread_id, row.id)) is not None:
                yield other.chain


async def before_turn(store: Checkpointer, thread_id: str, turn: Turn) -> Loaded:
    """The thread as it was before the turn's message came, without its lists; empty before the first one.

    Raises:
        CheckpointNotFound: that checkpoint was pruned.
    """
    chain = chain_before(turn.chain, turn.record)
    async for record, body in walk_back(store, thread_id, chain):
        if was_checkpoint(record, body):
            loaded = await load_thread(store, thread_id, record.id, logs=False)
            if loaded is None:
                raise CheckpointNotFound(
                    f"the checkpoint before message {turn.message_id!r} of thread {thread_id!r} was pruned",
                    threadId=thread_id,
                    pruned=True,
                )
            return loaded
    head = await load_thread(store, thread_id, logs=False)
    assert head is not None
    return nothing_yet(head)


def nothing_yet(head: Loaded) -> Loaded:
    """The thread as it was before its first checkpoint."""
    return msgspec.structs.replace(
        head, machine=Machine(), chain=(), counts={}, seq=0, pending=[], last=None, checkpoint_id=None, bytes_since=0,
        snapshot_bytes=0, mark=0,
    )  # fmt: skip


async def input_of_turn(store: Checkpointer, thread_id: str, turn: Turn) -> Mapping[str, Any]:
    """The input that began the turn, with all of its bytes; it has the message's text as `query`.

    Raises:
        CheckpointNotFound: the checkpoint of the message was pruned.
        GraphflowError: `invalid_input` when the input has no text.
    """
    loaded = await load_thread(store, thread_id, turn.checkpoint_id)
    if loaded is None:
        raise CheckpointNotFound(
            f"the checkpoint of message {turn.message_id!r} of thread {thread_id!r} was pruned",
            threadId=thread_id,
            pruned=True,
        )
    given = thaw(loaded.machine.frames[ROOT].input)
    if not isinstance(given, Mapping) or not isinstance(given.get("query"), str):
        raise GraphflowError(f"message {turn.message_id!r} has no text that could be edited", code="invalid_input")
    # It goes to the moment before it, and what it brought was stored with it.
    return await with_bytes(store, loaded.chain, loaded.machine, given)


# --- pages of messages


async def messages_page(
    store: Checkpointer, thread_id: str, *, limit: int = 50, cursor: str | None = None
) -> tuple[list[MessageInfo], str | None]:
    """Messages of the present branch, newest first, and the cursor of the next page; costs what the page is.

    Raises:
        GraphflowError: `invalid_input` for an invalid cursor, or one of a branch that the thread has left.
    """
    stored = await store.load(thread_id)
    chain, given = ((), 0) if stored is None else _cut(stored.chain, cursor)
    page: list[tuple[Record, RecordBody]] = []
    count = -given
    async for record, body in walk_back(store, thread_id, chain, whole=False):
        if spoken := _spoken(body):
            page.append((record, body))
            count += spoken
        if count > limit:
            break
    out: list[tuple[MessageInfo, str]] = []
    for (record, body), events in zip(page, await _events_of(store, chain, page), strict=True):
        found = [said async for said in _said(store, thread_id, record, body, events)][::-1]
        out += [(said, f"{record.lineage}.{record.ordinal}.{n}") for n, said in enumerate(found, 1)]
    out = out[given:]
    return [said for said, _ in out[:limit]], out[limit - 1][1] if len(out) > limit else None


def _spoken(body: RecordBody) -> int:
    """How many messages the record may have."""
    return sum(row[0] in _SPOKEN for row in body.events) or int(body.source == "input")


def _cut(chain: Chain, cursor: str | None) -> tuple[Chain, int]:
    """The chain up to the record of the cursor, and how many of its messages were given."""
    if cursor is None:
        return chain, 0
    match = _CURSOR.fullmatch(cursor)
    lineage, ordinal, given = map(int, match.groups()) if match else (-1, 0, 0)
    for index, (number, last) in enumerate(chain):
        if number == lineage and 0 < ordinal <= last:
            return [*chain[:index], (lineage, ordinal)], given
    rule = f"{excerpt_of(cursor, 160)} is not the cursor of an earlier page of this branch; leave it out to start over"
    raise GraphflowError(f"cursor: {rule}", code="invalid_input", fields={"cursor": rule})


async def _events_of(
    store: Checkpointer, chain: Chain, page: list[tuple[Record, RecordBody]]
) -> list[list[RequestQuery | ContentSnapshot]]:
    """What each of these records, newest first, tells of messages; the texts of all are read at once."""
    events = iter(await read_events(store, chain, [record for record, _ in reversed(page)]))
    out = []
    for _, body in reversed(page):
        own = [next(events)[0] for row in body.events if row[0] != EPOCH]
        out.append([event for event in own if isinstance(event, RequestQuery | ContentSnapshot)])
    return out[::-1]


async def _said(
    store: Checkpointer, thread_id: str, record: Record, body: RecordBody, events: list[RequestQuery | ContentSnapshot]
) -> AsyncIterator[MessageInfo]:
    run_id = decode_meta(record.meta, record.id).run_id
    at = {"run_id": run_id, "checkpoint_id": record.id if was_checkpoint(record, body) else None}
    if body.source == "input" and not any(isinstance(event, RequestQuery) for event in events):
        # A run that Python code has begun: nobody announced its input.
        loaded = await load_thread(store, thread_id, record.id)
        given = loaded.machine.frames[ROOT].input if loaded is not None else None
        if isinstance(given, Mapping) and isinstance(given.get("query"), str):
            yield MessageInfo(message_id=run_id, role="user", content=given["query"], at=body.at, **at)
    for event in events:
        if isinstance(event, ContentSnapshot):
            yield MessageInfo(
                message_id=event.content_id, role="assistant", content=event.text, at=event.timestamp, **at
            )
        else:
            references = event.references or None
            yield MessageInfo(
                message_id=run_id, role="user", content=event.message, at=event.timestamp, references=references, **at
            )
