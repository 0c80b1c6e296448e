"""Resuming the unfinished run of a thread, and cancelling one that nobody drives (E1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.capabilities import By, asker_of
from graphflow.checkpoints.loading import Loaded
from graphflow.errors import GraphflowError
from graphflow.events import RunResume, RunStart
from graphflow.graph.core.ticks import AnyTick, Recovered, Resumed
from graphflow.runtime.runs.answer import expire
from graphflow.runtime.runs.concurrency import NOBODY, Audience, take
from graphflow.runtime.runs.live_runs import PreparedRun
from graphflow.runtime.runs.preconditions import UNFINISHED, check_unfinished, overdue_in
from graphflow.runtime.runs.run_host import RunHost
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


async def cancel(host: RunHost, thread_id: str, run_id: str | None = None) -> bool:
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
