"""Waiting for people in the live process: for how long, who waits, and letting go (E12)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from graphflow.errors import NodeFailed
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Interrupt
from graphflow.graph.core.ticks import NodeAsked
from graphflow.graph.engine.context import ACTS_AROUND, Suspended

if TYPE_CHECKING:
    from graphflow.graph.engine.executor import Executor


MAX_TIMER_S = 60.0
"""A timer looks at the clock at least so often: clocks are set, and machines sleep."""


class AnswerWaiters:
    """What of one life waits for answers.

    Args:
        hold_ms: how long the process waits when the question names no time of its own; 0 never waits.
    """

    def __init__(self, executor: Executor, hold_ms: int) -> None:
        self.executor, self._hold_ms = executor, hold_ms
        self._waiters: dict[str, Waiter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        self.released = False
        """The process has stopped waiting: the thread waits on without it."""

    def time_of(self, interrupt: Interrupt) -> int:
        """How long this process waits for an answer to the interrupt, in ms."""
        if self.released or self._hold_ms == 0:
            return 0
        return self._hold_ms if interrupt.hold_ms is None else interrupt.hold_ms

    def long_enough(self, wait_ms: int) -> int:
        """For how long a process shall hold a run that waits so long: past its end, or not at all."""
        return wait_ms + 5_000 if wait_ms <= self._hold_ms else 0

    def would_hold(self) -> bool:
        """Whether any open question is still held."""
        return any(self.time_of(i) > 0 for i in self.executor.machine.interrupts.values())

    def nobody_works(self) -> bool:
        """Whether every question comes from an `ask` node: a node that asks by itself may do more before it is left."""
        return all(i.key == "" or i.kind == "breakpoint" for i in self.executor.machine.interrupts.values())

    def open(self, asked: Interrupt) -> Interrupt:
        """Feeds a question; the interrupt as it is open now."""
        executor = self.executor
        before = set(executor.machine.interrupts)
        ctx = executor.runs.get(asked.frame)
        usage, facts = (None, None) if ctx is None else ctx.to_be_counted(asked.key)
        now = executor.clock.now_ms()
        executor.feed(
            NodeAsked(id=executor.ids.new_id(), at=now, frame=asked.frame, interrupt=asked, usage=usage, facts=facts)
        )
        if ctx is not None:
            ctx.note_counted(asked.key, usage)
        return next(i for key, i in executor.machine.interrupts.items() if key not in before)

    def find(self, frame: int, key: str) -> Interrupt | None:
        """The open interrupt of this operation, if it has asked already."""
        return next((i for i in self.executor.machine.interrupts.values() if i.frame == frame and i.key == key), None)

    async def wait(self, asked: Interrupt) -> Any:
        """Opens the interrupt, or finds it open, and waits for its answer while the process holds the run.

        Raises:
            Suspended: nothing holds the run any more.
            NodeFailed: `node_not_deterministic` when another question is open under the same key.
        """
        interrupt = self.find(asked.frame, asked.key)
        if interrupt is None:
            interrupt = self.open(asked)
        elif interrupt.digest != asked.digest:
            raise NodeFailed(
                f"node {asked.node!r} asks something else under the key {asked.key!r} of an open question; "
                "the question stays",
                code="node_not_deterministic",
                key=asked.key,
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiters[interrupt.id] = Waiter(future, asked.frame, ACTS_AROUND.get(), self.time_of(interrupt) > 0)
        if not self.time_of(interrupt):
            loop.call_soon(self.quiet, asked.frame)  # what else the node has begun by then comes to its end first
        ctx = self.executor.runs.get(asked.frame)
        limit = None if ctx is None else ctx.limit
        remaining = None
        if limit is not None and (when := limit.when()) is not None:  # waiting is not active time (E11)
            remaining = when - asyncio.get_running_loop().time()
            limit.reschedule(None)
        try:
            return await future
        finally:
            del future  # what it raises holds this frame: a circle
            self._waiters.pop(interrupt.id, None)
            if limit is not None and remaining is not None and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + remaining)

    def resolve(self, interrupt: Interrupt, decision: str, answer: Any) -> None:
        """Wakes whoever waits in this process."""
        waiter = self._waiters.pop(interrupt.id, None)
        if waiter is None or (future := waiter.future).done():
            return
        if decision in ("cancelled", "expired"):
            future.cancel()
        else:
            future.set_result(freeze(answer))

    def arm(self) -> None:
        """Lets go of the run when every open question has been held for its time."""
        self.disarm()
        longest = max((self.time_of(i) for i in self.executor.machine.interrupts.values()), default=0)
        if longest > 0:
            self._timer = asyncio.get_running_loop().call_later(longest / 1000, self.executor.release)
            self._arm_due()

    def _arm_due(self) -> None:
        """What is due while the process holds the run happens in time; else a sweep finds it."""
        due = [i.expires_at for i in self.executor.machine.interrupts.values() if i.expires_at is not None]
        if due:
            wait_s = max(min(due) - self.executor.clock.now_ms(), 1) / 1000
            self._due = asyncio.get_running_loop().call_later(min(wait_s, MAX_TIMER_S), self._on_due)

    def _on_due(self) -> None:
        self._due = None
        executor = self.executor
        now = executor.clock.now_ms()
        due = [i.id for i in executor.machine.interrupts.values() if i.expires_at is not None and i.expires_at <= now]
        if not due:
            self._arm_due()
        elif not executor.ending:
            executor.expire(due[0])  # arms anew if the run waits on

    def disarm(self) -> None:
        for timer in (self._timer, self._due):
            if timer is not None:
                timer.cancel()
        self._timer = self._due = None

    def let_go(self) -> None:
        """Stops waiting: nodes that ask are left, and entered again after the answer."""
        self.released = True
        for waiter in self._waiters.values():
            waiter.held = False
        for frame in {waiter.frame for waiter in self._waiters.values()}:
            self.quiet(frame)

    def quiet(self, frame: int) -> None:
        """Leaves a node whose questions nobody holds, unless an operation of it is under way: that one ends first.

        Leaving a node cancels what it does beside asking, and a write that is cut off is one of unknown outcome.
        """
        ctx = self.executor.runs.get(frame)
        for waiter in self._waiters.values():
            if waiter.frame == frame and not waiter.held and not waiter.future.done():
                if ctx is None or ctx.acts <= waiter.around:
                    waiter.future.set_exception(Suspended())

    def acted(self, frame: int) -> None:
        """An operation of the node has ended."""
        if self._waiters:
            asyncio.get_running_loop().call_soon(self.quiet, frame)


class Waiter:
    """A call of `ctx.ask` that waits in this process.

    Args:
        around: the operations inside which it asks; it can't wait for those to end.
        held: the process waits for the answer, not only for the node's other operations.
    """

    __slots__ = ("around", "frame", "future", "held")

    def __init__(self, future: asyncio.Future[Any], frame: int, around: frozenset[object], held: bool) -> None:
        self.future, self.frame, self.around, self.held = future, frame, around, held
