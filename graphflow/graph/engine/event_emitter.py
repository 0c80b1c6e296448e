"""Sends an epoch's events: numbered, stamped, sent at once, and kept for the next record (E1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from graphflow.events import (
    LIVE_ONLY,
    ActionEnd,
    ActionStart,
    ContentEnd,
    ContentStart,
    Event,
    ReasoningEnd,
    ReasoningStart,
    RunError,
    ToolEnd,
    ToolStart,
)
from graphflow.graph.core.machine import Machine
from graphflow.graph.engine.announced_calls import AnnouncedCalls
from graphflow.graph.engine.blocks import Blocks
from graphflow.graph.engine.plan_events import PlanEvents
from graphflow.graph.engine.ports import Clock, Logged

UNLOGGED = frozenset({
    *LIVE_ONLY, ReasoningStart, ReasoningEnd, ContentStart, ContentEnd, ToolStart, ToolEnd, ActionStart, ActionEnd,
})  # fmt: skip
"""Events that the stored log leaves out: live-only ones, and start and end of blocks, whose snapshots replace them."""


NEVER = 1 << 62
"""A number that no event has."""


class EventEmitter:
    """The events of one epoch.

    Args:
        sink: gets every event, numbered, at once.
        plan: makes the events of the run's plan, if its graph has one.
        epoch: the thread's fence; part of ids that must not repeat in a later epoch.
        seq: number of the last event of the run so far.
        stamp: no event is older than this (epoch ms).
        logs: whether a journal keeps the log.
    """

    def __init__(
        self,
        clock: Clock,
        sink: Callable[[Event], None] | None,
        plan: PlanEvents | None,
        *,
        epoch: int,
        seq: int,
        stamp: int = 0,
        logs: bool,
    ) -> None:
        self._clock, self.sink, self._epoch, self.seq, self._logs = clock, sink, epoch, seq, logs
        self.watchers: dict[type[Event], Callable[[Any], None]] = {}
        """Type of event → who sees each of them on its way, without a wrapper around every delta."""
        self.sent: list[Logged] = []
        """What the log keeps of the events since the last record; blocks as their snapshots."""
        self.calls = AnnouncedCalls(complete=seq == 0)
        """The calls that readers know of."""
        self.plan = plan
        self.most = NEVER
        """Number of the last event that the run may send before it is ended."""
        self.on_most: Callable[[bool], None] | None = None
        """Is told once that there are more; whether the event came from the code of a node."""
        self._stamp = stamp
        self._blocks = 0

    def emit(self, event: Event) -> None:
        """Numbers an event and sends it; the log keeps it unless it is live only."""
        seq = event.seq = self.seq = self.seq + 1
        now = self._clock.now_ms()
        # Time never runs backwards along the numbers, not even where the clock does.
        if now < self._stamp:
            now = self._stamp
        else:
            self._stamp = now
        event.timestamp = now
        if self._logs and type(event) not in UNLOGGED:
            self.sent.append((event, seq))
        # As `_send`, without its call: this is what every delta passes.
        if self.watchers and (watcher := self.watchers.get(type(event))) is not None:
            watcher(event)
        if self.sink is not None:
            self.sink(event)
        if seq > self.most and self.on_most is not None:
            self.most = NEVER  # how the run ends is sent in any case
            self.on_most(type(event) in LIVE_ONLY)

    def emit_start(self, *events: Event) -> int:
        """Sends what a run begins with, before its first tick; returns a time for that tick, which is not before theirs.

        All of them are events that the log keeps.
        """
        for event in events:
            self.seq += 1
            self._stamp = max(self._clock.now_ms(), self._stamp)
            event.seq, event.timestamp = self.seq, self._stamp
            if self._logs:
                self.sent.append((event, event.seq))
        at = self._stamp = max(self._clock.now_ms(), self._stamp)
        self._send(*events)
        return at

    def _now(self) -> int:
        self._stamp = max(self._clock.now_ms(), self._stamp)
        return self._stamp

    def _send(self, *events: Event) -> None:
        for event in events:
            if self.watchers and (watcher := self.watchers.get(type(event))) is not None:
                watcher(event)
            if self.sink is not None:
                self.sink(event)

    def emit_at(self, event: Event, at: int) -> None:
        """Sends what follows a commit, under the commit's own time (so that it can be made again from the record) or that of
        the event before it, whichever is later.
        """
        seq = event.seq = self.seq = self.seq + 1
        self._stamp = max(self._stamp, at)
        event.timestamp = self._stamp
        if self._logs:
            self.sent.append((event, seq))
        if self.watchers and (watcher := self.watchers.get(type(event))) is not None:
            watcher(event)
        if self.sink is not None:
            self.sink(event)

    def emit_end(self, end: Event, snapshot: Event, first: int) -> None:
        """A block's end; its snapshot, under the same number, is what the log keeps."""
        self.emit(end)
        if self._logs:
            snapshot.seq, snapshot.timestamp = end.seq, end.timestamp
            self.sent.append((snapshot, first))

    def emit_unlogged(self, event: Event) -> None:
        """Sends an event that no record can keep any more."""
        if self.plan is not None and isinstance(event, RunError):
            for failed in self.plan.failed(event.error):
                self.emit(failed)
        self.sent = []
        self.seq += 1
        event.seq, event.timestamp = self.seq, self._now()
        self._send(event)

    def restore(self, sent: list[Logged]) -> None:
        """Takes up the log where an earlier epoch left it, with what no record keeps yet."""
        self.sent = sent
        self._stamp = max(self._stamp, *(event.timestamp for event, _ in sent), 0)
        self.calls.note(event for event, _ in sent)

    def send_again(self, events: Iterable[tuple[Event, int]]) -> None:
        """What followed the last commit of an earlier epoch, `(event, time)`: under the same numbers."""
        for event, at in events:
            self.emit_at(event, at)

    def taken(self) -> list[Logged]:
        """What was sent since the last call, for a record."""
        sent, self.sent = self.sent, []
        return sent

    def emit_plan(self, machine: Machine) -> None:
        """Sends the plan events since the last call, if the graph has a plan."""
        if self.plan is not None:
            for event in self.plan.since(machine):
                self.emit(event)

    def blocks(self, machine: Machine, node_run_id: str) -> Blocks:
        """The blocks of a node run; they belong to the task that is active."""
        self.emit_plan(machine)  # without a journal no record has sent it
        task_id = None if self.plan is None else self.plan.active
        return Blocks(self.emit, self.emit_end, self._block_id, self.calls, machine.run_id, node_run_id, task_id)

    def _block_id(self, kind: str) -> str:
        """Unique in the run: a node that runs again, in this epoch or a later one, uses new ids."""
        self._blocks += 1
        return f"{kind}_{self._epoch}.{self._blocks}"
