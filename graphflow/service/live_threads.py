"""Threads that a run of this process drives, made durable before they are read."""

from __future__ import annotations

from contextlib import suppress

from graphflow.errors import StoreError
from graphflow.service.context import ServiceContext


async def flush_live(context: ServiceContext, thread_id: str) -> None:
    """Makes durable what a live run has done so far, so that readers of the store see what clients have seen."""
    live = context.runs.by_thread.get(thread_id)
    if live is not None and live.journal is not None:
        with suppress(StoreError):  # the run ends with it; what is durable can still be read
            await live.journal.flush()
