"""What is due: expiries and timers, looked at whenever a thread is touched, and by a sweep while a server runs (E12).

The sweep also hands over what waits in queues for threads that nobody drives (`input_queue.py`).
"""

from __future__ import annotations

import asyncio
import logging

from graphflow.errors import GraphflowError
from graphflow.runtime.launch import launch_expired
from graphflow.service.context import ServiceContext
from graphflow.service.runs import input_queue

INTERVAL_S = 1.0

log = logging.getLogger("graphflow.service")


async def expire_overdue(context: ServiceContext, thread_id: str | None = None) -> list[str]:
    """Closes what has expired, on one thread or on all; the ids of the threads that go on.

    A thread that another process drives is left to that process.
    """
    await context.runs.ready()
    overdue: dict[str, list[str]] = {}
    for row in await context.store.due(context.clock.now_ms()):
        if thread_id is None or row.thread_id == thread_id:
            overdue.setdefault(row.thread_id, []).append(row.interrupt_id)
    gone_on = []
    for key, interrupts in overdue.items():
        try:
            await _expire(context, key, interrupts)
        # One thread that is busy or broken must not keep the others from expiring.
        except GraphflowError as error:
            log.info("sweep: thread %s stays as it is: %s", key, error.message)
        else:
            gone_on.append(key)
    return gone_on


async def _expire(context: ServiceContext, thread_id: str, interrupts: list[str]) -> None:
    live = context.runs.by_thread.get(thread_id)
    # A waiting run of this process holds the thread, so it has to feed the expiry itself.
    if live is not None and not live.executor.ending:
        for interrupt_id in interrupts:
            live.executor.expire(interrupt_id)
        return
    graph = await context.graph_of_thread(thread_id)
    await launch_expired(graph.host, thread_id, interrupts, hold_ms=context.settings.tools.hold_ms)


async def sweep(context: ServiceContext, interval_s: float = INTERVAL_S) -> None:
    """Does what is due, again and again, until it is cancelled; runs in a task group of its caller."""
    context.queue.serving = True
    while True:
        try:
            if not context.stopping:
                await expire_overdue(context)
                await input_queue.sweep(context)
        except Exception:  # a store that is locked for a moment must not end the sweep
            log.exception("sweep failed; it tries again")
        await asyncio.sleep(interval_s)
