"""The one loop that acts: it runs nodes, keeps time, writes the journal and sends events.

`feed(tick)` is where everything meets: the pure core advances, the change is committed, events go out, and
what the core commands is set in motion. It is synchronous, so answers, cancellations and recorded operations
may feed their ticks from any task of the loop while a node runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphflow.errors import CodecError, Fenced, GraphflowError, NodeFailed, NodeTimeout, StoreError, error_dict
from graphflow.events import (
    LIVE_ONLY,
    ActionEnd,
    ActionStart,
    ContentEnd,
    ContentStart,
    Event,
    InterruptResolve,
    NodeEnd,
    NodeError,
    NodeStart,
    ReasoningEnd,
    ReasoningStart,
    RunError,
    ToolEnd,
    ToolStart,
)
from graphflow.graph.announcements import After, count_after, events_after, waiting_event
from graphflow.graph.blocks import Blocks
from graphflow.graph.context import Context, Goto, OutcomeUnknown, Soon, Suspended
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
    NodeAsked,
    NodeSucceeded,
    Request,
    Resolve,
    Run,
    Started,
)
from graphflow.graph.machine import (
    NodeFailed as NodeFailedTick,
)
from graphflow.graph.plan import Plan, PlanNode
from graphflow.graph.ports import Clock, Ids, Journal, Logged
from graphflow.graph.scope import scope_of
from graphflow.graph.state import freeze
from graphflow.graph.transition import advance

YIELD_EVERY = 64
"""Node runs between two turns of the event loop, so that nodes that never wait starve nobody."""
UNLOGGED = frozenset({
    *LIVE_ONLY, ReasoningStart, ReasoningEnd, ContentStart, ContentEnd, ToolStart, ToolEnd, ActionStart, ActionEnd,
})  # fmt: skip
"""What the stored log leaves out: live-only events, and the edges of blocks, which their snapshots stand for."""
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
        self.sink, self.room = sink, room
        self.services: Mapping[str, Any] = {} if services is None else services
        self.hold_ms, self.life, self.lineage, self.seq = hold_ms, life, lineage, seq
        self.checkpoint_id = checkpoint_id
        self.sent: list[Logged] = []
        """What the log keeps of the events since the last record; blocks as their snapshots."""
        self.error: GraphflowError | None = None
        """Why the store failed, if it did."""
        self._after: deque[After] = deque()
        self._ready: deque[int] = deque()
        self._starts: dict[int, Started] = {}
        self._runs: dict[int, Context] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sleepers: set[asyncio.Task[None]] = set()
        self._waiters: dict[str, asyncio.Future[Any]] = {}
        self._holds: dict[str, float] = {}
        self._here: int | None = None
        self._here_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._wake = asyncio.Event()
        self._idle = False
        """Whether the loop waits for `_wake`."""
        self._deadline: asyncio.TimerHandle | None = None
        self._release: asyncio.TimerHandle | None = None
        self._released = False
        self._made = 0
        self._blocks_made = 0
        self._stamp = 0
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
        return self._released if status == "waiting" else status != "running"

    # --- events

    def emit(self, event: Event) -> None:
        """Numbers an event and sends it; the log keeps it unless it is live only."""
        self.seq += 1
        event.seq = self.seq
        event.timestamp = self.clock.now_ms()
        if self.journal is not None and type(event) not in UNLOGGED:
            self.sent.append((event, event.seq))
            self._stamp = event.timestamp
        if self.sink is not None:
            self.sink(event)

    def _emit_at(self, event: Event, at: int) -> None:
        """Sends what follows a commit, under the commit's own time: it can be made again from the record.

        A time never falls behind that of the logged event before it.
        """
        self.seq += 1
        event.seq, event.timestamp = self.seq, max(at, self._stamp)
        if self.journal is not None:
            self.sent.append((event, event.seq))
        if self.sink is not None:
            self.sink(event)

    def _emit_end(self, end: Event, snapshot: Event, first: int) -> None:
        """A block's end; its snapshot, under the same number, is what the log keeps (E1)."""
        self.emit(end)
        if self.journal is not None:
            snapshot.seq, snapshot.timestamp = end.seq, end.timestamp
            self.sent.append((snapshot, first))

    def new_blocks(self, ctx: Context) -> Blocks:
        return Blocks(self.emit, self._emit_end, self._block_id, self.machine.run_id, ctx.node_run_id)

    def _block_id(self, kind: str) -> str:
        """Unique in the run: a node that runs again, in this life or a later one, uses new ids (E1)."""
        self._blocks_made += 1
        return f"{kind}_{self.life}.{self._blocks_made}"

    def send_again(self, events: Iterable[tuple[Event, int]]) -> None:
        """What followed the last commit of an earlier life, `(event, time)`: under the same numbers (E1)."""
        for event, at in events:
            self._emit_at(event, at)

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
                    self._end_node(command)
                case Run() | Started() | Backoff():
                    begun.append(command)
                case Erred():
                    self._say_resuming()
                    self._err_node(command)
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
                    self._close_runs()
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
            self._arm_release()
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
            release = finished is not None or (pauses and not self._would_hold() and self._nobody_works())
            tail = 0
            if finished is not None or pauses:
                tail = sum(count_after(a) for a in self._after) + count_after(after) + commit.checkpoint + pauses
            sent, self.sent = self.sent, []
            after.durable = self.journal.write(prepared, sent, self.seq, tail, release)
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
                    self._starts[command.frame] = command
                    if command.open:
                        self._start_node(command.frame)
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
                self._emit_at(event, after.commit.at)
        if self._idle:
            self._wake.set()

    def _store_failed(self, failure: BaseException) -> None:
        """A failed commit ends the run at once (E7); a fenced one without a word to the world (E2)."""
        if self.error is not None:
            return
        error = failure if isinstance(failure, GraphflowError) else StoreError(str(failure))
        self._after.clear()
        self._close_runs()
        self.error = error
        if not isinstance(error, Fenced) and self.sink is not None:
            self.sent = []
            self.seq += 1
            event = RunError(
                run_id=self.machine.run_id, error=error.as_dict(), seq=self.seq, timestamp=self.clock.now_ms()
            )
            self.sink(event)
        for number in list(self._runs):
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
            elif self._tasks or self._sleepers or self._holding():
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
            self._emit_at(waiting_event(self.machine), self.machine.last_at)
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
        ctx = self._start_node(number)
        if node.form == "ask":
            self._ask(ctx, frame, node)
            return
        tick: AnyTick | None
        try:
            tick = self._succeeded(ctx, node, await self._call(ctx, frame, node))
        except (Suspended, BaseExceptionGroup) as left:
            if not _is_suspension(left):
                if not isinstance(left, ExceptionGroup):
                    raise
                tick = self._failed(ctx, left)
            else:
                ctx.close_blocks()
                return
        except asyncio.CancelledError:
            if not ctx.alive or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # Nobody cancelled this task: the node raised it, which is a failure like any other.
            tick = self._failed(ctx, NodeFailed(f"node {node.name!r} raised CancelledError"))
        except Exception as error:  # noqa: BLE001 - the boundary where any node's failure becomes a tick
            tick = self._failed(ctx, error)
        if not ctx.alive:
            return
        ctx.close_blocks()
        try:
            self.feed(tick)
        except (CodecError, NodeFailed) as error:
            self.feed(self._failed(ctx, error))

    async def _call(self, ctx: Context, frame: Frame, node: PlanNode) -> Any:
        assert node.run is not None
        if node.returns_updates:
            given: Any = frame.state
        else:
            template = node.arguments
            given = (
                {}
                if template is None
                else template.evaluate(scope_of(self.plan.graphs[frame.graph], self.machine, frame))
            )
        if node.timeout_s is None:
            return await node.run(given, ctx)
        try:
            async with asyncio.timeout(node.timeout_s) as limit:
                ctx.limit = limit
                out = await node.run(given, ctx)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._timed_out(node) from None
        if limit.expired():  # the node swallowed the cancellation; its result comes too late all the same
            raise self._timed_out(node)
        return out

    @staticmethod
    def _timed_out(node: PlanNode) -> NodeTimeout:
        return NodeTimeout(
            f"node {node.name!r} took longer than its timeoutMs of {int((node.timeout_s or 0) * 1000)}; raise it, or route "
            'the error: {"on": ["timeout"], "to": …}'
        )

    def _succeeded(self, ctx: Context, node: PlanNode, out: Any) -> NodeSucceeded:
        updates, goto = None, None
        if node.returns_updates:
            if type(out) is Goto:
                goto, out = out.node, out.update
            if out is not None and not isinstance(out, Mapping):
                raise NodeFailed(
                    f"node {node.name!r} returned {type(out).__name__}; return a mapping of state updates, nothing, or Goto"
                )
            updates, out = out, None
        return NodeSucceeded(
            id=self.ids.new_id() if self.journal is not None else "",  # only a record needs one
            at=self.clock.now_ms(),
            frame=ctx.frame,
            out=out,
            updates=updates,
            goto=goto,
            usage=ctx.usage,
            finish=ctx.finish_reason,
        )

    def _failed(self, ctx: Context, error: BaseException) -> NodeFailedTick:
        status = "timeout" if isinstance(error, NodeTimeout) else "error"
        return NodeFailedTick(
            id=self.ids.new_id(),
            at=self.clock.now_ms(),
            frame=ctx.frame,
            error=error_dict(error, ctx.node),
            jitter=self.ids.random(),
            partial=ctx.partial(status) if ctx.partial is not None else None,
            usage=ctx.usage,
            final=isinstance(error, OutcomeUnknown),
        )

    def _ask(self, ctx: Context, frame: Frame, node: PlanNode) -> None:
        """An `ask` node asks at once; there is nothing to run."""
        question = node.question
        assert question is not None
        existing = [i for i in self.machine.interrupts.values() if i.frame == frame.number and i.key == ""]
        if existing:
            return
        try:
            scope = scope_of(self.plan.graphs[frame.graph], self.machine, frame)
            payload = {"message": question.message.evaluate(scope)}
            if question.show is not None:
                payload["show"] = question.show.evaluate(scope)
            now = self.clock.now_ms()
            interrupt = Interrupt(
                id="",
                kind="ask",
                run_id="",
                node=node.name,
                frame=frame.number,
                key="",
                schema=freeze(question.schema),
                payload=freeze(payload),
                path=frame.path,
                owner=question.owner,
                role=question.role,
                hold_ms=question.hold_ms,
                expires_at=None if question.expires_ms is None else now + question.expires_ms,
                on_expire=question.on_expire,
                node_run_id=ctx.node_run_id,
            )
            self._open(interrupt)
        except NodeFailed as error:
            self.feed(self._failed(ctx, error))

    # --- node events

    def _start_node(self, number: int) -> Context:
        """The node run of a frame: begun now, unless the frame's node is being gone on with."""
        started = self._starts.pop(number, None)
        ctx = self._runs.get(number)
        frame = self.machine.frames[number]
        node = self.plan.graphs[frame.graph].nodes[frame.node]
        if started is None and ctx is not None and ctx.plan_node is node and ctx.alive:
            # Entered again after an answer: the same node run goes on.
            again = Context(self, frame, node, ctx.node_run_id)
            again.started = ctx.started
            self._runs[number] = again
            return again
        self._made += 1
        ctx = Context(self, frame, node, f"{self.life}.{self._made}")
        ctx.started = self.clock.monotonic()
        self._runs[number] = ctx
        step = started.step if started is not None else self.machine.begun
        self.emit(
            NodeStart(
                node=node.name,
                node_run_id=ctx.node_run_id,
                step=step,
                attempt=frame.attempt,
                path=frame.path or None,
            )
        )
        return ctx

    def _take_up(self, interrupt: Interrupt) -> None:
        """A node run that asked in an earlier life goes on in this one: it has no second `node.start`."""
        frame = self.machine.frames[interrupt.frame]
        node = self.plan.graphs[frame.graph].nodes.get(interrupt.node)
        if node is not None:
            ctx = self._runs[interrupt.frame] = Context(self, frame, node, interrupt.node_run_id)
            ctx.started = self.clock.monotonic()

    def _end_node(self, command: Ended) -> None:
        ctx = self._runs.pop(command.frame, None)
        if ctx is None:
            return
        ctx.alive = False
        self.emit(
            NodeEnd(
                node=command.node,
                node_run_id=ctx.node_run_id,
                duration_ms=int((self.clock.monotonic() - ctx.started) * 1000),
                writes=list(command.writes) or None,
                usage=command.usage,
            )
        )

    def _err_node(self, command: Erred) -> None:
        ctx = self._runs.pop(command.frame, None)
        if ctx is None:
            return
        ctx.close_blocks()
        ctx.alive = False
        self.emit(
            NodeError(
                node=command.node, node_run_id=ctx.node_run_id, error=command.error, will_retry=command.will_retry
            )
        )

    def _cancel_node(self, number: int) -> None:
        """Ends a node run: its blocks are closed, what it still does has no effect, its task is cancelled."""
        ctx = self._runs.pop(number, None)
        if ctx is not None:
            ctx.close_blocks()
            ctx.alive = False
        if number in self._ready:
            self._ready.remove(number)
        self._starts.pop(number, None)
        if self._here == number and self._task is not None and asyncio.current_task() is not self._task:
            self._here_cancelled = True
            self._task.cancel()
        task = self._tasks.get(number)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _close_runs(self) -> None:
        """Every block is closed before a pause or a terminal (spec 3.3)."""
        for ctx in self._runs.values():
            ctx.close_blocks()

    # --- waiting for people

    def _open(self, interrupt: Interrupt) -> Interrupt:
        """Feeds the question; the interrupt as it is open now."""
        known = self.machine.interrupts.keys()
        before = set(known)
        self.feed(NodeAsked(id=self.ids.new_id(), at=self.clock.now_ms(), frame=interrupt.frame, interrupt=interrupt))
        return next(i for key, i in self.machine.interrupts.items() if key not in before)

    async def wait_for_answer(self, asked: Interrupt) -> Any:
        """Opens the interrupt, or finds it open, and waits for its answer while the process holds the run.

        Raises:
            Suspended: nothing holds the run any more.
            NodeFailed: `node_not_deterministic` when another question is open under the same key.
        """
        interrupt = next(
            (i for i in self.machine.interrupts.values() if i.frame == asked.frame and i.key == asked.key), None
        )
        if interrupt is None:
            interrupt = self._open(asked)
        elif interrupt.digest != asked.digest:
            raise NodeFailed(
                f"node {asked.node!r} asks something else under the key {asked.key!r} of an open question; the question stays",
                code="node_not_deterministic",
                key=asked.key,
            )
        if not self._hold_of(interrupt):
            raise Suspended
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters[interrupt.id] = future
        ctx = self._runs.get(asked.frame)
        limit = getattr(ctx, "limit", None)
        remaining = None
        if limit is not None and limit.when() is not None:  # waiting is not active time (E11)
            remaining = limit.when() - asyncio.get_running_loop().time()
            limit.reschedule(None)
        try:
            return await future
        finally:
            self._waiters.pop(interrupt.id, None)
            if limit is not None and remaining is not None and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + remaining)

    def _hold_of(self, interrupt: Interrupt) -> int:
        if self._released or self.hold_ms == 0:
            return 0
        return self.hold_ms if interrupt.hold_ms is None else interrupt.hold_ms

    def _would_hold(self) -> bool:
        return any(self._hold_of(i) > 0 for i in self.machine.interrupts.values())

    def _nobody_works(self) -> bool:
        """Whether every question comes from an `ask` node: a node that asks by itself may do more before it is left."""
        return all(i.key == "" or i.kind == "breakpoint" for i in self.machine.interrupts.values())

    def _holding(self) -> bool:
        return self.machine.status == "waiting" and self._would_hold()

    def _waits_live(self, number: int) -> bool:
        """Whether the frame's coroutine is alive and its answer has just woken it."""
        ctx = self._runs.get(number)
        return ctx is not None and ctx.alive and (self._here == number or number in self._tasks)

    def _arm_release(self) -> None:
        """Lets go of the run when every open question has been held for its time."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        longest = max((self._hold_of(i) for i in self.machine.interrupts.values()), default=0)
        if self._release is not None:
            self._release.cancel()
        if longest > 0:
            self._release = asyncio.get_running_loop().call_later(longest / 1000, self.release)

    def release(self) -> None:
        """Stops waiting in this process: the thread waits on without it."""
        if self.machine.status != "waiting" or self._closed:
            return
        self._released = True
        for ctx in self._runs.values():
            ctx.close_blocks()
        for future in self._waiters.values():
            if not future.done():
                future.set_exception(Suspended())
        self._wake.set()

    def _resolve(self, command: Resolve) -> None:
        interrupt = command.interrupt
        if interrupt.node_run_id and interrupt.frame not in self._runs and interrupt.frame in self.machine.frames:
            self._take_up(interrupt)
        self.emit(InterruptResolve(interrupt_id=interrupt.id, decision=command.decision))
        future = self._waiters.pop(interrupt.id, None)
        if future is not None and not future.done():
            if command.decision in ("cancelled", "expired"):
                future.cancel()
            else:
                future.set_result(freeze(command.answer))

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
        partials = {}
        for number, ctx in self._runs.items():
            if ctx.partial is not None:
                partials[number] = ctx.partial("cancelled")
        self._close_runs()
        self.feed(Cancel(id=self.ids.new_id(), at=self.clock.now_ms(), partials=partials))

    async def _cancelled_from_outside(self) -> None:
        """The task was cancelled (the consumer left): the run is cancelled and its last commit completed."""
        self._here = None
        if self.error is not None:
            return
        if self.abandoned:
            self._close_runs()
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
        for ctx in list(self._runs.values()):
            ctx.close_blocks()
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
        for handle in (self._deadline, self._release):
            if handle is not None:
                handle.cancel()

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
