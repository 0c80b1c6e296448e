"""A thread that this process has taken, and the executor of what happens on it next (E1, E2)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

import msgspec

from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.rows import ThreadRow
from graphflow.events import Event, RunResume
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import Recovered, Resumed
from graphflow.graph.engine.executor import Executor
from graphflow.graph.engine.run import Run
from graphflow.runtime.history.effects import recalling
from graphflow.runtime.history.stored_events import stored_log
from graphflow.runtime.runs.concurrency import NOBODY, Audience
from graphflow.runtime.runs.event_ring import RunLog
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns
from graphflow.runtime.runs.preconditions import check_declared
from graphflow.runtime.runs.run_host import RunHost


class Taking:
    """A taken thread, given back if the block fails.

    A run that starts on it takes over the row's fence and gives the thread back at its end.
    """

    def __init__(self, host: RunHost, runs: LiveRuns, row: ThreadRow) -> None:
        self.host, self.runs, self.row = host, runs, row

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        # Also on cancellation: leases are renewed per process, so a thread without a run would stay taken.
        if kind is not None:
            await self.give_back()

    async def give_back(self) -> None:
        await self.runs.store.release(self.row.thread_id, self.row.fence)

    async def pinned(self) -> Plan:
        """The plan of the version that the thread has begun."""
        return await self.host.documents.pinned(self.row.facts.document)

    def new_run(
        self, plan: Plan, machine: Machine, journal: ThreadJournal, audience: Audience, *, run_id: str, seq: int = 0
    ) -> LiveRun:
        """A run to be driven, whose log begins after `seq`."""
        log = RunLog(self.row.fence, seq) if audience.log else None
        executor = make_executor(self.host, plan, machine, journal, audience=audience, log=log, seq=seq)
        run = LiveRun(executor, journal, log, run_id=run_id)
        run.lease = executor.run.lease = self.runs.leases.lease_of(self.row, executor.lose, audience.outbox or log)
        return run

    async def same_run(self, loaded: Loaded, audience: Audience, run_id: str | None = None) -> LiveRun:
        """The thread's run, under the version that it is pinned to.

        Its log goes on, unless it goes on as another run, `run_id`: that log begins with this epoch. Which of the two is
        decided here, since the caller reads the log's mark before anything has been sent.
        """
        # Who is sent word of a run gets it when the run rests: it is held open for nobody.
        if audience.hold() and await self.runs.store.queue(self.row.thread_id, kind="webhook", limit=1):
            audience = msgspec.structs.replace(audience, hold_ms=0)
        plan = await self.pinned()
        check_declared(plan, loaded.machine)
        journal = ThreadJournal(self.runs.store, self.row, self.row.facts, loaded=loaded)
        if run_id is not None and run_id != loaded.machine.run_id:
            return self.new_run(plan, loaded.machine, journal, audience, run_id=run_id)
        run = self.new_run(plan, loaded.machine, journal, audience, run_id=loaded.machine.run_id, seq=loaded.mark)
        # Entries above the mark may have reached nobody; `send_again` sends those anew.
        run.executor.restore_log([entry for entry in loaded.pending if entry[0].seq <= loaded.mark])
        return run

    async def record(self, loaded: Loaded, act: Callable[[Executor], object], consumes: int | None = None) -> LiveRun:
        """Commits what `act` does to the thread's run without driving it, and gives the thread back."""
        plan = await self.pinned()
        journal = ThreadJournal(self.runs.store, self.row, self.row.facts, loaded=loaded)
        journal.consumes = consumes
        executor = make_executor(self.host, plan, loaded.machine, journal, seq=loaded.seq)
        executor.restore_log(list(loaded.pending))
        act(executor)
        await executor.flush()
        await journal.release()
        self.runs.keep_hot(journal.as_loaded(executor.machine, executor.seq, executor.sent))
        return LiveRun(executor, journal)


def make_executor(
    host: RunHost,
    plan: Plan,
    machine: Machine,
    journal: ThreadJournal | None,
    *,
    thread_id: str = "",
    audience: Audience = NOBODY,
    log: RunLog | None = None,
    seq: int = 0,
) -> Executor:
    """The loop for one epoch of a taken thread; without a journal nothing is stored.

    Args:
        thread_id: without a journal.
    """
    outbox = audience.outbox
    services: Mapping[str, Any] = host.services
    # Only after going back with `reuse` are results of earlier records looked up (E8).
    if machine.reuse and journal is not None:
        services = ChainMap({"recall": recalling(journal.store)}, services)  # type: ignore[arg-type] # only read
    run = Run(
        plan,
        machine,
        thread_id=thread_id if journal is None else journal.row.thread_id,
        clock=host.clock,
        ids=host.ids,
        journal=journal,
        sink=outbox.put if outbox is not None else log.send if log is not None else None,
        room=outbox.room if outbox is not None else None,
        services=services,
        epoch=1 if journal is None else journal.row.fence,
        lineage=0 if journal is None else journal.lineage,
        seq=seq,
    )
    executor = Executor(run, hold_ms=audience.hold(), checkpoint_id=None if journal is None else journal.checkpoint_id)
    # Only a run that goes on may have tool calls that an earlier epoch announced.
    if journal is not None and seq:
        executor.events.calls.recall = partial(_stored_events, journal, machine.run_id)
    return executor


async def _stored_events(journal: ThreadJournal, run_id: str) -> list[Event]:
    """What earlier epochs of the run have sent, as far as it is stored."""
    log = await stored_log(journal.store, journal.row.thread_id, journal.chain, run_id, over=False)
    return [event for event, _ in log.events]


def adopt_run(host: RunHost, executor: Executor, loaded: Loaded, preamble: Iterable[Event] = ()) -> None:
    """Sends that the run is resumed, just before what wakes it is fed.

    On a thread that was cut off, rewound, forked or edited, nodes may be unfinished beside the questions: with the answer
    the whole run goes on.
    """
    machine = loaded.machine
    executor.adopt()
    send_again(executor, loaded)
    for event in preamble:
        executor.emit(event)
    executor.resuming = RunResume(
        run_id=machine.run_id, chat_id=executor.thread_id, checkpoint_id=executor.checkpoint_id or ""
    )
    if machine.status == "waiting":
        return
    # Fed together with what the caller feeds next: the thread is not given back in between.
    executor.together = True
    crashed = machine.status == "running"
    executor.feed(host.tick(Recovered) if crashed else host.tick(Resumed, run_id=machine.run_id, limits={}))
    executor.together = False


def send_again(executor: Executor, loaded: Loaded) -> None:
    """After a crash: what followed the last commit may have reached nobody, so this epoch sends it (E1)."""
    executor.events.send_again((event, event.timestamp) for event, _ in loaded.pending if event.seq > loaded.mark)
