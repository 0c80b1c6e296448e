"""Which nodes are to be run, and the tasks that run them: a lone one in the loop's own, others each in its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from graphflow.errors import CodecError, NodeFailed
from graphflow.graph.core.fan_out import joins_many
from graphflow.graph.core.machine import Frame
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.core.ticks import AnyTick
from graphflow.graph.engine.answer_waiters import AnswerWaiters
from graphflow.graph.engine.failure_trace import release_frames
from graphflow.graph.engine.light_event import Turns
from graphflow.graph.engine.node_run import NodeRun
from graphflow.graph.engine.node_runs import NodeRuns
from graphflow.graph.engine.outcomes import unstorable
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.state_bound import MuchToStore
from graphflow.graph.engine.suspension import Suspended, is_suspension

log = logging.getLogger("graphflow.nodes")
UNENDED_S = 10.0
"""When a cancelled node whose code still runs is logged."""
MAX_UNACKNOWLEDGED = 512
"""Commits in flight before the run waits for the store: memory stays bounded, a crash loses little."""


class Scheduler:
    """The nodes of one epoch that are ready, and those that run."""

    def __init__(self, run: Run, runs: NodeRuns, waiters: AnswerWaiters) -> None:
        self._run, self.runs, self._waiters = run, runs, waiters
        self.ready: dict[int, None] = {}
        """Frames whose node is to be run, in their order."""
        self.running: dict[int, asyncio.Task[None]] = {}
        """Frame → the task of its own that runs its nodes."""
        self.leaving: set[asyncio.Task[None]] = set()
        """Tasks whose node is over and cleans up, while its frame has moved on."""
        self.loop: asyncio.Task[None] | None = None
        """The task that drives the run."""
        self._here: int | None = None
        """The frame whose node runs in the loop's own task."""
        self._here_cancelled = False
        self.watched: dict[asyncio.Task[None], tuple[str, Callable[[], bool]]] = {}
        """Nodes whose run was ended while their code ran, and whether that still runs; by the task that logs it."""

    def add(self, number: int) -> None:
        """Marks the frame's node as ready, unless its coroutine is alive: the answer has then woken it already."""
        ctx = self.runs.get(number)
        # A task that is done stays in `running` until its callback has its turn.
        if (
            ctx is None
            or not ctx.alive
            or (self._here != number and ((task := self.running.get(number)) is None or task.done()))
        ):
            self.ready[number] = None

    def _next(self) -> int:
        number = next(iter(self.ready))
        del self.ready[number]
        return number

    def makes_room(self) -> bool:
        """Whether a branch waits for a place that the only ready node frees when it asks, and waits in this process."""
        if not self._waiters.may_hold:
            return False  # it is left as soon as it asks
        frames = self._run.machine.frames
        frame = frames[next(iter(self.ready))]
        while frame.parent >= 0:
            frame = frames[frame.parent]
            if frame.join is not None and frame.join.pending:
                return True
        return False

    # --- tasks

    async def run_here(self) -> None:
        """Runs the only ready node in the loop's own task: no task is made for it."""
        number = self._here = self._next()
        self._here_cancelled = from_outside = False
        assert self.loop is not None
        before = self.loop.cancelling()
        try:
            await self._call(number)
        except asyncio.CancelledError:
            # A node run that is over is left by `NodeRunOver` too, whoever has ended it.
            ctx = self.runs.get(number)
            from_outside = not self._here_cancelled and ctx is not None and ctx.alive
            if from_outside:
                raise
        finally:
            # Takes back what `cancel` asked for, whatever the node made of it: passed on, swallowed or uncancelled. And
            # what the node has left behind: in Python 3.11 a task group whose child fails last forgets to uncancel.
            while not from_outside and self.loop.cancelling() > before:
                self.loop.uncancel()
            self._here = None

    def run_apart(self, turn: Turns) -> None:
        """Gives every ready node a task of its own."""
        while self.ready:
            number = self._next()
            earlier = self.running.get(number)
            if earlier is not None and not earlier.done():
                self.leaving.add(earlier)
                earlier.add_done_callback(self.leaving.discard)
            task = asyncio.ensure_future(self._run_on(number, earlier, turn))  # noqa: TID251 - ended by drive
            self.running[number] = task
            task.add_done_callback(partial(self._over, number))

    async def _run_on(self, number: int, earlier: asyncio.Task[None] | None, turn: Turns) -> None:
        with suppress(asyncio.CancelledError):
            if earlier is not None and not earlier.done():
                await asyncio.wait((earlier,))  # a frame runs one node at a time
            if not turn.begin():
                await turn.take()
            await self._call(number)
            # As long as nothing has to wait, one task runs all nodes of its frame.
            while self._goes_on(number):
                del self.ready[number]
                await asyncio.sleep(0)  # the others' turn
                if not turn.begin():
                    await turn.take()
                await self._call(number)

    def _goes_on(self, number: int) -> bool:
        """Whether the task that has run the frame's node may run the next one too; else the loop makes another."""
        run = self._run
        if number not in self.ready or self.running.get(number) is not asyncio.current_task() or run.error:
            return False
        # The loop waits for the store between nodes; a task that went on by itself would skip that wait.
        return run.machine.durability != "sync" and len(run.pending) <= MAX_UNACKNOWLEDGED

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        """Forgets a finished task; a callback, because a task cancelled before its first step runs no `finally`."""
        if self.running.get(number) is task:
            del self.running[number]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._run.fail(error)
        self._run.wake()

    def cancel(self, number: int) -> None:
        """Cancels the task that runs the frame's node, unless it is the current task."""
        if self._here == number and self.loop is not None and asyncio.current_task() is not self.loop:
            if self._here_cancelled:
                return  # a node may fail and be cancelled by one tick
            # The loop's own task runs this node, so cancelling the node means cancelling the loop; `run_here` undoes
            # that.
            self._here_cancelled = True
            self.loop.cancel()
        task = self.running.get(number)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def cancel_caller(self) -> None:
        """Cancels the node whose code has just ended its own run, at its next wait: it may wait for that very end."""
        if self.loop is None or (task := asyncio.current_task()) is None:
            return
        numbers = [number for number, other in self.running.items() if other is task]
        if task is self.loop and self._here is not None:
            numbers.append(self._here)
        for number in numbers:
            asyncio.get_running_loop().call_soon(self.cancel, number)

    def drop(self, number: int) -> None:
        """Stops the frame's node: it is no longer ready, and its task is cancelled."""
        self.ready.pop(number, None)
        self.cancel(number)

    def cancel_node(self, number: int, *, tells: bool = False) -> None:
        """Ends a node run and whatever task drives it.

        Args:
            tells: sends `node.error`, because the run goes on or ends well and the `node.start` needs an end.
        """
        if (ctx := self.runs.get(number)) is not None:
            self._watch(number, ctx.node)
        self.runs.cancel(number, tells=tells)
        self.drop(number)

    def _watch(self, number: int, node: str) -> None:
        """Sees to it that code which does not end is logged: nobody can end it, and everybody waits for it."""
        task = self.running.get(number)
        if self._here == number:
            watch = asyncio.ensure_future(self._say_unended(node))  # noqa: TID251 - ended by `drive`
            self.watched[watch] = node, lambda: self._here == number and self._here_cancelled
        elif task is not None and not task.done() and task is not asyncio.current_task():
            watch = asyncio.ensure_future(self._say_unended(node))  # noqa: TID251 - ended by `drive`
            self.watched[watch] = node, lambda: not task.done() and task.cancelling() > 0

    async def _say_unended(self, node: str) -> None:
        run = self._run
        await run.clock.sleep(UNENDED_S)
        if node in self.unended():
            facts = {"node": node, "run_id": run.machine.run_id, "thread_id": run.thread_id}
            text = "node %r was cancelled and its code still runs after %g s: it ignores its cancellation, and what waits for it waits on"
            log.warning(text, node, UNENDED_S, extra={"facts": facts})

    def unended(self) -> list[str]:
        """Nodes that were cancelled and whose code still runs."""
        return [node for node, runs in self.watched.values() if runs()]

    def left(self) -> None:
        """The loop's own task was cancelled: no node runs in it any more."""
        self._here = None

    # --- one node

    async def _call(self, number: int) -> None:
        run = self._run
        if run.closed or run.error is not None:
            return  # it has ended while the node waited for its turn
        frame = run.machine.frames[number]
        node = run.plan.graphs[frame.graph].nodes[frame.node]
        ctx = self.runs.start(number)
        if node.form == "ask":
            self._ask(ctx, frame, node)
            return
        tick: AnyTick
        raised: BaseException | None = None
        try:
            if node.bare and run.lease is None:  # what `call` would do, without a coroutine around it
                assert node.run is not None
                out = await node.run(frame.state, ctx)
            else:
                out = await self.runs.call(ctx, frame, node)
            if self.loop is not None and self.loop.cancelling():
                # As the event loop ends it cancels all its tasks; the node's may hear of it first, and have swallowed it.
                await asyncio.sleep(0)  # whoever ends the run has its turn before the result counts
            if ctx.left:
                raise Suspended  # swallowed by the node: the question stays
            tick = self.runs.succeeded(ctx, node, out)
        except (Suspended, BaseExceptionGroup) as left:
            if is_suspension(left):
                ctx.close_blocks()
                ctx.record_usage()
                # An answer that came while the node was being left woke nobody: `add` saw its coroutine alive.
                if ctx.alive and run.machine.frames[number].status == "ready":
                    self.ready[number] = None
                return
            # A group takes `NodeRunOver` for an error, as it is not `CancelledError` itself.
            if ctx.alive and not isinstance(left, ExceptionGroup):
                raise
            raised, tick = left, self.runs.failed(ctx, left)
        # `cancelling()` tells a real cancellation from a `CancelledError` that user code raised.
        except asyncio.CancelledError:
            if not ctx.alive or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # Nobody cancelled this task: the node raised it, which is a failure like any other.
            tick = self.runs.failed(ctx, NodeFailed(f"node {node.name!r} raised CancelledError"))
        except Exception as error:  # noqa: BLE001 - the boundary where any node's failure becomes a tick
            raised, tick = error, self.runs.failed(ctx, error)
        if not ctx.alive:  # cancelled while it ran: its result is dropped
            return
        ctx.close_blocks()  # before the tick: its blocks end before `node.end`
        try:
            try:
                if frame.parent >= 0 and joins_many(run.plan, run.machine, number):
                    await run.feed_apart(tick)
                else:
                    run.feed(tick)
            except MuchToStore:
                await run.feed_apart(tick)
        except (CodecError, NodeFailed) as error:  # the tick had no effect: the result can't be stored or written
            raised = _named(error, node)
            run.feed(self.runs.failed(ctx, raised))
        if raised is not None and run.machine.status == "failed":
            run.cause = release_frames(raised)

    def _ask(self, ctx: NodeRun, frame: Frame, node: PlanNode) -> None:
        """An `ask` node asks at once; there is nothing to run."""
        run = self._run
        if self._waiters.find(frame.number, "") is not None:
            return
        try:
            self._waiters.open(self.runs.question(ctx, frame, node), ctx)
        except NodeFailed as error:
            run.feed(self.runs.failed(ctx, error))


def _named(error: CodecError | NodeFailed, node: PlanNode) -> Exception:
    """The error with what it is about."""
    if not isinstance(error, CodecError):
        return error
    where = error.detail.get("channel") or "its state"
    return unstorable(error, f"what node {node.name!r} gives for {where!r}")
