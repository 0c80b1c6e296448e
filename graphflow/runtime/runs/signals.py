"""Sends signals to a thread, whichever process drives it (spec 2.4, E2)."""

from __future__ import annotations

from graphflow.errors import GraphflowError, ThreadBusy, ThreadNotFound, check_size
from graphflow.runtime.queue_codec import Signal, decode_queued, encode_queued
from graphflow.runtime.runs.concurrency import Audience, take
from graphflow.runtime.runs.live_runs import LiveRun, LiveRuns, PreparedRun
from graphflow.runtime.runs.preconditions import check_signal, is_awaited
from graphflow.runtime.runs.run_host import RunHost
from graphflow.runtime.runs.taking import Taking, adopt_run


async def deliver(
    host: RunHost, thread_id: str, signal: Signal, *, hold_ms: int | None = None, position: int | None = None
) -> LiveRun | None:
    """The run that the signal wakes in this process, or None: it is kept, or on its way to the process that drives it.

    Args:
        position: its entry in the thread's queue, when it comes from there.

    Raises:
        ThreadNotFound: no such thread.
        GraphflowError: `nothing_to_resume` when the thread has no unfinished run.
        LimitExceeded: the payload is too large.
    """
    if position is None:
        check_size(signal.payload, host.documents.bounds, f"the payload of signal {signal.name!r}")
    runs = host.runs
    if runs is None:
        raise GraphflowError("without a checkpointer no thread waits for a signal", code="nothing_to_resume")
    await runs.ready()
    if (live := _live(runs, thread_id)) is not None:
        return _feed(host, runs, live, signal, position)
    try:
        woken = await _wake(host, runs, thread_id, signal, Audience(log=True, hold_ms=hold_ms), position)
    except ThreadBusy:
        # A run of this process may have taken the thread while `_wake` awaited the store.
        if (live := _live(runs, thread_id)) is not None:
            return _feed(host, runs, live, signal, position)
        # A signal with a position is in the queue already.
        if position is None:
            await runs.store.enqueue(thread_id, encode_queued(signal), now=runs.clock.now_ms(), kind="signal")
        return None
    return None if woken is None else runs.start(woken)


async def _wake(
    host: RunHost, runs: LiveRuns, thread_id: str, signal: Signal, audience: Audience, position: int | None
) -> PreparedRun | None:
    """A run that goes on where a `wait` node takes the signal; None when the signal was kept for one to come."""
    async with Taking(host, runs, await take(runs, thread_id)) as taking:
        loaded = await runs.load_head(taking.row)
        check_signal(loaded.machine, signal.name, host.documents.bounds)
        if not is_awaited(loaded.machine, signal.name):
            await taking.record(loaded, lambda executor: executor.signal(signal.name, signal.payload), position)
            return None
        run = await taking.same_run(loaded, audience)
    journal = run.journal
    assert journal is not None

    def before() -> None:
        adopt_run(host, run.executor, loaded)
        runs.signal(run, journal, signal, position)

    return PreparedRun(runs, run, None, before)


def _live(runs: LiveRuns, thread_id: str) -> LiveRun | None:
    live = runs.by_thread.get(thread_id)
    # A run that is ending takes no more ticks.
    return live if live is not None and not live.executor.ending else None


def _feed(host: RunHost, runs: LiveRuns, live: LiveRun, signal: Signal, position: int | None) -> LiveRun | None:
    journal = live.journal
    assert journal is not None
    check_signal(live.executor.machine, signal.name, host.documents.bounds)
    awaited = is_awaited(live.executor.machine, signal.name)
    runs.signal(live, journal, signal, position)
    return live if awaited else None


async def deliver_queued(
    host: RunHost, runs: LiveRuns, thread_id: str, *, hold_ms: int | None = None
) -> LiveRun | None:
    """Hands the signals in a thread's queue over, oldest first; those that no unfinished run can take are dropped.

    Returns:
        The run that they have woken, if any.
    """
    woken: LiveRun | None = None
    for entry in await runs.store.queue(thread_id, kind="signal"):
        try:
            signal = decode_queued(entry)
            woken = await deliver(host, thread_id, signal, hold_ms=hold_ms, position=entry.position) or woken
        except ThreadNotFound:
            return woken
        except GraphflowError as refusal:
            if refusal.code == "nothing_to_resume":
                await runs.store.withdraw(thread_id, entry.position)
    return woken
