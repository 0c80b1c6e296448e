"""`app.recover`: what a server's sweep does, for the threads of one graph where no server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError
from graphflow.runtime.recovery import Recovery
from graphflow.runtime.recovery_pauses import RecoveryPauses
from graphflow.runtime.result import RunResult, result_from
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns, abandon
from graphflow.runtime.runs.run_host import RunHost

log = logging.getLogger("graphflow.runtime")


class RecoveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` has done."""

    results: list[RunResult]
    """Of each run that went on or began, in the order in which they ended or began to wait."""
    refused: list[RunRequest]
    """Queued inputs that could never begin, and were dropped."""
    errors: dict[str, GraphflowError]
    """Why the thread of this id was left as it is."""


class GraphRecovery(Recovery):
    """Recovery of the threads of one graph, in runs that end with it.

    Args:
        other_versions: see `CompiledGraph.recover`.
        max_concurrency: threads at once.
    """

    takes_over = True
    hold_ms = 0

    def __init__(self, host: RunHost, *, other_versions: bool = False, max_concurrency: int = 8) -> None:
        if max_concurrency < 1:
            raise GraphflowError(f"max_concurrency is {max_concurrency}; let at least 1 run", code="invalid_input")
        self._host, self._other_versions = host, other_versions
        self._gate = asyncio.Semaphore(max_concurrency)
        self._lives: set[LiveRun] = set()
        self._at_work: set[str] = set()
        self.pauses = RecoveryPauses()
        self.done = RecoveryResult(results=[], refused=[], errors={})

    @property
    def runs(self) -> LiveRuns:
        return self._host.need_runs()

    async def host(self, row: ThreadRow, queued: RunRequest | None = None) -> RunHost | None:
        own = self._host
        key = row.facts.agent_key if queued is None or queued.agent_key is None else queued.agent_key
        if key != own.agent_key:
            return None
        # Threads of a graph without a name are known by its document alone.
        begun_under = row.facts.document
        if key is None and not self._other_versions and begun_under not in (None, own.documents.newest().digest):
            return None
        return own

    def refused(self, position: int, queued: RunRequest, refusal: GraphflowError) -> None:
        super().refused(position, queued, refusal)
        self.done.refused.append(queued)

    def failed(self, thread_id: str, error: GraphflowError) -> None:
        super().failed(thread_id, error)
        self.done.errors[thread_id] = error

    async def once(self) -> RecoveryResult:
        """Does all that is due now, to its end."""
        await self.runs.ready()
        try:
            async with asyncio.TaskGroup() as group:
                await self._look(group)
        finally:
            await abandon(self._lives)
        return self.done

    async def again_and_again(self, interval_s: float) -> None:
        """Does what is due, until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    try:
                        await self.runs.ready()
                        await self._look(group)
                    except GraphflowError as error:  # a store that is locked for a moment must not end it
                        log.warning("recovery failed and tries again: %s", error.message)
                    self.done = RecoveryResult(results=[], refused=[], errors={})  # nobody reads it
                    await asyncio.sleep(interval_s)
        finally:
            await abandon(self._lives)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        found = await self.due()
        for thread_id, overdue in {**dict.fromkeys(await self.cut_off(), ()), **found}.items():
            if thread_id not in self._at_work:
                self._at_work.add(thread_id)
                group.create_task(self._settle(thread_id, overdue))

    async def _settle(self, thread_id: str, overdue: Sequence[str]) -> None:
        """Does what is due on one thread, until nothing is."""
        try:
            async with self._gate:
                while (live := await self.go_on(thread_id, overdue)) is not None:
                    overdue = ()
                    self._lives.add(live)
                    await live.over.wait()
                    self._lives.discard(live)
                    executor = live.executor
                    if executor.error is not None:  # the store failed; it would fail again
                        self.failed(thread_id, executor.error)
                        return
                    self.done.results.append(
                        result_from(
                            executor.plan, executor.machine, thread_id, executor.checkpoint_id, executor.run.cause
                        )
                    )
        except GraphflowError as error:
            self.failed(thread_id, error)
        finally:
            self._at_work.discard(thread_id)
