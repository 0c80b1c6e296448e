"""Waiting for people in the live process: for how long, who waits, and letting go (E12)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from graphflow.errors import NodeFailed
from graphflow.graph.context import Suspended
from graphflow.graph.machine import Interrupt, NodeAsked
from graphflow.graph.state import freeze

if TYPE_CHECKING:
    from graphflow.graph.executor import Executor


class Holding:
    """What of one life waits for answers.

    Args:
        hold_ms: how long the process waits when the question names no time of its own; 0 never waits.
    """

    def __init__(self, executor: Executor, hold_ms: int) -> None:
        self._executor, self._hold_ms = executor, hold_ms
        self._waiters: dict[str, asyncio.Future[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.released = False
        """The process has stopped waiting: the thread waits on without it."""

    def time_of(self, interrupt: Interrupt) -> int:
        """How long this process waits for an answer to the interrupt, in ms."""
        if self.released or self._hold_ms == 0:
            return 0
        return self._hold_ms if interrupt.hold_ms is None else interrupt.hold_ms

    def would_hold(self) -> bool:
        """Whether any open question is still held."""
        return any(self.time_of(i) > 0 for i in self._executor.machine.interrupts.values())

    def nobody_works(self) -> bool:
        """Whether every question comes from an `ask` node: a node that asks by itself may do more before it is left."""
        return all(i.key == "" or i.kind == "breakpoint" for i in self._executor.machine.interrupts.values())

    def open(self, asked: Interrupt) -> Interrupt:
        """Feeds a question; the interrupt as it is open now."""
        executor = self._executor
        before = set(executor.machine.interrupts)
        executor.feed(
            NodeAsked(id=executor.ids.new_id(), at=executor.clock.now_ms(), frame=asked.frame, interrupt=asked)
        )
        return next(i for key, i in executor.machine.interrupts.items() if key not in before)

    def find(self, frame: int, key: str) -> Interrupt | None:
        """The open interrupt of this operation, if it has asked already."""
        return next((i for i in self._executor.machine.interrupts.values() if i.frame == frame and i.key == key), None)

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
        if not self.time_of(interrupt):
            raise Suspended
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters[interrupt.id] = future
        ctx = self._executor.runs.get(asked.frame)
        limit = None if ctx is None else ctx.limit
        remaining = None
        if limit is not None and (when := limit.when()) is not None:  # waiting is not active time (E11)
            remaining = when - asyncio.get_running_loop().time()
            limit.reschedule(None)
        try:
            return await future
        finally:
            self._waiters.pop(interrupt.id, None)
            if limit is not None and remaining is not None and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + remaining)

    def resolve(self, interrupt: Interrupt, decision: str, answer: Any) -> None:
        """Wakes whoever waits in this process."""
        future = self._waiters.pop(interrupt.id, None)
        if future is None or future.done():
            return
        if decision in ("cancelled", "expired"):
            future.cancel()
        else:
            future.set_result(freeze(answer))

    def arm(self) -> None:
        """Lets go of the run when every open question has been held for its time."""
        self.disarm()
        longest = max((self.time_of(i) for i in self._executor.machine.interrupts.values()), default=0)
        if longest > 0:
            self._timer = asyncio.get_running_loop().call_later(longest / 1000, self._executor.release)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def let_go(self) -> None:
        """Stops waiting: nodes that ask are left, and entered again after the answer."""
        self.released = True
        for future in self._waiters.values():
            if not future.done():
                future.set_exception(Suspended())
