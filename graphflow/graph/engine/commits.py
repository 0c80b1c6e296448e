"""The commits of one epoch: written in order; the events that follow each are sent once it is durable (E1, E7).

Nothing is started or announced before its record is written: after a crash in between it would happen twice, or
readers would have seen something that never was. So an executor commits first, starts what the commit allows, and
announces last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from graphflow.errors import Fenced, GraphflowError, StoreError
from graphflow.events import RunError
from graphflow.graph.core.commands import Command, Commit
from graphflow.graph.core.machine import Interrupt, Machine, Patch
from graphflow.graph.core.ticks import AnyTick, NodeSucceeded
from graphflow.graph.core.transition import advance
from graphflow.graph.engine.announcements import After, count_after, events_after
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.scheduler import Scheduler
from graphflow.graph.engine.state_bound import MUCH_BYTES, MuchToStore, StateBound
from graphflow.graph.engine.suspension import NodeRunOver

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

GIVE_WAY_S = 0.001
"""Seconds for which a run may keep the event loop while its commits are written in the loop's thread."""


Computed = tuple[Machine, list[Command], Any]
"""The machine after a tick, the commands, and what the journal made of the commit."""


@cache
def _pool() -> ThreadPoolExecutor:
    """One thread for all runs: several that compute would share the interpreter lock with the event loop, and delay it by as
    many of their slices.
    """
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix="graphflow-join")


class BesideTheLoop:
    """Ticks that a thread computes while the event loop turns; they take effect in the order in which they came.

    The machine stays as it is until then: whatever feeds a tick meanwhile waits.

    Args:
        compute: what a tick leads to; changes nothing.
    """

    __slots__ = ("_compute", "_run", "now")

    def __init__(self, run: Run, compute: Callable[..., Computed]) -> None:
        self._run, self._compute = run, compute
        self.now: _Computing | None = None
        """The tick that is being computed."""
        run.feed_apart = self.feed

    async def feed(self, tick: AnyTick) -> None:
        """As `Executor.feed`."""
        if self._run.error is not None:
            raise self._run.error
        self.settle(tick)
        now = self.now = _Computing(tick, partial(self._compute, tick, apart=True))
        await asyncio.wait((asyncio.wrap_future(now.future),))
        if self.now is now:
            self.settle()
        if now.failure is not None:
            raise now.failure

    def settle(self, tick: AnyTick | None = None) -> None:
        """Performs what is being computed, once it is there.

        Args:
            tick: what comes after it.

        Raises:
            NodeRunOver: it has ended the node run whose tick comes after it.
        """
        now, self.now = self.now, None
        if now is None:
            return
        run, number = self._run, getattr(tick, "frame", None)
        before = None if number is None else run.machine.frames.get(number)
        if (computed := now.result()) is not None:
            run.feed(now.tick, computed)
        if number is not None and run.machine.frames.get(number) is not before:
            raise NodeRunOver(f"the node run of frame {number} has ended; nothing takes its {type(tick).__name__}")


class _Computing:
    __slots__ = ("_compute", "failure", "future", "tick")

    def __init__(self, tick: AnyTick, compute: Callable[[], Computed]) -> None:
        self.tick, self._compute = tick, compute
        self.future = _pool().submit(copy_context().run, compute)
        self.failure: Exception | None = None
        """Why the tick has no effect, once `result` has been asked for."""

    def result(self) -> Computed | None:
        """What was computed; None with a `failure`."""
        try:
            # Others may keep the thread: what has not begun is computed at once.
            return self._compute() if self.future.cancel() else self.future.result()
        except Exception as failure:  # noqa: BLE001 - raised to the node whose tick it is
            self.failure = failure
            return None


