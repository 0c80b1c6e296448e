"""What the parts of one executor share. A part is given the `Run`, never the executor that owns the part."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NoReturn

from graphflow.errors import GraphflowError
from graphflow.events import Event
from graphflow.graph.core.budget import add_usage
from graphflow.graph.core.immutable import copied
from graphflow.graph.core.machine import Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.core.ticks import AnyTick
from graphflow.graph.engine.announcements import After
from graphflow.graph.engine.event_emitter import EventEmitter
from graphflow.graph.engine.light_event import LightEvent, MaybeReady
from graphflow.graph.engine.plan_events import PlanEvents
from graphflow.graph.engine.ports import Clock, Ids, Journal, Lease


def _over(tick: AnyTick, computed: object = None) -> NoReturn:
    raise RuntimeError(f"the run has ended in this process; nothing takes its {type(tick).__name__}")


class Run:
    """One epoch of one run: its plan, its machine as it is now, and what acts on it.

    Args:
        journal: None runs without a store: no checkpoints, no resume in another process.
        sink: gets every event, numbered, at once.
        room: awaited by streaming nodes when the consumer is behind; None never waits.
        epoch: the thread's fence; part of ids that must not repeat in a later epoch (E1).
        seq: number of the last event of the run so far.
    """

    __slots__ = (
        "_wake", "cause", "clock", "closed", "epoch", "error", "events", "failure", "feed", "feed_apart", "ids", "journal", "lease", "lineage",
        "machine", "memory", "pending", "plan", "resting", "room", "services", "thread_id", "usage", "used",
    )  # fmt: skip

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
        room: Callable[[], MaybeReady] | None = None,
        services: Mapping[str, Any] | None = None,
        epoch: int = 1,
        lineage: int = 0,
        seq: int = 0,
    ) -> None:
        self.plan, self.machine, self.thread_id = plan, machine, thread_id
        self.clock, self.ids, self.journal, self.room = clock, ids, journal, room
        self.services: Mapping[str, Any] = {} if services is None else services
        self.memory: dict[Any, Any] = {}
        """See `UsageMeter.memory`."""
        self.epoch, self.lineage = epoch, lineage
        plan_events = PlanEvents.of(plan, machine, thread_id)
        self.events = EventEmitter(
            clock, sink, plan_events, epoch=epoch, seq=seq, stamp=machine.last_at, logs=journal is not None
        )
        self.lease: Lease | None = None
        """Until when no other process can have taken the thread; None is never checked."""
        self.error: GraphflowError | None = None
        """Why the store failed, if it did."""
        self.failure: BaseException | None = None
        """What was raised outside the loop's own task: it ends the run as it would in there."""
        self.cause: BaseException | None = None
        """The exception of the node that failed the run."""
        self.closed = False
        """Whether this epoch has had its last tick."""
        self.pending: deque[After] = deque()
        """Commits that are not known to be durable, oldest first."""
        self.feed: Callable[..., None] = _over
        """The executor's, while it drives the run."""
        self.feed_apart: Callable[[AnyTick], Awaitable[None]] = _over
        """The same, for a tick that leads to so much that a thread computes it."""
        self.usage: MutableMapping[int, dict[str, Any]] = {}
        """Frame → what its node run has used and no record holds yet. Ticks carry this very table, so it is never
        changed in place; `copied` shares the unchanged parts of a large one."""
        self.used: dict[str, Any] = {}
        """All of `usage` in one sum: with the machine's, so that parallel node runs can't pass a limit together."""
        self._wake = LightEvent()
        self.resting = False
        """Whether the loop waits for something to happen."""

    def close(self) -> None:
        """Drops the references to the executor: late store callbacks and contexts kept by user code must not hold it.

        Executor and run form a reference cycle, and would keep all their state until the garbage collector runs, which
        is late in a busy process.
        """
        self.closed = True
        self.feed, self.feed_apart = _over, _over
        self.lease, self.events.on_most = None, None

    # --- usage that no record holds yet

    def note_used(self, more: Mapping[str, Any]) -> None:
        """Counts what a node run has just used, or is about to."""
        self.used = add_usage(self.used, more)

    def set_usage(self, frame: int, usage: dict[str, Any] | None) -> None:
        """Sets the unrecorded usage of the frame's node run; None for nothing, or once the node run is over."""
        if usage and self.usage.keys() <= {frame}:
            self.usage = {frame: usage}  # the only node run that uses anything
        elif usage or frame in self.usage:
            table = copied(self.usage)
            if usage:
                table[frame] = usage
            else:
                del table[frame]
            self.usage = table

    # --- the loop

    async def rest(self) -> None:
        """Waits until something has happened."""
        self.resting = True
        self._wake.clear()
        try:
            await self._wake.wait()
        finally:
            self.resting = False

    def wake(self) -> None:
        """Lets the loop look again, if it rests."""
        if self.resting:
            self._wake.set()

    def fail(self, failure: BaseException) -> None:
        """Ends the run with an exception that was raised outside the loop's own task, in a timer or a callback."""
        if self.error is None:
            self.failure = failure
        self.wake()

    async def flush(self) -> None:
        """Returns when everything committed so far is durable; raises what made it fail."""
        if self.journal is not None:
            await self.journal.flush()
        if self.error is not None:
            raise self.error
