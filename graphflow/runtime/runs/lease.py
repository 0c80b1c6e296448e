"""This process's hold on a thread while it drives it (E2).

A process that was stopped for longer than its lease (a paused container, a laptop that slept) may have lost the thread
without knowing. Until it has asked the store it starts no node, records nothing, and what its nodes still say is
withheld: if another epoch has begun, none of it is ever sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from graphflow.errors import Fenced, GraphflowError
from graphflow.events import Event
from graphflow.runtime.runs.store_time import Moment

NEVER = 1 << 62


class Gate(Protocol):
    """Where the events of an epoch leave the process. An event later than `good_until` goes to `withhold`."""

    good_until: int
    withhold: Callable[[Event], None] | None

    def pass_on(self, event: Event) -> None: ...


class ThreadLease:
    """The time until which no other process can have taken the thread, as far as this process knows.

    Args:
        until: by the clocks of this process.
        renewed: asks the store; the new end of the lease, or None when another epoch of the thread has begun.
        lose: ends the epoch without sending anything.
        uptime: seconds. Unlike the wall clock nobody sets it back, which would make a lease last longer.
    """

    def __init__(
        self,
        until: Moment,
        renewed: Callable[[], Awaitable[Moment | None]],
        lose: Callable[[Fenced], None],
        *,
        uptime: Callable[[], float],
    ) -> None:
        self.until, self._uptime = until, uptime
        self._renewed, self._lose = renewed, lose
        self._gate: Gate | None = None
        self._withheld: list[Event] = []
        self._asking: asyncio.Task[Moment | None] | None = None
        self._lost: Fenced | None = None

    def guard(self, gate: Gate) -> None:
        """Lets the gate's events out only while the lease holds."""
        self._gate = gate
        gate.good_until, gate.withhold = self.until.wall, self._withhold

    def is_over(self, now: int) -> bool:
        """Whether others may have taken the thread; `now` is epoch ms."""
        return now > self.until.wall or self._uptime() > self.until.uptime

    def extend(self, until: Moment) -> None:
        """The store has renewed the lease before it ran out."""
        self.until = max(self.until, until, key=_uptime_of)
        # While events are withheld the gate stays shut, or new events would overtake them.
        if self._gate is not None and not self._withheld:
            self._gate.good_until = self.until.wall

    def _withhold(self, event: Event) -> None:
        self._withheld.append(event)
        assert self._gate is not None
        self._gate.good_until = -1  # what follows keeps its place behind it
        if self._lost is None and (self._asking is None or self._asking.done()):
            self._ask()

    def _ask(self) -> asyncio.Task[Moment | None]:
        self._asking = asyncio.ensure_future(self._renewed())  # noqa: TID251 - `settle` awaits it before the epoch is over
        self._asking.add_done_callback(self._decided)
        return self._asking

    def _decided(self, asking: asyncio.Task[Moment | None]) -> None:
        # A cancelled question decides nothing; `confirm` asks again.
        if asking.cancelled() or self._lost is not None:
            return
        error = asking.exception()
        # A store that can't answer counts as a loss: better to stop this run than to drive one thread twice (E2).
        until = None if error is not None else asking.result()
        if until is not None:
            self.until = max(self.until, until, key=_uptime_of)
            self._let_out()
            return
        self._withheld.clear()
        why = (
            "another process took the thread" if error is None else f"the store can't say whose the thread is: {error}"
        )
        self._lost = Fenced(f"the lease ran out while this process stood still, and {why}")
        self._lost.__cause__ = error
        self._lose(self._lost)

    def _let_out(self) -> None:
        gate, events = self._gate, self._withheld
        self._withheld = []
        if gate is not None:
            for event in events:
                gate.pass_on(event)
            gate.good_until = self.until.wall

    async def confirm(self) -> None:
        """Returns when the thread surely still belongs to this epoch.

        Raises:
            Fenced: another epoch has begun, or the store can't be asked.
        """
        asking = self._asking if self._asking is not None and not self._asking.done() else self._ask()
        await asyncio.wait((asking,))
        await asyncio.sleep(0)  # the task's own callback decides
        if self._lost is not None:
            raise self._lost

    @property
    def withholds(self) -> bool:
        """Whether events wait for the lease to be confirmed."""
        return bool(self._withheld) and self._lost is None

    async def settle(self) -> None:
        """At the end of the epoch: nothing stays withheld, and the gate is detached."""
        try:
            while self.withholds:
                await self.confirm()
        except GraphflowError:
            return
        finally:
            self.detach()

    def detach(self) -> None:
        """Lets go of the gate; nothing is withheld."""
        if self._gate is not None:
            self._gate.withhold = None
            self._gate = None


def _uptime_of(moment: Moment) -> float:
    return moment.uptime
