"""`on_busy='rollback'`: new input that undoes the run which drives its thread (E8)."""

from __future__ import annotations

import msgspec

from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.errors import CheckpointNotFound, ThreadBusy
from graphflow.runtime.history.effects import CHOICES, effects_behind, resolve_choices
from graphflow.runtime.history.messages import nothing_yet
from graphflow.runtime.run_request import RunRequest
from graphflow.runtime.runs.concurrency import TRIES, CheckedInput
from graphflow.runtime.runs.live_runs import LiveRuns, PreparedRun
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.start import start_now
from graphflow.runtime.travel.rewind_fork_edit import Travel


async def start_after_rollback(host: RunHost, new: CheckedInput) -> PreparedRun:
    """The run of an input that undoes the run which drives the thread; without one it just starts.

    Raises:
        EffectsNeedChoice: that run has done `write` effects which have no choice; it goes on.
    """
    runs, request = host.need_runs(), new.request
    # Not a public value: it keeps `take` from preempting, so a thread that is busy again comes back to this loop.
    again = msgspec.structs.replace(new, request=msgspec.structs.replace(request, on_busy="next"))
    last: ThreadBusy | None = None
    for _ in range(TRIES):
        await runs.ready()
        await _roll_back(host, runs, request)
        try:
            # Whoever has taken the thread in between is rolled back too, not only interrupted.
            return await start_now(host, runs, again)
        except ThreadBusy as busy:
            last = busy
    assert last is not None
    raise last


async def _roll_back(host: RunHost, runs: LiveRuns, request: RunRequest) -> None:
    """Cancels the run that drives the thread, and commits a head that goes on from where it began."""
    thread_id, effects = request.thread_id, request.effects
    live = runs.by_thread.get(thread_id)
    # The effects below are read from the store, so the run's latest writes have to be there.
    if live is not None and live.journal is not None:
        await live.journal.flush()
    row = await runs.store.thread(thread_id)
    if row is None or not runs.is_driven(row) or row.facts.status == "waiting":
        return
    run_id = row.facts.run_id
    head = await load_thread(runs.store, thread_id)
    if head is None or head.row.head is None:  # taken, and nothing recorded yet
        await runs.preempt(thread_id)
        return
    target = await _before_run(runs, head, run_id)
    # Raises before anything is cancelled, so a refused rollback leaves the run alone.
    # `reuse` is no choice here: new input follows, and repeats nothing of a past that was left.
    allowed = [word for word in CHOICES if word != "reuse"]
    resolve_choices(await effects_behind(runs.store, head, target), effects, "rollback", allowed)
    await runs.preempt(thread_id)
    # Meanwhile the run may have ended and another begun; only the one whose effects were judged is rolled back.
    row = await runs.store.thread(thread_id)
    if row is not None and row.facts.run_id == run_id:
        travel = Travel(host, thread_id)
        starter = request.starter
        await travel.rewind_to(target, effects, cancel=False, by=request.by, what="rollback", starter=starter)


async def _before_run(runs: LiveRuns, head: Loaded, run_id: str | None) -> Loaded:
    """The thread as it was before the run; before a thread's first run it is empty.

    Raises:
        CheckpointNotFound: that checkpoint was pruned.
    """
    store, thread_id = runs.store, head.row.thread_id
    before: str | None = None
    first = None
    while rows := await store.list_checkpoints(thread_id, before=before, limit=100):
        for listed in rows:
            if decode_meta(listed.meta, listed.id).run_id != run_id:
                found = await load_thread(store, thread_id, listed.id)
                if found is not None:
                    return found
        first, before = rows[-1], rows[-1].id
    # A thread's first checkpoint has ordinal 1 in its first lineage; any other means that earlier ones are gone.
    if first is not None and (first.ordinal != 1 or first.lineage != head.chain[0][0]):
        raise CheckpointNotFound(
            f"the checkpoint before run {run_id!r} of thread {thread_id!r} was pruned, so it can't be rolled back; "
            "pass on_busy='interrupt'"
        )
    return nothing_yet(head)