class Commits:
    """What one epoch has written.

    Args:
        tasks: ended at once when the store fails.
        checkpoint_id: the newest checkpoint, the parent of the next.
    """

    def __init__(self, run: Run, tasks: Scheduler, checkpoint_id: str | None) -> None:
        self._run, self._tasks = run, tasks
        self.beside = BesideTheLoop(run, self.compute)
        self._bound = StateBound(run.plan.bounds.state_bytes)
        self.checkpoint_id = checkpoint_id
        self.paused = False
        """Whether the last commit gave the thread back and knew the number of `run.waiting`."""
        self._gave_way = 0.0
        """When a run whose commits were written at once last let the event loop turn."""

    def compute(self, tick: AnyTick, *, apart: bool = False) -> Computed:
        """What a tick leads to, and the record of it; nothing has changed yet.

        Args:
            apart: in a thread, where time does not matter.

        Raises:
            MuchToStore: a node's result belongs there.
            CodecError: the change can't be stored.
            LimitExceeded: the state would become too large.
        """
        run = self._run
        if run.usage and tick.usages is None:  # usage of node runs that this tick cancels counts too
            tick.usages = run.usage
        taken = None
        if apart and run.journal is not None:
            tick, taken = run.journal.without_bytes(tick, run.machine)
        machine, commands = advance(run.plan, run.machine, tick)
        commit = commands[0]
        assert isinstance(commit, Commit)
        written = self._bound.admit(tick, commit)
        if run.journal is None:
            return machine, commands, None
        if written > MUCH_BYTES and not apart and type(tick) is NodeSucceeded:
            self._bound.forget()
            raise MuchToStore
        # Encoded before anything changes: a value that can't be stored fails its node, and the machine is as it was.
        prepared = run.journal.prepare(commit, taken)
        if (
            prepared.media
        ):  # once more with references: few ticks have media, and the others need no look into their values
            changed, taken = run.journal.without_bytes(tick, run.machine)
            if changed is not tick:
                machine, commands = advance(run.plan, run.machine, changed)
                commit = commands[0]
                assert isinstance(commit, Commit)
                prepared = run.journal.prepare(commit, taken)
        return machine, commands, prepared

    def write(
        self, commit: Commit, prepared: Any, requests: list[Interrupt], finished: str | None, *, rests: bool
    ) -> None:
        """Queues a record, and notes what is to be said once it is durable.

        Args:
            prepared: what the journal made of the commit; unused without a journal.
            requests: questions that it opens.
            finished: how the run is over with it, if it is.
            rests: whether the run waits with it, and nothing can be sent any more but what follows the commits so far.
        """
        run = self._run
        if run.events.plan is not None:
            run.events.emit_plan(run.machine)
        after = After(commit, None, requests, finished, self.checkpoint_id)
        if run.journal is not None:
            self.paused = rests
            # The thread is given back in the transaction of the last record: there is no moment in which the run is
            # over and its thread still taken, nor one in which another process has it and this one writes on.
            release = finished is not None or rests
            tail = 0
            if release:
                tail = sum(count_after(a) for a in run.pending) + count_after(after) + commit.checkpoint + rests
            after.durable = run.journal.write(prepared, run.events.taken(), run.events.seq, tail, release)
            if commit.checkpoint:
                self.checkpoint_id = commit.id
        run.pending.append(after)

    def announce(self) -> None:
        """Sends what follows each durable commit, in the order of the commits."""
        run = self._run
        pending = run.pending
        if not pending:
            return  # a late callback of the store, for an epoch that is over
        while pending:
            after = pending[0]
            durable = after.durable
            if durable is not None:
                if not durable.done:
                    if not after.awaited:  # records become durable in order, so one callback at a time is enough
                        after.awaited = True
                        durable.when_done(self.announce)
                    return
                failure = durable.error
                if failure is not None:
                    self.fail(failure)
                    return
            pending.popleft()
            machine = after.commit.machine or run.machine
            for event in events_after(after, machine):
                run.events.emit_at(event, after.commit.at)
        run.wake()

    def fail(self, failure: BaseException) -> None:
        """A failed commit ends the run at once (E7); a fenced one silently (E2).

        A fenced epoch has lost its thread to another one, whose events are the true ones from now on.
        """
        run = self._run
        if run.error is not None:
            return
        run.pending.clear()
        self._tasks.runs.close_blocks()
        run.error = failure if isinstance(failure, GraphflowError) else StoreError(str(failure))
        if not isinstance(run.error, Fenced):
            run.events.emit_unlogged(RunError(run_id=run.machine.run_id, error=run.error.as_dict()))
        for number in self._tasks.runs.numbers():
            self._tasks.cancel_node(number)
        run.wake()

    async def acknowledged(self, but: int = 0) -> None:
        """Waits until every commit so far is durable, but for the newest `but`."""
        run = self._run
        while len(run.pending) > but and run.error is None:
            await run.rest()

    async def acknowledged_soon(self) -> None:
        """As `acknowledged`, by the shortest way that the store knows; the run goes no further before."""
        run = self._run
        if run.journal is not None and not self._tasks.running:
            run.journal.hurry()
        if run.pending or run.clock.monotonic() - self._gave_way > GIVE_WAY_S:
            await (self.acknowledged() if run.pending else asyncio.sleep(0))
            self._gave_way = run.clock.monotonic()

    async def pause(self) -> int:
        """Gives the thread back, unless the last commit did; the time of `run.waiting`.

        It takes a record of what was sent since the last one: the commit that opened the questions could not know what
        nodes would still send before they were left (E1).
        """
        run = self._run
        machine = run.machine
        if self.paused:
            return machine.last_at
        at = max(run.clock.now_ms(), machine.last_at)
        if run.journal is not None:
            commit = Commit(run.ids.new_id(), at, "paused", False, Patch({}, {}, {}), before=machine, machine=machine)
            prepared = run.journal.prepare(commit)
            await run.journal.write(prepared, run.events.taken(), run.events.seq, 1, True)
        return at
