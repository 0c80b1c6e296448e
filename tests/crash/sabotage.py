"""Promises broken on purpose, in this process only: the checks must notice each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from graphflow.checkpoints.journal import ThreadJournal
from graphflow.graph.engine.run import Run
from graphflow.runtime.runs.live_runs import LiveRuns


def act_unflushed() -> None:
    """A write acts before its intent is durable."""

    async def flush(self: Run) -> None:
        return

    setattr(Run, "flush", flush)  # noqa: B010 - a method of somebody else's class


def acknowledge_early() -> None:
    """A commit is called durable while it is only queued."""
    write = ThreadJournal.write

    class Early:
        done, error = True, None

        def __init__(self, durable: Any) -> None:
            self._durable = durable

        def when_done(self, callback: Callable[[], None]) -> None:
            callback()

        def __await__(self) -> Any:
            return self._durable.__await__()

    setattr(ThreadJournal, "write", lambda self, *given: Early(write(self, *given)))  # noqa: B010


def forget_operations() -> None:
    """A thread comes back without what was recorded inside its unfinished nodes."""
    load = LiveRuns.load

    async def forgetful(self: LiveRuns, row: Any) -> Any:
        loaded = await load(self, row)
        if loaded is not None:
            frames = {n: msgspec.structs.replace(f, operations={}) for n, f in loaded.machine.frames.items()}
            loaded.machine = msgspec.structs.replace(loaded.machine, frames=frames)
        return loaded

    setattr(LiveRuns, "load", forgetful)  # noqa: B010


def forget_calls() -> None:
    """A node calls its model again although the answer is on record."""
    load = LiveRuns.load

    async def forgetful(self: LiveRuns, row: Any) -> Any:
        loaded = await load(self, row)
        if loaded is not None:
            frames = {number: _without_calls(frame) for number, frame in loaded.machine.frames.items()}
            loaded.machine = msgspec.structs.replace(loaded.machine, frames=frames)
        return loaded

    setattr(LiveRuns, "load", forgetful)  # noqa: B010


def _without_calls(frame: Any) -> Any:
    kept = {key: operation for key, operation in frame.operations.items() if operation.kind != "model"}
    return msgspec.structs.replace(frame, operations=kept)


def promise_numbers() -> None:
    """A record promises numbers to events that others may take."""
    write = ThreadJournal.write

    def promising(self: ThreadJournal, prepared: Any, events: Any, seq: int, tail: int, release: bool) -> Any:
        return write(self, prepared, events, seq, tail + 1, release)

    setattr(ThreadJournal, "write", promising)  # noqa: B010


SABOTAGES = {
    f.__name__: f for f in (act_unflushed, acknowledge_early, forget_operations, forget_calls, promise_numbers)
}
