"""What is due on threads, looked at whenever one is touched, and by a sweep while a server runs (E12)."""

from __future__ import annotations

import asyncio
import logging

from graphflow.service.context import ServiceContext
from graphflow.service.runs.input_queue import ServerRecovery, drain_soon

INTERVAL_S = 1.0

log = logging.getLogger("graphflow.service")


async def expire_overdue(context: ServiceContext, thread_id: str) -> None:
    """Closes what has expired on the thread; the caller holds its lock.

    A thread that another process drives is left to that process.
    """
    await context.runs.ready()
    recovery = ServerRecovery(context)
    if overdue := (await recovery.overdue()).get(thread_id):
        await recovery.go_on(thread_id, overdue)


async def look(context: ServiceContext, recovery: ServerRecovery) -> None:
    """Does what is due on all threads, once; runs that begin by it go on."""
    await context.runs.ready()
    for thread_id, overdue in (await recovery.due()).items():
        drain_soon(context, thread_id, overdue)
    if not recovery.takes_over or not await recovery.cut_off():
        return
    # One server at a time: the others would only be refused.
    async with context.store.alone("take over") as mine:
        if mine:
            tasks = [drain_soon(context, thread_id) for thread_id in await recovery.cut_off()]
            await asyncio.gather(*filter(None, tasks))


async def sweep(context: ServiceContext, interval_s: float = INTERVAL_S) -> None:
    """Does what is due, again and again, until it is cancelled; runs in a task group of its caller."""
    context.queue.serving = True
    recovery = ServerRecovery(context)
    while True:
        try:
            if not context.stopping:
                await look(context, recovery)
        except Exception:  # a store that is locked for a moment must not end the sweep
            log.exception("sweep failed; it tries again")
        await asyncio.sleep(interval_s)
