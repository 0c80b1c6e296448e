"""The inputs that wait for their turn on a thread, as the store has them (spec 2.4)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec

from graphflow.checkpoints.rows import Queued
from graphflow.runtime.queue_codec import decode_queued
from graphflow.runtime.run_request import RunRequest
from graphflow.service.context import ServiceContext

PAGE = 10_000
YOUNG_MS = 1_000
CLOCKS_MS = 600_000
"""By so much the clocks of servers may differ."""
LOOK_S = 0.05


class QueuedInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that was accepted and waits for its turn."""

    run_id: str
    chat_id: str
    request_id: str | None
    position: int
    """As the store counts."""
    place: int
    """1: it is next."""
    begins: asyncio.Future[Any] | None = None
    """Kept with it: a run that begins before anybody waits for it is still reported to a later waiter."""


async def queued_inputs(context: ServiceContext, chat_id: str) -> list[tuple[Queued, RunRequest]]:
    """The inputs that wait, in order."""
    await context.runs.ready()
    found = await context.store.queue(chat_id, kind="input", limit=PAGE)
    return [(entry, decode_queued(entry)) for entry in found]


async def find_run(context: ServiceContext, run_id: str) -> str | None:
    """The thread of a run, in whichever process; None when there is none.

    A client has the first events of a run before its first commit is durable, so a run whose id may be that young, made
    by a server whose clock differs, is looked for again for a while.
    """
    until = context.clock.monotonic() + YOUNG_MS / 1000
    while True:
        found = await context.store.find_run(run_id)
        made_lately = abs(context.clock.now_ms() - _made_at(run_id)) <= CLOCKS_MS
        if found is not None or not made_lately or context.clock.monotonic() > until:
            return found
        await asyncio.sleep(LOOK_S)


def _made_at(run_id: str) -> int:
    """When the id was made, epoch ms; 0 when it does not tell."""
    try:
        parsed = uuid.UUID(run_id)
    except ValueError:
        return 0
    return parsed.int >> 80 if parsed.version == 7 else 0


async def find_queued(context: ServiceContext, run_id: str) -> QueuedInput | None:
    """The input of a run that has not begun."""
    await context.runs.ready()
    chat_id = await context.store.find_run(run_id)
    if chat_id is None:
        return None
    for place, (entry, queued) in enumerate(await queued_inputs(context, chat_id), 1):
        if queued.run_id == run_id:
            return QueuedInput(
                run_id=run_id, chat_id=chat_id, request_id=queued.request_id, position=entry.position, place=place
            )
    return None
