"""The one loop with side effects: it runs nodes, keeps time, writes the journal and sends events.

`feed(tick)` is where everything meets: the pure core advances, the change is committed, events go out, and
what the core commands is set in motion. It is synchronous, so answers, cancellations and recorded operations
may feed their ticks from any task of the loop while a node runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from graphflow.errors import Fenced, GraphflowError, LimitExceeded
from graphflow.events import Event, InterruptResolve
from graphflow.graph.core.commands import (
    Backoff,
    CancelNode,
    Command,
    Commit,
    Ended,
    Erred,
    Finished,
    Request,
    Resolve,
    RunNode,
    Started,
)
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.interrupts import ENDED_BY_PERSON
from graphflow.graph.core.machine import Interrupt, Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import Answered, AnyTick, Cancel, Deadline, Expired, Input, Signalled
from graphflow.graph.engine.announcements import waiting_event
from graphflow.graph.engine.answer_waiters import AnswerWaiters
from graphflow.graph.engine.commits import Commits, Computed
from graphflow.graph.engine.light_event import turns
from graphflow.graph.engine.node_runs import NodeRuns
from graphflow.graph.engine.ports import Logged
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.scheduler import MAX_UNACKNOWLEDGED, Scheduler
from graphflow.graph.engine.timers import Timers

HOLD_MS = 300_000

StartCommand = RunNode | Started | Backoff
"""Commands that start something; they are performed after the commit is queued."""


class Executor:
    """Drives one epoch of one run.

    It owns the parts. Each part receives the `Run`, which holds what they share, and reports back by `Run.feed`.

    Args:
        hold_ms: how long the process waits for an answer when the question names no time of its own.
        checkpoint_id: the newest checkpoint, the parent of the next.
    """

    def __init__(self, run: Run, *, hold_ms: int = HOLD_MS, checkpoint_id: str | None = None) -> None:
        self.run, self.events = run, run.events
        run.feed = self.feed
        run.events.most, run.events.on_most = run.plan.bounds.events, self._exceed_events
        self.waiters = AnswerWaiters(run, hold_ms)
        self.runs = NodeRuns(run, self.waiters)
        self.tasks = Scheduler(run, self.runs, self.waiters)
        self.commits = Commits(run, self.tasks, checkpoint_id)
        self.beside = self.commits.beside
        self.timers = Timers(run, self.runs)
        self._holding: list[asyncio.TimerHandle] = []
        """While the run waits: until when this process waits with it, and when a question expires."""
        self.resuming: Event | None = None
        """`run.resume`, sent once: after what the next tick resolves, before anything else (spec 3.3)."""
        self.together = False
        """Further ticks are fed at once, before anything runs: the thread is not given back in between."""
        self.abandoned = False
        """The process shuts down: the thread is left at its last checkpoint, neither cancelled nor failed."""
        self.left = False
        """Nobody wants the run any more (`leave`)."""

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def machine(self) -> Machine:
        """Where the thread is now."""
        return self.run.machine

    @property
    def thread_id(self) -> str:
        return self.run.thread_id

    @property
    def error(self) -> GraphflowError | None:
        """Why the store failed, if it did."""
        return self.run.error

    @property
    def ending(self) -> bool:
        """Whether this epoch takes no more ticks; an answer must then load the thread again."""
        if self.run.closed or self.error is not None:
            return True
        if self.tasks.loop is None or self.beside.now is not None:
            return False
        status = self.machine.status
        # A waiting run still takes answers while the process holds it.
        return self.waiters.released if status == "waiting" else status != "running"

    @property
    def checkpoint_id(self) -> str | None:
        """The newest checkpoint."""
        return self.commits.checkpoint_id

    # --- events

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self.events.seq

    @property
    def sent(self) -> list[Logged]:
        """What the log keeps of the events since the last record."""
        return self.events.sent

    def restore_log(self, sent: list[Logged]) -> None:
        """Takes up the log where an earlier epoch left it, with what no record keeps yet."""
        self.events.restore(sent)

    def emit(self, event: Event) -> None:
        """Numbers an event and sends it."""
        self.events.emit(event)

    def _say_resuming(self) -> None:
        """After a pause nothing but answers comes before `run.resume`, unless the run is cancelled or fails."""
        if self.resuming is not None:
            resuming, self.resuming = self.resuming, None
            self.emit(resuming)

    # --- the meeting point

    def feed(self, tick: AnyTick, computed: Computed | None = None) -> None:
        """Advances by one tick: commit, events, commands.

        Frequent commands are dispatched by their exact type, because this runs for every node.

        Args:
            computed: what `Commits.compute` gave for the tick, in a thread.

        Raises:
            CodecError: the tick's change can't be stored; nothing has happened then.
            LimitExceeded: the state would become too large; the same.
            StoreError: an earlier commit failed.
        """
        run = self.run
        if computed is None:
            if self.beside.now is not None:
                self.beside.settle(tick)
            if run.error is not None:
                raise run.error
            computed = self.commits.compute(tick)
        machine, commands, prepared = computed
        commit = commands[0]
        assert isinstance(commit, Commit)
        run.machine = machine
        requests: list[Interrupt] = []
        finished: str | None = None
        begun: list[StartCommand] = []
        for command in commands[1:]:
            kind = type(command)
            if kind is Ended and not begun:
                if self.resuming is not None:
                    self._say_resuming()
                self.runs.end(command)  # type: ignore[arg-type] # by its exact type
            elif kind is RunNode or kind is Started or kind is Backoff:
                begun.append(command)  # type: ignore[arg-type]
            else:
                finished = self._obey(command, requests, begun) or finished
        # Not before the terminal of a cancelled or failed run: it never went on.
        if self.resuming is not None and finished is None:
            self._say_resuming()
        if prepared is not None or requests or finished is not None:
            rests = machine.status == "waiting" and not begun and run.journal is not None and self._rests()
            self.commits.write(commit, prepared, requests, finished, rests=rests)
        if begun:  # after the record is queued, so that what begins never comes before what it follows (E7)
            self._set_in_motion(begun)
        if run.pending:
            self.commits.announce()
        if machine.limits or machine.status == "waiting":
            self.timers.keep_deadline()
        if machine.status == "waiting":
            self._hold()
        if run.resting:
            run.wake()

    def _obey(self, command: Command, requests: list[Interrupt], begun: list[StartCommand]) -> str | None:
        """Performs a less frequent command; returns how the run is over, if it is."""
        match command:
            case Ended():
                self._say_resuming()
                if not self._passed_through(begun, command):
                    self.runs.end(command)
            case Erred():
                self._say_resuming()
                if not self._passed_through(begun, command):
                    self.runs.err(command)
                    self.tasks.drop(command.frame)  # a limit may end a node before its turn came, or while it runs
            case Resolve():
                self._resolve(command)
            case Request():
                requests.append(command.interrupt)
            case CancelNode():
                # The same tick may start a frame and cancel it again, as when a join is complete before all of its
                # branches begin.
                begun[:] = [other for other in begun if other.frame != command.frame]
                self.tasks.cancel_node(command.frame, tells=self.machine.status not in ("failed", "stopped"))
            case Finished():
                if command.how == "complete":
                    self._say_resuming()
                self.runs.close_blocks()
                if command.how == "complete" and self.machine.finish_reason == "rejected":
                    # The person ended the run, so these calls get no result from their tools; every call has one in
                    # the stream.
                    for result in self.events.calls.settle(ENDED_BY_PERSON):
                        self.emit(result)
                return command.how
            case _:
                raise AssertionError("one tick makes one commit")
        return None

    def _rests(self) -> bool:
        """Whether only what follows the commits so far can still be sent, so that the event numbers are known."""
        if self.together or self.tasks.running or self.timers.sleepers or self.waiters.would_hold():
            return False  # a node, an answer or a cancel may come first
        return self.waiters.nobody_works() and self.tasks.loop in (None, asyncio.current_task())

    def _passed_through(self, begun: list[StartCommand], over: Ended | Erred) -> bool:
        """Whether a node ended in the tick that opened it (a `map` over nothing); if so, sends both its events."""
        for command in begun:
            if isinstance(command, Started) and command.frame == over.frame:
                self.runs.pass_through(command, over)
                begun[:] = [other for other in begun if other.frame != over.frame]
                return True
        return False

    def _set_in_motion(self, commands: list[StartCommand]) -> None:
        for command in commands:
            if type(command) is RunNode:
                self.tasks.add(command.frame)
            elif type(command) is Started:
                self.runs.expect(command)
                if command.node_run_id:
                    # An open node has no coroutine: its start is announced here, and its time limit runs from here.
                    self.runs.start(command.frame)
                    self.timers.limit_open(command.frame)
            elif type(command) is Backoff:
                self.timers.back_off(command)

    # --- the loop

    async def drive(self, first: AnyTick | None = None) -> None:
        """Feeds `first` and runs until nothing can run any more and no hold is left; then all is durable.

        Cancelling the task that drives cancels the run.

        Raises:
            StoreError: the store failed; `error` says why.
        """
        self.tasks.loop = asyncio.current_task()
        self.adopt()
        try:
            if first is not None:
                large = isinstance(first, Input) and first.large
                await self.beside.feed(first) if large else self.feed(first)
            if self.left:
                self.leave()
            await self._loop()
            await self._settle()
        except asyncio.CancelledError:
            await self._cancelled_from_outside()
            raise
        finally:
            self.run.closed = True  # first: a node that swallows its cancellation must not record anything from here on
            self.runs.forget()
            self._disarm()
            self.timers.disarm()
            await self._end_tasks()
            self.run.close()
        if self.error is not None:
            raise self.error

    def adopt(self) -> None:
        """Takes over node runs that an earlier epoch left open or waiting. Calling it again has no effect."""
        machine = self.run.machine
        if not machine.frames:  # of a thread that has not begun
            return
        for interrupt in machine.interrupts.values():
            self.runs.adopt(interrupt)
        for number in self.runs.adopt_opened():
            self.timers.limit_open(number)

    async def _loop(self) -> None:
        run, commits, tasks, sleepers = self.run, self.commits, self.tasks, self.timers.sleepers
        turn, mine = turns(), False
        while run.error is None and not run.closed:
            # Raised by a timer or a task of its own; raising it here ends the run as if it had happened in this task.
            if run.failure is not None:
                raise run.failure
            if tasks.ready:
                if run.machine.durability == "sync" and run.pending:
                    await commits.acknowledged_soon()
                # Waits for half of them and not for one: otherwise every further node would wait again.
                elif len(run.pending) > MAX_UNACKNOWLEDGED:
                    await commits.acknowledged(MAX_UNACKNOWLEDGED // 2)
                elif (
                    len(tasks.ready) == 1
                    and not (tasks.running or sleepers or run.machine.interrupts)
                    and (len(run.machine.frames) == 1 or not tasks.makes_room())
                ):
                    # Nothing else can become ready while it runs.
                    if not mine and not turn.begin():
                        await turn.take()
                        mine = True  # and looks again: the run may have been cancelled meanwhile
                        continue
                    mine = False
                    await tasks.run_here()
                else:
                    tasks.run_apart(turn)
            elif tasks.running or sleepers or self._held():
                await run.rest()
            else:
                return

    async def _settle(self) -> None:
        """Waits until all is durable and sent; a waiting run then sends `run.waiting` and releases the thread."""
        if self.machine.status == "waiting":
            self.run.closed = True  # an answer from now on loads the thread anew
        await self.commits.acknowledged()
        if self.error is None and self.machine.status == "waiting" and not (self.left and self.abandoned):
            self.events.emit_at(waiting_event(self.machine), await self.commits.pause())

    async def flush(self) -> None:
        """See `Run.flush`."""
        await self.run.flush()

    # --- people

    def _held(self) -> bool:
        return self.machine.status == "waiting" and self.waiters.would_hold()

    def release(self) -> None:
        """Stops waiting in this process: the thread waits on without it."""
        if self.machine.status != "waiting" or self.run.closed:
            return
        self.runs.close_blocks()
        self.waiters.let_go()
        self.run.wake()

    def _hold(self) -> None:
        """Releases the run when the hold time of every open question is over.

        Questions that expire while the process holds the run expire on time; the others are found by a periodic sweep.
        """
        self._disarm()
        hold_ms = self.waiters.longest_hold_ms()
        if hold_ms > 0:
            self._holding.append(self.timers.later(hold_ms / 1000, self.release))
            self._expire_in_time()

    def _expire_in_time(self) -> None:
        wait_s = self.waiters.next_expiry_s()
        # The first timer is the hold itself; the others look for expired questions.
        del self._holding[1:]
        if wait_s is not None:
            self._holding.append(self.timers.later(wait_s, self._expire_due))

    def _expire_due(self) -> None:
        due = self.waiters.expired()
        if due is None:
            self._expire_in_time()
        elif not self.ending:
            self.expire(due)  # holds anew if the run waits on

    def _disarm(self) -> None:
        for timer in self._holding:
            timer.cancel()
        self._holding.clear()

    def _resolve(self, command: Resolve) -> None:
        interrupt = command.interrupt
        self.emit(InterruptResolve(interrupt_id=interrupt.id, decision=command.decision))
        self.waiters.resolve(interrupt, command.decision, command.answer)

    def answer(self, interrupt_id: str, answer: Any, decision: str, by: str | None = None) -> None:
        """Feeds a validated answer of an open interrupt."""
        self.feed(self._tick(Answered, interrupt_id=interrupt_id, answer=answer, decision=decision, by=by))

    def _tick(self, cls: Any, **fields: Any) -> Any:
        return cls(id=self.run.ids.new_id(), at=self.run.clock.now_ms(), **fields)

    def expire(self, interrupt_id: str) -> None:
        """Feeds the expiry of an open interrupt."""
        if interrupt_id in self.machine.interrupts:
            self.feed(self._tick(Expired, interrupt_id=interrupt_id))

    def signal(self, name: str, payload: Any) -> bool:
        """Feeds a signal; whether a `wait` node took it. Otherwise it is kept for a later one."""
        before = len(self.machine.interrupts)
        self.feed(self._tick(Signalled, name=name, payload=freeze(payload)))
        return len(self.machine.interrupts) < before

    def lose(self, error: Fenced) -> None:
        """Ends this epoch silently, because another one has the thread (E2)."""
        self.commits.fail(error)

    # --- cancelling and time

    def cancel(self) -> None:
        """Ends the run: every node, block and question; the last checkpoint stays."""
        self.beside.settle()
        if self.run.closed or self.machine.status not in ("running", "waiting"):
            return
        partials = self.runs.partials("cancelled")
        self.runs.close_blocks()
        self.feed(self._tick(Cancel, partials=partials))
        self.tasks.cancel_caller()

    def _exceed_events(self, from_node: bool) -> None:
        """Ends a run that has sent as many events as it may.

        Args:
            from_node: the code of a node has sent the last one: it may never wait. Another one was sent within a tick.
        """
        if from_node:
            self._fail_for_events()
        else:
            self.timers.later(0, self._fail_for_events)
            turns().cut()  # so that this comes before the next node

    def _fail_for_events(self) -> None:
        run, most = self.run, self.run.plan.bounds.events
        if run.closed or self.machine.status != "running":
            run.events.most = run.events.seq  # it waits: the next event comes when it goes on
            return
        failure = LimitExceeded(
            "events", most, f"the run has sent more than {most:,} events", "send fewer, or raise it"
        )
        partials = self.runs.partials("error")
        self.runs.close_blocks()
        self.feed(self._tick(Deadline, error=failure.as_dict(), partials=partials))
        self.tasks.cancel_caller()

    def leave(self) -> None:
        """Ends the epoch: `drive` returns once its nodes have ended. The run is cancelled, unless it is `abandoned`.

        To cancel the task that drives is no way to do that: the code of a node would hear of it first, and could act, ask,
        or swallow it and let the run go on.
        """
        self.left = True
        run = self.run
        if self.tasks.loop is None or run.closed or run.error is not None:
            return  # `drive` has yet to begin, and comes back here; or it is about to end
        try:
            if not self.abandoned:
                self.cancel()
                return
            # No `Cancel` tick: after a restart the run is recovered from its last checkpoint and goes on.
            run.closed = True
            for number in self.runs.numbers():
                self.tasks.cancel_node(number)
            self.tasks.cancel_caller()
            run.wake()
        except GraphflowError as error:
            run.fail(error)

    async def _cancelled_from_outside(self) -> None:
        """The task was cancelled, and by a loop that ends say: the last commit of the run is completed."""
        self.tasks.left()
        if self.error is not None:
            return
        self.leave()
        # Shielded: the last commit of a cancelled run must become durable although its task is being cancelled.
        await asyncio.shield(self._settle())

    async def _end_tasks(self) -> None:
        """No task outlives its run."""
        tasks = [*self.tasks.running.values(), *self.tasks.leaving, *self.timers.sleepers]
        for task in tasks:
            task.cancel()
        if tasks:
            # Awaited and not only cancelled: cleanup code of a node must not run on after the epoch is over.
            await asyncio.gather(*tasks, return_exceptions=True)
        for watch in (watches := [*self.tasks.watched]):
            watch.cancel()
        if watches:
            await asyncio.gather(*watches, return_exceptions=True)
