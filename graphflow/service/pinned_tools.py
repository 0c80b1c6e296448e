"""Which version of the tools the unfinished runs of this process began with; they keep it (spec 1.1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from graphflow.checkpoints.rows import ThreadRow
from graphflow.runtime.runs.live_runs import LiveRun

MAX_RUNS = 10_000
"""Beyond that the runs that have waited longest go on with the newest tools."""
_UNFINISHED = ("waiting", "stopped")
UNFINISHED = ("running", "failed", *_UNFINISHED)
"""Statuses of threads whose run may go on."""


class PinnedTools:
    """The services of runs that wait or were stopped, by thread."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, tuple[str, Mapping[str, Any]]] = OrderedDict()

    async def ended(self, live: LiveRun) -> None:
        """A listener of `RunRegistry.on_end`: a run of this process has ended or waits."""
        machine = live.executor.machine
        # Removed before it is added again: the order of the table is that of waiting.
        self._runs.pop(live.thread_id, None)
        if machine.status in _UNFINISHED:
            self._runs[live.thread_id] = (machine.run_id, live.executor.run.services)
            if len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)

    def services(self, row: ThreadRow) -> Mapping[str, Any] | None:
        """What the thread's run began with; None when it has ended, or did not begin in this process."""
        run_id, services = self._runs.get(row.thread_id, ("", {}))
        # The thread may have begun another run in another process since.
        return services if run_id and run_id == row.facts.run_id else None
