"""The one loop that acts: it runs nodes, keeps time, writes the journal and sends events.

`feed(tick)` is where everything meets: the pure core advances, the change is committed, events go out, and
what the core commands is set in motion. It is synchronous, so answers, cancellations and recorded operations
may feed their ticks from any task of the loop while a node runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from graphflow.errors import CodecError, Fenced, GraphflowError, NodeFailed, StoreError
from graphflow.events import (
    Event,
    InterruptResolve,
    RunError,
)
from graphflow.graph.announcements import After, count_after, events_after, waiting_event
from graphflow.graph.context import Context, Soon, Suspended
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
    Started,
)
from graphflow.graph.node_runs import NodeRuns
from graphflow.graph.outlet import Outlet
from graphflow.graph.plan import Plan, PlanNode
from graphflow.graph.ports import Clock, Ids, Journal, Logged
from graphflow.graph.transition import advance

YIELD_EVERY = 64
"""Node runs between two turns of the event loop, so that nodes that never wait starve nobody."""
MAX_UNACKNOWLEDGED = 512
"""Commits in flight before the run waits for the store: memory stays bounded, a crash loses little."""
HOLD_MS = 300_000


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
        self.runs = NodeRuns(self, life)
        self.holding = Holding(self, hold_ms)
        self._after: deque[After] = deque()
        self._ready: deque[int] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sleepers: set[asyncio.Task[None]] = set()
        self._here: int | None = None
        self._here_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._wake = asyncio.Event()
        self._idle = False
        """Whether the loop waits for `_wake`."""
        self._deadline: asyncio.TimerHandle | None = None
        self._closed = False
        self.resuming: Event | None = None
        """Sent once, after what the next tick resolves and before all else: the run goes on (spec 3.3)."""
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
        """Advances by one tick: commit, events, commands.

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
        begun: list[Command] = []
        for index in range(1, len(commands)):
            match command := commands[index]:
                case Ended():
                    self._say_resuming()
                    self.runs.end(command)
                case Run() | Started() | Backoff():
                    begun.append(command)
                case Erred():
                    self._say_resuming()
                    self.runs.err(command)
                case Resolve():
                    self._resolve(command)
                case Request():
                    requests.append(command.interrupt)
                case CancelNode():
                    self._cancel_node(command.frame)
                case Finished():
                    finished = command.how
                    if finished == "complete":
                        self._say_resuming()
                    self.runs.close_blocks()
                case Commit():
                    raise AssertionError("one tick makes one commit")
        if finished is None:
            self._say_resuming()
        if prepared is not None or requests or finished is not None:
            self._commit(commit, prepared, requests, finished)
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

    def _commit(self, commit: Commit, prepared: Any, requests: list[Interrupt], finished: str | None) -> None:
        """Writes the record, and notes what is to be said once it is durable."""
        after = After(commit, None, requests, finished, self.checkpoint_id)
        if self.journal is not None:
            machine = self.machine
            pauses = machine.status == "waiting"
            release = finished is not None or (pauses and not self.holding.would_hold() and self.holding.nobody_works())
            tail = 0
            if finished is not None or pauses:
                tail = sum(count_after(a) for a in self._after) + count_after(after) + commit.checkpoint + pauses
            after.durable = self.journal.write(prepared, self.outlet.taken(), self.seq, tail, release)
            if commit.checkpoint:
                self.checkpoint_id = commit.id
            if not after.durable.done:
                after.durable.when_done(self._announce)
        self._after.append(after)

    def _set_in_motion(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Run():
                    if not self._waits_live(command.frame):
                        self._ready.append(command.frame)
                case Started():
                    self.runs.expect(command)
                    if command.open:
                        self.runs.start(command.frame)
                case Backoff():
                    self._sleepers.add(asyncio.ensure_future(self._back_off(command)))  # noqa: TID251 - ended by drive
                case _:
                    pass

    def _announce(self) -> None:
        """Sends what follows each durable commit, in the order of the commits."""
        while self._after:
            after = self._after[0]
            durable = after.durable
            if durable is not None:
                if not durable.done:
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
                if len(self._ready) == 1 and not self._tasks:
                    turns += 1
                    if turns % YIELD_EVERY == 0:
                        await asyncio.sleep(0)
                        if not self._ready:
                            continue
                    if self.machine.durability == "sync" and self._after:
                        await self._acknowledged()
                        continue
                    if len(self._after) > MAX_UNACKNOWLEDGED:
                        await self._acknowledged(MAX_UNACKNOWLEDGED // 2)
                        continue
                    await self._run_here(self._ready.popleft())
                else:
                    while self._ready:
                        number = self._ready.popleft()
                        self._tasks[number] = asyncio.ensure_future(self._run_apart(number))  # noqa: TID251 - ended by drive
            elif self._tasks or self._sleepers or self._held():
                await self._rest()
            else:
                return

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

    async def _settle(self) -> None:
        """Everything durable and sent; a run that waits for people says so and lets go of the thread."""
        if self.machine.status == "waiting":
            self._closed = True  # an answer from now on loads the thread anew
        await self._acknowledged()
        if self.error is None and self.machine.status == "waiting":
            self.outlet.emit_at(waiting_event(self.machine), self.machine.last_at)
            if self.journal is not None:
                await self.journal.release()

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
        try:
            await self._run(number)
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.pop(number, None)
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
            tick = self.runs.succeeded(ctx, node, await self.runs.call(ctx, frame, node))
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

    def _cancel_node(self, number: int) -> None:
        """Ends a node run and whatever task drives it."""
        self.runs.drop(number)
        if number in self._ready:
            self._ready.remove(number)
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

    def _disarm(self) -> None:
        self.holding.disarm()
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
