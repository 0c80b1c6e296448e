"""Every stream that a test's runs send is held against the grammar of streams while it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import pytest

from graphflow.errors import StreamBroken
from graphflow.events import CheckpointCreate, Event, InterruptRequest, InterruptResolve, RunStart, RunWaiting
from graphflow.graph.engine.event_emitter import EventEmitter
from graphflow.graph.engine.executor import Executor
from graphflow.testing.stream_grammar import StreamRules

Run = tuple[str, str]
"""Thread and run."""
Log = list[tuple[Event, bool]]
"""Events, and whether a driven run has sent them."""
MOVES = (CheckpointCreate, InterruptRequest, InterruptResolve, RunWaiting)
"""What is sent when a thread is moved while nobody drives it, and what a new epoch sends again."""


class StreamWatch:
    """The streams of all runs of this process, over all their epochs.

    What an epoch that was cut off has sent after its last record is void (E1): the next epoch's first number says where it
    goes on, and the grammar is taken up from there.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.driven: WeakSet[Executor] = WeakSet()
        self._epochs: WeakKeyDictionary[EventEmitter, _Epoch] = WeakKeyDictionary()
        self._executors: WeakKeyDictionary[EventEmitter, ref[Executor]] = WeakKeyDictionary()
        self._runs: dict[Run, Log] = {}

    def born(self, executor: Executor) -> None:
        self._executors[executor.events] = ref(executor)

    def sent(self, emitter: EventEmitter, event: Event) -> None:
        known = self._executors.get(emitter)
        executor = None if known is None else known()
        if executor is None:  # an emitter that a test has made by itself
            return
        epoch = self._epochs.get(emitter)
        if epoch is None:
            epoch = self._epochs[emitter] = self._epoch(executor, event)
        if epoch.rules is None:
            return
        if isinstance(event, RunStart):
            self._runs[executor.thread_id, event.run_id] = epoch.log
        driven = executor in self.driven or not isinstance(event, MOVES)
        epoch.log.append((event, driven))
        try:
            epoch.rules.take(event) if driven else epoch.rules.pass_over(event)
        except StreamBroken as broken:
            epoch.rules = None
            self.broken.append(f"thread {executor.thread_id!r}: {broken.message}")

    def _epoch(self, executor: Executor, first: Event) -> _Epoch:
        if first.seq == 1:
            return _Epoch([], StreamRules())
        log = self._runs.get((executor.thread_id, executor.machine.run_id))
        if log is None:  # begun by another process
            return _Epoch([], None)
        del log[first.seq - 1 :]
        rules = StreamRules()
        for event, driven in log:
            rules.take(event) if driven else rules.pass_over(event)
        rules.begin_epoch()
        return _Epoch(log, rules)


class _Epoch:
    def __init__(self, log: Log, rules: StreamRules | None) -> None:
        self.log, self.rules = log, rules


@contextmanager
def watched_streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamWatch]:
    """Watches every executor that is made inside."""
    watch = StreamWatch()
    init, drive = Executor.__init__, Executor.drive

    def made(self: Executor, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        watch.born(self)

    async def driven(self: Executor, *args: Any) -> None:
        watch.driven.add(self)
        await drive(self, *args)

    monkeypatch.setattr(Executor, "__init__", made)
    monkeypatch.setattr(Executor, "drive", driven)
    for name in ("emit", "emit_at", "emit_unlogged"):
        monkeypatch.setattr(EventEmitter, name, _telling(watch, getattr(EventEmitter, name)))
    yield watch


def _telling(watch: StreamWatch, emit: Callable[..., None]) -> Callable[..., None]:
    def told(self: EventEmitter, event: Event, *rest: Any) -> None:
        emit(self, event, *rest)
        watch.sent(self, event)

    return told
