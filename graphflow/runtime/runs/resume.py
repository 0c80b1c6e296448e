"""Resuming the unfinished run of a thread, and cancelling it, whichever process drives it (E1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from graphflow.capabilities import By, asker_of
from graphflow.checkpoints.loading import Loaded
from graphflow.checkpoints.rows import ThreadRow
from graphflow.errors import GraphflowError, ThreadBusy
from graphflow.events import RunResume, RunStart
from graphflow.graph.core.ticks import AnyTick, Recovered, Resumed
from graphflow.runtime.runs.answer import expire
from graphflow.runtime.runs.concurrency import NOBODY, TRIES, Audience, take
from graphflow.runtime.runs.live_runs import POLL_S, STOP_WAIT_S, LiveRuns, PreparedRun
from graphflow.runtime.runs.preconditions import UNFINISHED, check_unfinished, overdue_in
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.run_list import read_runs
from graphflow.runtime.runs.taking import Taking, send_again

MOST_ATTEMPTS = 3
"""So often a run that lost its process is taken over at one checkpoint."""


async def resume(
    host: RunHost,
    thread_id: str,
    limits: Mapping[str, Any] | None = None,
    audience: Audience = NOBODY,
    *,
    counted: bool = False,
    by: By = None,
    run_id: str | None = None,
) -> PreparedRun:
    """A run that goes on from the head.

    A crashed run keeps its id; one that ended in an error or was cancelled goes on as another run (E1).

    Args:
        limits: over those that the run has; see `preconditions.budget_limits`.
        run_id: of a run that is another one; default: a new id.
        counted: nobody has asked for it. A run that has lost `MOST_ATTEMPTS` processes since its newest checkpoint is
            expected to take this one with it as well, so it fails as `dead`.
        by: who asks; another run than the one that was cut off may do no more than both may.
    """
    runs = host.need_runs()
    async with Taking(host, runs, await take(runs, thread_id)) as taking:
        loaded = await taking.runs.load_head(taking.row)
        machine = loaded.machine
        if machine.status == "waiting" and (overdue := overdue_in(machine, host.clock.now_ms())):
            # `expire` takes the thread itself; what was due happens before anything else (E12).
            await taking.give_back()
            return await expire(host, thread_id, overdue, audience)
        check_unfinished(machine)
        crashed = machine.status == "running"
        died = await _died(taking, loaded) if crashed and counted else None
        run_id = machine.run_id if crashed else run_id or host.ids.new_id()
        run = await taking.same_run(loaded, audience, run_id)
    executor = run.executor
    fresh = host.tick(Resumed, run_id=run_id, limits=limits or {}, starter=None if by is None else asker_of(by))
    # Only `Resumed` carries limits, so a crashed run with new ones resumes by it too.
    tick: AnyTick = host.tick(Recovered, error=died) if crashed and not limits else fresh

    def before() -> None:
        if run_id == machine.run_id:
            send_again(executor, loaded)
        else:
            executor.emit(RunStart(run_id=run_id, chat_id=thread_id))
        executor.emit(RunResume(run_id=run_id, chat_id=thread_id, checkpoint_id=executor.checkpoint_id or ""))

    return PreparedRun(taking.runs, run, tick, before)


async def _died(taking: Taking, loaded: Loaded) -> dict[str, Any] | None:
    """The error by which the run ends, once it was begun again too often. Counted before anything of it runs."""
    attempts = await taking.runs.store.count_attempt(taking.row.thread_id, loaded.checkpoint_id or "")
    if attempts <= MOST_ATTEMPTS:
        return None
    return GraphflowError(
        f"the run was taken over {MOST_ATTEMPTS} times at this checkpoint and lost its process each time; find out in the"
        " servers' logs what ends them, then resume the thread",
        code="dead",
        attempts=MOST_ATTEMPTS,
        checkpointId=loaded.checkpoint_id,
    ).as_dict()


async def cancel(host: RunHost, thread_id: str) -> bool:
    """Cancels the run that drives or waits on the thread; whether one was cancelled, as the store has it.

    Raises:
        ThreadBusy: the process that drives it does not respond.
    """
    runs = await host.open_runs()
    run_id: str | None = None
    for _ in range(TRIES):
        found = await _row_of_run(runs, thread_id)
        live = runs.by_thread.get(thread_id)
        # Another run may begin as soon as this one has ended, and nobody has asked to cancel that.
        now = live.run_id if live is not None else None if found is None else found.facts.run_id
        if run_id not in (None, now):
            return await _was_cancelled(runs, thread_id, run_id)
        # A driven run has to be cancelled by its driver: only that process holds the fence to commit with.
        if live is not None or (found is not None and runs.is_driven(found)):
            run_id = now
            await runs.preempt(thread_id)
            continue  # it may have been lost instead: its process was gone, and the run is still to be cancelled
        # Look before taking: a take increments the fence even when there is nothing to cancel.
        if (await host.load(thread_id, logs=False)).machine.status not in UNFINISHED:
            return await _was_cancelled(runs, thread_id, run_id)
        with suppress(ThreadBusy):  # somebody has just taken it
            return await _cancel_undriven(host, thread_id, run_id) or await _was_cancelled(runs, thread_id, run_id)
    raise ThreadBusy(f"thread {thread_id!r} is taken again and again; cancel once more", threadId=thread_id)


async def _row_of_run(runs: LiveRuns, thread_id: str) -> ThreadRow | None:
    """The thread's row once it shows the run that drives it: a run that has just begun has no record yet."""
    until = time.monotonic() + STOP_WAIT_S
    row = await runs.store.thread(thread_id)
    while (
        row is not None
        and runs.is_driven(row)
        and row.facts.status not in UNFINISHED
        and thread_id not in runs.by_thread
    ):
        if time.monotonic() > until:
            raise ThreadBusy(
                f"thread {thread_id!r} is taken, and no run of it is on record yet; cancel once more",
                threadId=thread_id,
            )
        await asyncio.sleep(POLL_S)
        row = await runs.store.thread(thread_id)
    return row


async def _was_cancelled(runs: LiveRuns, thread_id: str, run_id: str | None) -> bool:
    """Whether the run that was asked to end did so for that: it may have completed first, or waits by now."""
    row = None if run_id is None else await runs.store.thread(thread_id)
    if run_id is None or row is None:
        return False
    (run,) = await read_runs(runs, [(run_id, row)])
    return run.info.status == "cancelled"


async def _cancel_undriven(host: RunHost, thread_id: str, run_id: str | None) -> bool:
    """Cancels a run that nobody drives: one that waits, or whose process has died. Whether there was one.

    Args:
        run_id: only this one.
    """
    runs = host.need_runs()
    async with Taking(host, runs, await take(runs, thread_id)) as taking:
        loaded = await taking.runs.load_head(taking.row)
        if loaded.machine.status not in UNFINISHED or run_id not in (None, loaded.machine.run_id):
            await taking.give_back()
            return False
        ended = await taking.record(loaded, lambda executor: executor.cancel())
    await taking.runs.notify(ended)
    return True
