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
"""What is sent when a thread is moved while nobody drives it, and what a new life sends again."""


class StreamWatch:
    """The streams of all runs of this process, over all their lives.

    What a life that was cut off has sent after its last record is void (E1): the next life's first number says where it
    goes on, and the grammar is taken up from there.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.driven: WeakSet[Executor] = WeakSet()
        self._lives: WeakKeyDictionary[EventEmitter, _Life] = WeakKeyDictionary()
        self._executors: WeakKeyDictionary[EventEmitter, ref[Executor]] = WeakKeyDictionary()
        self._runs: dict[Run, Log] = {}

    def born(self, executor: Executor) -> None:
        self._executors[executor.events] = ref(executor)

    def sent(self, emitter: EventEmitter, event: Event) -> None:
        known = self._executors.get(emitter)
        executor = None if known is None else known()
        if executor is None:  # an emitter that a test has made by itself
            return
        life = self._lives.get(emitter)
        if life is None:
            life = self._lives[emitter] = self._life(executor, event)
        if life.rules is None:
            return
        if isinstance(event, RunStart):
            self._runs[executor.thread_id, event.run_id] = life.log
        driven = executor in self.driven or not isinstance(event, MOVES)
        life.log.append((event, driven))
        try:
            life.rules.take(event) if driven else life.rules.pass_over(event)
        except StreamBroken as broken:
            life.rules = None
            self.broken.append(f"thread {executor.thread_id!r}: {broken.message}")

    def _life(self, executor: Executor, first: Event) -> _Life:
        if first.seq == 1:
            return _Life([], StreamRules())
        log = self._runs.get((executor.thread_id, executor.machine.run_id))
        if log is None:  # begun by another process
            return _Life([], None)
        del log[first.seq - 1 :]
        rules = StreamRules()
        for event, driven in log:
            rules.take(event) if driven else rules.pass_over(event)
        rules.begin_epoch()
        return _Life(log, rules)


class _Life:
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
