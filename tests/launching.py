"""Starting detached runs as the service does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphflow import CompiledGraph
from graphflow.events import Event
from graphflow.runtime.launch import launch as detached
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRun


async def launch(
    app: CompiledGraph, input: Any = None, thread_id: str = "", preamble: Iterable[Event] = (), **options: Any
) -> LiveRun:
    """A run that no caller drives; options as of `RunRequest`."""
    return await detached(app.host, RunRequest(input=input, thread_id=thread_id, **options), preamble=preamble)
