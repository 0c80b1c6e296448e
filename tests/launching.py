"""Starting detached runs as the service does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from graphflow import CompiledGraph
from graphflow.events import Event
from graphflow.runtime.launch import launch as detached
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.service.context import ServiceContext
from graphflow.service.runs.input_queue import StartedRun
from graphflow.service.runs.resume import resume as resume_thread


async def launch(
    app: CompiledGraph, input: Any = None, thread_id: str = "", preamble: Iterable[Event] = (), **options: Any
) -> LiveRun:
    """A run that no caller drives; options as of `RunRequest`."""
    return await detached(app.host, RunRequest(input=input, thread_id=thread_id, **options), preamble=preamble)


async def crash(live: LiveRun) -> None:
    """Leaves the thread as a killed process would: nothing of the end of its run is written."""
    assert live.task is not None
    live.executor.abandoned = True
    live.task.cancel()
    await asyncio.gather(live.task, return_exceptions=True)


async def resume(context: ServiceContext, thread_id: str, **options: Any) -> StartedRun:
    """Resumes a thread that no other process drives."""
    begun = await resume_thread(context, thread_id, **options)
    assert isinstance(begun, StartedRun)
    return begun
