"""The one loop that acts: it runs nodes, keeps time, writes the journal and sends events.

`feed(tick)` is where everything meets: the pure core advances, the change is committed, events go out, and
what the core commands is set in motion. It is synchronous, so answers, cancellations and recorded operations
may feed their ticks from any task of the loop while a node runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from graphflow.errors import CodecError, Fenced, GraphflowError, NodeFailed, StoreError
from graphflow.events import (
    Event,
    InterruptResolve,
    RunError,
)
from graphflow.graph.announcements import After, count_after, events_after, waiting_event
from graphflow.graph.context import Context, Soon, Suspended
from graphflow.graph.flag import Flag
from graphflow.graph.holding import Holding
from graphflow.graph.machine import (
    Answered,
    AnyTick,
    Backoff,
    BackoffOver,
    Cancel,
    CancelNode,
    Command,
    Commit,
    Deadline,
    Ended,
    Erred,
    Expired,
    Finished,
    Frame,
    Interrupt,
    Machine,
    Request,
    Resolve,
    Run,
    Signalled,
    Started,
)
from graphflow.graph.node_runs import NodeRuns
from graphflow.graph.outlet import Outlet
from graphflow.graph.patches import Patch
from graphflow.graph.plan import Plan, PlanNode
from graphflow.graph.ports import Clock, Ids, Journal, Lease, Logged
from graphflow.graph.state import freeze
from graphflow.graph.transition import advance

YIELD_EVERY = 64
"""Node runs between two turns of the event loop, so that nodes that never wait starve nobody."""
MAX_UNACKNOWLEDGED = 512
"""Commits in flight before the run waits for the store: memory stays bounded, a crash loses little."""
GIVE_WAY_S = 0.001
"""Seconds for which a run may keep the event loop while its commits are written in the loop's thread."""
HOLD_MS = 300_000

Begun = Run | Started | Backoff
"""Commands that set something going; they wait for the commit."""


