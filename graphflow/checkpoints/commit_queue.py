"""What event loops queue for a store's writers and readers, and how the outcome gets back to the loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.checkpoints.rows import Lineage, Record, ThreadFacts
from graphflow.errors import StoreError

if TYPE_CHECKING:
    import sqlite3


class Promise(msgspec.Struct, eq=False):
    """One queued commit, and the `Durable` that `commit` returns."""

    loop: asyncio.AbstractEventLoop
    thread_id: str
    fence: int
    expected_head: str | None
    records: Sequence[Record]
    facts: ThreadFacts
    begins: Lineage | None
    release: bool
    consumes: int | None
    done: bool = False
    error: BaseException | None = None
    _waiting: list[Callable[[], None]] | None = None

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back on the loop that committed; call it there."""
        if self.done:
            callback()
        elif self._waiting is None:
            self._waiting = [callback]
        else:
            self._waiting.append(callback)

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done:
            future = self.loop.create_future()
            # The future may be cancelled with its awaiter; the commit itself goes on.
            self.when_done(lambda: None if future.done() else future.set_result(None))
            yield from future
        if self.error is not None:
            raise self.error

    def settle(self) -> None:
        """On the loop, where `done` was set too, and nowhere else: callbacks run in the order of the commits."""
        if self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        for callback in waiting:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 – one listener's error must not silence the others
                self.loop.call_exception_handler({"message": "a when_done callback failed", "exception": error})


class SettledPromise:
    """A promise that is settled when it is made."""

    __slots__ = ("error",)

    def __init__(self, error: StoreError | None = None) -> None:
        self.error = error

    @property
    def done(self) -> bool:
        return True

    def __await__(self) -> Generator[Any, None, None]:
        if self.error is not None:
            raise self.error
        yield from ()

    def when_done(self, callback: Callable[[], None]) -> None:
        callback()


class QueuedCall:
    """One queued function on the database; its result goes to a future."""

    __slots__ = ("done", "error", "function", "future", "loop", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[sqlite3.Connection], Any] | None) -> None:
        self.loop = loop
        self.function = function
        """None only marks a place in the queue."""
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False

    def settle(self) -> None:
        if self.future.done():  # whoever waited was cancelled
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


Entry = Promise | QueuedCall


def fail(entries: Sequence[Entry], error: StoreError) -> None:
    """Gives each entry the error, before it is delivered."""
    for entry in entries:
        # One instance each: every await adds its own traceback.
        entry.error = type(error)(error.message, code=error.code, retryable=error.retryable, **error.detail)
        entry.error.__cause__ = error.__cause__


def deliver(entries: Sequence[Entry]) -> None:
    """Settles the entries on their loops, by one call per loop."""
    if not entries:
        return
    loop = entries[0].loop
    if any(entry.loop is not loop for entry in entries):
        by_loop: dict[asyncio.AbstractEventLoop, list[Entry]] = {}
        for entry in entries:
            by_loop.setdefault(entry.loop, []).append(entry)
        for part in by_loop.values():
            deliver(part)
        return
    try:
        # One call for all: waking a loop costs more than settling a promise.
        loop.call_soon_threadsafe(settle, entries)
    except RuntimeError:  # the loop is closed: nobody waits there, but somebody may still look
        for entry in entries:
            entry.done = True


def settle(entries: Sequence[Entry]) -> None:
    """On their loop: settles each entry, which wakes its waiters."""
    for entry in entries:  # first all, so that whoever hears of one can go on with the others
        entry.done = True
    for entry in entries:
        entry.settle()
