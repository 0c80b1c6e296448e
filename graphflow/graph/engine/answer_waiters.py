"""Questions that this process holds: for how long, which calls wait for them, and when it lets go (E12)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from graphflow.errors import NodeFailed
from graphflow.graph.core.immutable import freeze
from graphflow.graph.core.machine import Interrupt, of_frame
from graphflow.graph.core.ticks import NodeAsked
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.suspension import ACTS_AROUND, Suspended

MAX_TIMER_S = 60.0
"""Longest timer: the clock is checked at least this often, because clocks are set and machines sleep."""


class Asker(Protocol):
    """The node run that asks."""

    alive: bool
    acts: frozenset[object]
    """Operations that are under way."""
    limit: asyncio.Timeout | None
    left: bool
    """It was told to leave, and to be entered again after the answer."""

    def to_be_counted(self, key: str | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]: ...
    def note_counted(self, key: str | None, usage: Mapping[str, Any] | None) -> None: ...


class AnswerWaiters:
    """The calls of one epoch that wait for answers.

    Args:
        hold_ms: how long the process waits when the question names no time of its own; 0 never waits.
    """

    def __init__(self, run: Run, hold_ms: int) -> None:
        self._run, self._hold_ms = run, hold_ms
        self._waiters: dict[str, Waiter] = {}
        self._of_asker: dict[Asker, dict[str, Waiter]] = {}
        """The same by who asks: one question of thousands is not looked for among all of them."""
        self.released = False
        """The process has stopped waiting: the thread waits on without it."""

    @property
    def may_hold(self) -> bool:
        """Whether this process waits for answers at all."""
        return not self.released and self._hold_ms != 0

    def time_of(self, interrupt: Interrupt) -> int:
        """How long this process waits for an answer to the interrupt, in ms."""
        if not self.may_hold:
            return 0
        return self._hold_ms if interrupt.hold_ms is None else interrupt.hold_ms

    def long_enough(self, wait_ms: int) -> int:
        """How long to hold a run for a wait of this length: past its end, or 0 if that takes too long."""
        return wait_ms + 5_000 if wait_ms <= self._hold_ms else 0

    def would_hold(self) -> bool:
        """Whether any open question is still held."""
        return any(self.time_of(i) > 0 for i in self._run.machine.interrupts.values())

    def nobody_works(self) -> bool:
        """Whether every question comes from an `ask` node: a node that asks by itself may do more before it is left."""
        return all(i.key == "" or i.kind == "breakpoint" for i in self._run.machine.interrupts.values())

    def open(self, asked: Interrupt, ctx: Asker) -> Interrupt:
        """Feeds a question; the interrupt as it is open now."""
        run = self._run
        usage, facts = ctx.to_be_counted(asked.key)
        now = run.clock.now_ms()
        run.feed(NodeAsked(id=run.ids.new_id(), at=now, frame=asked.frame, interrupt=asked, usage=usage, facts=facts))
        ctx.note_counted(asked.key, usage)
        return of_frame(run.machine.interrupts, asked.frame)[-1]  # the core makes its id

    def find(self, frame: int, key: str) -> Interrupt | None:
        """The open interrupt of this operation, if it has asked already."""
        return next((i for i in of_frame(self._run.machine.interrupts, frame) if i.key == key), None)

    async def wait(self, asked: Interrupt, ctx: Asker) -> Any:
        """Opens the interrupt, or finds it open, and waits for its answer while the process holds the run.

        Where several people have to agree, that is the answer of the last of them.

        Raises:
            Suspended: nothing holds the run any more.
            NodeFailed: `node_not_deterministic` when another question is open under the same key.
        """
        interrupt = self.find(asked.frame, asked.key)
        if interrupt is None:
            interrupt = self.open(asked, ctx)
        elif interrupt.digest != asked.digest:
            raise NodeFailed(
                f"node {asked.node!r} asks something else under the key {asked.key!r} of an open question; "
                "the question stays",
                code="node_not_deterministic",
                key=asked.key,
            )
        while True:
            answer = await self._answer_to(interrupt, ctx)
            following = self.find(asked.frame, asked.key) if asked.kind == "outcome_unknown" else None
            if following is None:
                return answer
            interrupt = following

    async def _answer_to(self, interrupt: Interrupt, ctx: Asker) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # No name for it here, for the reason that `future` is deleted below.
        self._waiters[interrupt.id] = Waiter(future, ctx, ACTS_AROUND.get(), self.time_of(interrupt) > 0)
        self._of_asker.setdefault(ctx, {})[interrupt.id] = self._waiters[interrupt.id]
        if not self.time_of(interrupt):
            loop.call_soon(self.quiet, ctx)  # first let other operations end that the node has begun
        limit, remaining = ctx.limit, None
        if limit is not None and (when := limit.when()) is not None:  # waiting is not active time (E11)
            remaining = when - asyncio.get_running_loop().time()
            limit.reschedule(None)
        try:
            return await future
        finally:
            del future  # its exception refers to this frame, which would be a reference cycle
            self._forget(interrupt.id)
            if limit is not None and remaining is not None and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + remaining)

    def _forget(self, interrupt_id: str) -> Waiter | None:
        waiter = self._waiters.pop(interrupt_id, None)
        if waiter is not None and (others := self._of_asker.get(waiter.ctx)) is not None:
            others.pop(interrupt_id, None)
            if not others:
                del self._of_asker[waiter.ctx]
        return waiter

    def resolve(self, interrupt: Interrupt, decision: str, answer: Any) -> None:
        """Wakes the call that waits in this process, if there is one."""
        waiter = self._forget(interrupt.id)
        if waiter is None or (future := waiter.future).done():
            return
        if decision in ("cancelled", "expired"):
            future.cancel()
        else:
            future.set_result(freeze(answer))

    def longest_hold_ms(self) -> int:
        """How long the process still holds the run, in ms; 0 releases it."""
        return max((self.time_of(i) for i in self._run.machine.interrupts.values()), default=0)

    def next_expiry_s(self) -> float | None:
        """When to look for questions that have expired, in seconds from now; None when none of them ever does."""
        due = [i.expires_at for i in self._run.machine.interrupts.values() if i.expires_at is not None]
        return min(max(min(due) - self._run.clock.now_ms(), 1) / 1000, MAX_TIMER_S) if due else None

    def expired(self) -> str | None:
        """A question whose time is up."""
        now = self._run.clock.now_ms()
        open_ = self._run.machine.interrupts.values()
        return next((i.id for i in open_ if i.expires_at is not None and i.expires_at <= now), None)

    def let_go(self) -> None:
        """Stops waiting: nodes that ask are left, and entered again after the answer."""
        self.released = True
        for waiter in self._waiters.values():
            waiter.held = False
        for ctx in list(self._of_asker):
            self.quiet(ctx)

    def quiet(self, ctx: Asker) -> None:
        """Leaves a node whose questions nobody holds, unless an operation of it is under way: that one ends first.

        Leaving a node cancels whatever else it does, and a write that is cut off has an unknown outcome.
        """
        for waiter in self._of_asker.get(ctx, {}).values():
            if not waiter.held and not waiter.future.done():
                # Operations around the question cannot end before the answer; waiting for them would never end.
                if not ctx.alive or ctx.acts <= waiter.around:
                    ctx.left = True
                    waiter.future.set_exception(Suspended())

    def acted(self, ctx: Asker) -> None:
        """An operation of the node has ended."""
        if self._waiters:
            asyncio.get_running_loop().call_soon(self.quiet, ctx)


class Waiter:
    """A call of `ctx.ask` that waits in this process.

    Args:
        around: the operations inside which it asks; it can't wait for those to end.
        held: the process waits for the answer, not only for the node's other operations.
    """

    __slots__ = ("around", "ctx", "future", "held")

    def __init__(self, future: asyncio.Future[Any], ctx: Asker, around: frozenset[object], held: bool) -> None:
        self.future, self.ctx, self.around, self.held = future, ctx, around, held