class Executor:
    """Drives one life of one run.

    Args:
        journal: None runs without a store: no checkpoints, no resume in another process.
        sink: gets every event, numbered, at once.
        room: awaited by streaming nodes when the consumer is behind; None never waits.
        hold_ms: how long the process waits for an answer when the question names no time of its own.
        life: the thread's fence; part of ids that must not repeat in a later life (E1).
        seq: number of the last event of the run so far.
        checkpoint_id: the newest checkpoint, the parent of the next.
    """

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        *,
        thread_id: str,
        clock: Clock,
        ids: Ids,
        journal: Journal | None = None,
        sink: Callable[[Event], None] | None = None,
        room: Callable[[], Soon] | None = None,
        services: Mapping[str, Any] | None = None,
        hold_ms: int = HOLD_MS,
        life: int = 1,
        lineage: int = 0,
        seq: int = 0,
        checkpoint_id: str | None = None,
    ) -> None:
        self.plan, self.machine, self.thread_id = plan, machine, thread_id
        self.clock, self.ids, self.journal = clock, ids, journal
        self.room = room
        self.outlet = Outlet(clock, sink, life=life, seq=seq, logs=journal is not None)
        self.services: Mapping[str, Any] = {} if services is None else services
        self.life, self.lineage, self.checkpoint_id = life, lineage, checkpoint_id
        self.error: GraphflowError | None = None
        """Why the store failed, if it did."""
        self.lease: Lease | None = None
        """Until when nobody else can have taken the thread; None never asks."""
        self.runs = NodeRuns(self, life)
        self.holding = Holding(self, hold_ms)
        self._after: deque[After] = deque()
        self._ready: dict[int, None] = {}
        """Frames whose node is to be run, in their order."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._broken: BaseException | None = None
        """What a node's task raised beyond the node's own failure: it ends the run as it would in the loop's own task."""
        self._sleepers: set[asyncio.Task[None]] = set()
        self._here: int | None = None
        self._here_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._wake = Flag()
        self._idle = False
        """Whether the loop waits for `_wake`."""
        self._gave_way = 0.0
        """When a run whose commits were written at once last let the event loop turn."""
        self._deadline: asyncio.TimerHandle | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        """Of open nodes with a time limit, by frame."""
        self._closed = False
        self.resuming: Event | None = None
        """Sent once, after what the next tick resolves and before all else: the run goes on (spec 3.3)."""
        self.together = False
        """Further ticks are fed at once, before anything runs: the thread is not given back in between."""
        self._paused = False
        """Whether the last commit gave the thread back and knew the number of `run.waiting`."""
        self.abandoned = False
        """The process shuts down: the thread is left at its last checkpoint, neither cancelled nor failed."""

    @property
    def ending(self) -> bool:
        """Whether this life has had its last tick: it only settles, and answers must load the thread anew."""
        if self._closed or self.error is not None:
            return True
        if self._task is None:
            return False
        status = self.machine.status
        return self.holding.released if status == "waiting" else status != "running"

    # --- events

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self.outlet.seq

    @property
    def sent(self) -> list[Logged]:
        """What the log keeps of the events since the last record."""
        return self.outlet.sent

    def go_on_from(self, sent: list[Logged], seq: int | None = None) -> None:
        """Takes up the log where an earlier life left it: what no record keeps yet, and the last number."""
        self.outlet.sent = sent
        if seq is not None:
            self.outlet.seq = seq

    def emit(self, event: Event) -> None:
        """Numbers an event and sends it."""
        self.outlet.emit(event)

    def _say_resuming(self) -> None:
        """After a pause nothing but answers comes before `run.resume`, unless the run is cancelled or fails."""
        if self.resuming is not None:
            resuming, self.resuming = self.resuming, None
            self.emit(resuming)

    # --- the meeting point

    def feed(self, tick: AnyTick) -> None:
        """Advances by one tick: commit, events, commands. It runs for every node, so what is frequent is told by type.

        Raises:
            CodecError: the tick's change can't be stored; nothing has happened then.
            StoreError: an earlier commit failed.
        """
        if self.error is not None:
            raise self.error
        machine, commands = advance(self.plan, self.machine, tick)
        commit = commands[0]
        assert isinstance(commit, Commit)
        prepared = None if self.journal is None else self.journal.prepare(commit)
        self.machine = machine
        requests: list[Interrupt] = []
        finished: str | None = None
        begun: list[Begun] = []
        for command in commands[1:]:
            if type(command) is Run or type(command) is Started or type(command) is Backoff:
                begun.append(command)
            elif type(command) is Ended and not begun:
                self._say_resuming()
                self.runs.end(command)
            else:
                finished = self._obey(command, requests, begun) or finished
        if finished is None:
            self._say_resuming()
        if prepared is not None or requests or finished is not None:
            self._commit(commit, prepared, requests, finished, begins=bool(begun))
        if begun:
            self._set_in_motion(begun)
        if self._after:
            self._announce()
        if machine.status == "waiting":
            if self._deadline is not None:  # waiting is not active time (E11)
                self._deadline.cancel()
                self._deadline = None
            self.holding.arm()
        elif self._deadline is None and "timeoutMs" in machine.limits:
            self._arm_deadline()
        if self._idle:
            self._wake.set()

    def _obey(self, command: Command, requests: list[Interrupt], begun: list[Begun]) -> str | None:
        """A command that few ticks give; how the run is over, if it is."""
        match command:
            case Ended():
                self._say_resuming()
                if not self._passed_through(begun, command):
                    self.runs.end(command)
            case Erred():
                self._say_resuming()
                if not self._passed_through(begun, command):
                    self.runs.err(command)
                    self._cancel_task(command.frame)  # unless it is the node itself that failed: it expired, say
            case Resolve():
                self._resolve(command)
            case Request():
                requests.append(command.interrupt)
            case CancelNode():
                begun[:] = [other for other in begun if other.frame != command.frame]
                self._cancel_node(command.frame, tells=self.machine.status not in ("failed", "stopped"))
            case Finished():
                if command.how == "complete":
                    self._say_resuming()
                self.runs.close_blocks()
                return command.how
            case _:
                raise AssertionError("one tick makes one commit")
        return None

    def _commit(
        self, commit: Commit, prepared: Any, requests: list[Interrupt], finished: str | None, *, begins: bool
    ) -> None:
        """Writes the record, and notes what is to be said once it is durable."""
        after = After(commit, None, requests, finished, self.checkpoint_id)
        if self.journal is not None:
            machine = self.machine
            pauses = machine.status == "waiting"
            self._paused = pauses and not begins and self._rests()
            release = finished is not None or self._paused
            tail = 0
            if release:
                tail = sum(count_after(a) for a in self._after) + count_after(after) + commit.checkpoint + pauses
            after.durable = self.journal.write(prepared, self.outlet.taken(), self.seq, tail, release)
            if commit.checkpoint:
                self.checkpoint_id = commit.id
        self._after.append(after)

    def _rests(self) -> bool:
        """Whether nothing can be sent any more but what follows the commits so far, so that its numbers are known."""
        if self.together or self._tasks or self._sleepers or self.holding.would_hold():
            return False  # a node, an answer or a cancel may come first
        return self.holding.nobody_works() and self._task in (None, asyncio.current_task())

    def _passed_through(self, begun: list[Begun], over: Ended | Erred) -> bool:
        """Whether a node is over within the tick in which it was opened (a `map` of nothing); it is said here then."""
        for command in begun:
            if isinstance(command, Started) and command.frame == over.frame:
                self.runs.pass_through(command, over)
                begun[:] = [other for other in begun if other.frame != over.frame]
                return True
        return False

    def _set_in_motion(self, commands: list[Begun]) -> None:
        for command in commands:
            if type(command) is Run:
                if not self._waits_live(command.frame):
                    self._ready[command.frame] = None
            elif type(command) is Started:
                self.runs.expect(command)
                if command.node_run_id:
                    self.runs.start(command.frame)
                    self._limit_open(command.frame)
            elif type(command) is Backoff:
                self._sleepers.add(asyncio.ensure_future(self._back_off(command)))  # noqa: TID251 - ended by drive

    def _announce(self) -> None:
        """Sends what follows each durable commit, in the order of the commits."""
        while self._after:
            after = self._after[0]
            durable = after.durable
            if durable is not None:
                if not durable.done:
                    if not after.awaited:  # only the first is listened to: what comes after it is done later
                        after.awaited = True
                        durable.when_done(self._announce)
                    return
                failure = durable.error
                if failure is not None:
                    self._store_failed(failure)
                    return
            self._after.popleft()
            machine = after.commit.machine or self.machine
            for event in events_after(after, machine):
                self.outlet.emit_at(event, after.commit.at)
        if self._idle:
            self._wake.set()

    def _store_failed(self, failure: BaseException) -> None:
        """A failed commit ends the run at once (E7); a fenced one without a word to the world (E2)."""
        if self.error is not None:
            return
        error = failure if isinstance(failure, GraphflowError) else StoreError(str(failure))
        self._after.clear()
        self.runs.close_blocks()
        self.error = error
        if not isinstance(error, Fenced):
            self.outlet.emit_unlogged(RunError(run_id=self.machine.run_id, error=error.as_dict()))
        for number in self.runs.numbers():
            self._cancel_node(number)
        self._wake.set()

    # --- the loop

    async def drive(self, first: AnyTick | None = None) -> None:
        """Feeds `first` and runs until nothing can run any more and no hold is left; then all is durable.

        Cancelling the task that drives cancels the run.

        Raises:
            StoreError: the store failed; `error` says why.
        """
        self._task = asyncio.current_task()
        for number in self.runs.take_up_opened():
            self._limit_open(number)
        try:
            if first is not None:
                self.feed(first)
            await self._loop()
            await self._settle()
        except asyncio.CancelledError:
            await self._cancelled_from_outside()
            raise
        finally:
            self._closed = True
            self._disarm()
            await self._end_tasks()
        if self.error is not None:
            raise self.error

    async def _loop(self) -> None:
        turns = 0
        while self.error is None:
            if self._ready:
                if self.machine.durability == "sync" and self._after:
                    await self._written()
                elif len(self._after) > MAX_UNACKNOWLEDGED:
                    await self._acknowledged(MAX_UNACKNOWLEDGED // 2)
                elif (
                    len(self._ready) == 1 and not self._tasks and not self._sleepers and not self.machine.interrupts
                ):  # nothing else can become ready while it runs, so no task is made for it
                    turns += 1
                    if turns % YIELD_EVERY == 0:
                        await asyncio.sleep(0)
                        continue
                    await self._run_here(self._next_ready())
                else:
                    while self._ready:
                        number = self._next_ready()
                        task = asyncio.ensure_future(self._run_apart(number))  # noqa: TID251 - ended by drive
                        self._tasks[number] = task
                        task.add_done_callback(partial(self._task_over, number))
            elif self._broken is not None:
                raise self._broken
            elif self._tasks or self._sleepers or self._held():
                await self._rest()
            else:
                return

    def _next_ready(self) -> int:
        number = next(iter(self._ready))
        del self._ready[number]
        return number

    async def _rest(self) -> None:
        """Waits until something has happened."""
        self._idle = True
        self._wake.clear()
        try:
            await self._wake.wait()
        finally:
            self._idle = False

    async def _acknowledged(self, but: int = 0) -> None:
        """Waits until every commit so far is durable, but for the newest `but`."""
        while len(self._after) > but and self.error is None:
            await self._rest()

    async def _written(self) -> None:
        """Waits until every commit so far is durable, by the shortest way that the store knows."""
        if self.journal is not None and not self._tasks:
            self.journal.hurry()
        if self._after or self.clock.monotonic() - self._gave_way > GIVE_WAY_S:
            await (self._acknowledged() if self._after else asyncio.sleep(0))
            self._gave_way = self.clock.monotonic()

    async def _settle(self) -> None:
        """Everything durable and sent; a run that waits for people says so and lets go of the thread."""
        if self.machine.status == "waiting":
            self._closed = True  # an answer from now on loads the thread anew
        await self._acknowledged()
        if self.error is None and self.machine.status == "waiting":
            at = self.machine.last_at if self._paused else await self._pause()
            self.outlet.emit_at(waiting_event(self.machine), at)

    async def _pause(self) -> int:
        """Gives the thread back by a record of what was sent since the last one; the time of `run.waiting`.

        The commit that opened the questions could not know what nodes would still send before they were left (E1).
        """
        at = max(self.clock.now_ms(), self.machine.last_at)
        if self.journal is not None:
            nothing = Patch({}, {}, {})
            commit = Commit(self.ids.new_id(), at, "paused", False, nothing, before=self.machine, machine=self.machine)
            await self.journal.write(self.journal.prepare(commit), self.outlet.taken(), self.seq, 1, True)
        return at

    async def flush(self) -> None:
        """Returns when everything committed so far is durable; raises what made it fail."""
        if self.journal is not None:
            await self.journal.flush()
        if self.error is not None:
            raise self.error

    # --- running a node

    async def _run_here(self, number: int) -> None:
        """Runs the only runnable node in this task: no task is made for it."""
        self._here, self._here_cancelled = number, False
        try:
            await self._run(number)
        except asyncio.CancelledError:
            ours, self._here_cancelled = self._here_cancelled, False
            if not ours or self._task is None or self._task.uncancel() > 0:
                raise
        finally:
            if self._here_cancelled and self._task is not None:
                self._task.uncancel()  # the node swallowed the cancellation
            self._here = None

    async def _run_apart(self, number: int) -> None:
        with suppress(asyncio.CancelledError):
            await self._run(number)
            while self._goes_on(number):
                del self._ready[number]
                await asyncio.sleep(0)  # the others' turn
                await self._run(number)

    def _goes_on(self, number: int) -> bool:
        """Whether the task that has run the frame's node may run the next one too; else the loop makes another."""
        if number not in self._ready or self._tasks.get(number) is not asyncio.current_task() or self.error is not None:
            return False
        return self.machine.durability != "sync" and len(self._after) <= MAX_UNACKNOWLEDGED

    def _task_over(self, number: int, task: asyncio.Task[None]) -> None:
        """A callback and not the task's own last words: a task that is cancelled before its first step says none."""
        if self._tasks.get(number) is task:
            del self._tasks[number]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
        self._wake.set()

    async def _run(self, number: int) -> None:
        frame = self.machine.frames[number]
        node = self.plan.graphs[frame.graph].nodes[frame.node]
        ctx = self.runs.start(number)
        if node.form == "ask":
            self._ask(ctx, frame, node)
            return
        tick: AnyTick | None
        try:
            if node.bare and self.lease is None:  # what `call` would do, without a coroutine around it
                assert node.run is not None
                out = await node.run(frame.state, ctx)
            else:
                out = await self.runs.call(ctx, frame, node)
            tick = self.runs.succeeded(ctx, node, out)
        except (Suspended, BaseExceptionGroup) as left:
            if not _is_suspension(left):
                if not isinstance(left, ExceptionGroup):
                    raise
                tick = self.runs.failed(ctx, left)
            else:
                ctx.close_blocks()
                return
        except asyncio.CancelledError:
            if not ctx.alive or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # Nobody cancelled this task: the node raised it, which is a failure like any other.
            tick = self.runs.failed(ctx, NodeFailed(f"node {node.name!r} raised CancelledError"))
        except Exception as error:  # noqa: BLE001 - the boundary where any node's failure becomes a tick
            tick = self.runs.failed(ctx, error)
        if not ctx.alive:
            return
        ctx.close_blocks()
        try:
            self.feed(tick)
        except (CodecError, NodeFailed) as error:
            self.feed(self.runs.failed(ctx, error))

    def _ask(self, ctx: Context, frame: Frame, node: PlanNode) -> None:
        """An `ask` node asks at once; there is nothing to run."""
        if self.holding.find(frame.number, "") is not None:
            return
        try:
            self.holding.open(self.runs.question(ctx, frame, node))
        except NodeFailed as error:
            self.feed(self.runs.failed(ctx, error))

    def _cancel_node(self, number: int, *, tells: bool = False) -> None:
        """Ends a node run and whatever task drives it.

        Args:
            tells: the run goes on or ends well without it, so that its `node.start` needs an end.
        """
        self.runs.cancel(number, tells=tells)
        self._ready.pop(number, None)
        self._cancel_task(number)

    def _cancel_task(self, number: int) -> None:
        """Cancels the task that drives the frame's node, unless that is where we are."""
        if self._here == number and self._task is not None and asyncio.current_task() is not self._task:
            self._here_cancelled = True
            self._task.cancel()
        task = self._tasks.get(number)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    # --- people

    async def wait_for_answer(self, asked: Interrupt) -> Any:
        """See `Holding.wait`."""
        return await self.holding.wait(asked)

    def _held(self) -> bool:
        return self.machine.status == "waiting" and self.holding.would_hold()

    def _waits_live(self, number: int) -> bool:
        """Whether the frame's coroutine is alive and its answer has just woken it."""
        ctx = self.runs.get(number)
        return ctx is not None and ctx.alive and (self._here == number or number in self._tasks)

    def release(self) -> None:
        """Stops waiting in this process: the thread waits on without it."""
        if self.machine.status != "waiting" or self._closed:
            return
        self.runs.close_blocks()
        self.holding.let_go()
        self._wake.set()

    def _resolve(self, command: Resolve) -> None:
        interrupt = command.interrupt
        self.runs.take_up(interrupt)
        self.emit(InterruptResolve(interrupt_id=interrupt.id, decision=command.decision))
        self.holding.resolve(interrupt, command.decision, command.answer)

    def answer(self, interrupt_id: str, answer: Any, decision: str, by: str | None = None) -> None:
        """Feeds a validated answer of an open interrupt."""
        self.feed(
            Answered(
                id=self.ids.new_id(),
                at=self.clock.now_ms(),
                interrupt_id=interrupt_id,
                answer=answer,
                decision=decision,
                by=by,
            )
        )

    def expire(self, interrupt_id: str) -> None:
        """Feeds the expiry of an open interrupt."""
        if interrupt_id in self.machine.interrupts:
            self.feed(Expired(id=self.ids.new_id(), at=self.clock.now_ms(), interrupt_id=interrupt_id))

    def signal(self, name: str, payload: Any) -> bool:
        """Feeds a signal; whether a `wait` node took it. Else it is kept for one that is still to come."""
        before = len(self.machine.interrupts)
        tick = Signalled(id=self.ids.new_id(), at=self.clock.now_ms(), name=name, payload=freeze(payload))
        self.feed(tick)
        return len(self.machine.interrupts) < before

    def lose(self, error: Fenced) -> None:
        """Another life has the thread: this one ends without a word to the world (E2)."""
        self._store_failed(error)

    # --- cancelling and time

    def cancel(self) -> None:
        """Ends the run: every node, block and question; the last checkpoint stays."""
        if self._closed or self.machine.status not in ("running", "waiting"):
            return
        partials = self.runs.partials("cancelled")
        self.runs.close_blocks()
        self.feed(Cancel(id=self.ids.new_id(), at=self.clock.now_ms(), partials=partials))

    async def _cancelled_from_outside(self) -> None:
        """The task was cancelled (the consumer left): the run is cancelled and its last commit completed."""
        self._here = None
        if self.error is not None:
            return
        if self.abandoned:
            self.runs.close_blocks()
            await asyncio.shield(self._acknowledged())
            return
        self.cancel()
        await asyncio.shield(self._settle())

    def _arm_deadline(self) -> None:
        machine = self.machine
        left = machine.limits["timeoutMs"] - machine.active_ms
        self._deadline = asyncio.get_running_loop().call_later(max(left, 0) / 1000, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        machine = self.machine
        if self._closed or machine.status != "running" or machine.wrapping:
            return
        now = self.clock.now_ms()
        if machine.active_ms + max(0, now - machine.last_at) < machine.limits["timeoutMs"]:
            self._arm_deadline()
            return
        self.runs.close_blocks()
        self.feed(Deadline(id=self.ids.new_id(), at=now))

    async def _back_off(self, command: Backoff) -> None:
        try:
            await self.clock.sleep(max(0, command.until - self.clock.now_ms()) / 1000)
            frame = self.machine.frames.get(command.frame)
            if frame is not None and frame.status == "backoff" and not self._closed:
                self.feed(BackoffOver(id=self.ids.new_id(), at=self.clock.now_ms(), frame=command.frame))
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._sleepers.discard(task)
            self._wake.set()

    def _limit_open(self, number: int, spent_ms: int = 0) -> None:
        """Lets a `graph`, `map` or `parallel` node fail when its `timeoutMs` of active time is used up (E11).

        Args:
            spent_ms: of that time, so far.
        """
        frame = self.machine.frames[number]
        limit = self.plan.graphs[frame.graph].nodes[frame.node].timeout_s
        if limit is None or frame.opened is None:
            return
        begun = self.machine.active_ms - spent_ms
        left = max(0.0, limit - spent_ms / 1000)
        loop = asyncio.get_running_loop()
        self._timers[number] = loop.call_later(left, self._on_open_limit, number, frame.opened.node_run_id, begun)

    def _on_open_limit(self, number: int, node_run_id: str, begun: int) -> None:
        machine = self.machine
        frame = machine.frames.get(number)
        if self._closed or frame is None or frame.opened is None or frame.opened.node_run_id != node_run_id:
            return
        node = self.plan.graphs[frame.graph].nodes[frame.node]
        assert node.timeout_s is not None
        running = max(0, self.clock.now_ms() - machine.last_at) if machine.status == "running" else 0
        spent = machine.active_ms + running - begun
        if spent < node.timeout_s * 1000:
            self._limit_open(number, spent)
        else:
            self.feed(self.runs.failed_open(number, node))

    def _disarm(self) -> None:
        self.holding.disarm()
        for timer in self._timers.values():
            timer.cancel()
        if self._deadline is not None:
            self._deadline.cancel()

    async def _end_tasks(self) -> None:
        """No task outlives its run."""
        tasks = [*self._tasks.values(), *self._sleepers]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


def _is_suspension(left: BaseException) -> bool:
    """Whether a node was left because it waits, also when its questions were asked in a task group."""
    return isinstance(left, Suspended) or (isinstance(left, BaseExceptionGroup) and left.split(Suspended)[1] is None)
