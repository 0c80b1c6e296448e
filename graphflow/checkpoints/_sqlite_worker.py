"""What the SQLite store's threads have in common: entries that event loops queue, and how loops hear of the outcome."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from graphflow.checkpoints.port import Lineage, Record, ThreadFacts
from graphflow.errors import StoreError


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
            except Exception as error:  # noqa: BLE001 – one listener's fault must not silence the others
                self.loop.call_exception_handler({"message": "a when_done callback failed", "exception": error})


class Call:
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


Entry = Promise | Call


class Worker(ABC):
    """A thread that serves a queue until `stop`; what comes later is refused, never left to wait."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.entries: deque[Entry | None] = deque()
        """What is to be served; None ends the thread."""
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self.ended: StoreError | None = None
        """Why nothing is served any more."""
        self._starting = threading.Lock()
        self._started = False
        self._thread = threading.Thread(target=self._serve, name=f"graphflow-{name} {path.name}", daemon=True)
        _workers.add(self)

    @abstractmethod
    def run(self) -> None:
        """Serves the entries until there is a None; a `StoreError` ends it and becomes everybody's answer."""

    def start(self) -> None:
        """Starts the thread; the second time is no effect."""
        with self._starting:
            if not self._started:
                self._started = True
                self._thread.start()

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.ring()

    def ring(self) -> None:
        """Wakes the thread: there are entries."""
        if not self._rung:  # looked at after the append, and unset before the thread looks at the entries
            self._rung = True
            self._bell.put(None)
        if self.ended is not None:  # looked at after the append: either this call or the thread refuses them
            self._refuse()

    def wait(self) -> None:
        """In the thread: returns when there are entries."""
        while not self.entries:
            self._bell.get()
            self._rung = False

    def stop(self) -> None:
        """Serves what is queued, then ends the thread and waits for it; the second time is no effect."""
        self.entries.append(None)
        self.ring()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        reason = closed(self.path)
        try:
            self.run()
        except StoreError as error:
            reason = error
        finally:
            self.ended = reason
            self._refuse()

    def _refuse(self) -> None:
        assert self.ended is not None
        entries: list[Entry] = []
        while self.entries:
            try:
                entry = self.entries.popleft()
            except IndexError:  # somebody else refuses them at this moment
                break
            if entry is not None:
                entries.append(entry)
        fail(entries, self.ended)
        deliver(entries)

    def after_fork(self) -> None:
        """In the child, which has neither the thread nor a right to the connection."""
        self.entries, self._bell, self._rung = deque(), SimpleQueue(), False
        self.ended = forked(self.path)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _after_fork() -> None:
    for worker in list(_workers):
        worker.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def closed(path: Path) -> StoreError:
    return StoreError(f"the store {str(path)!r} is closed: open it again with a new SqliteCheckpointer")


def forked(path: Path) -> StoreError:
    return StoreError(
        f"the store {str(path)!r} was opened before this process was forked: make a new SqliteCheckpointer in the child"
    )


def fail(entries: Sequence[Entry], error: StoreError) -> None:
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
        loop.call_soon_threadsafe(settle, entries)
    except RuntimeError:  # the loop is closed: nobody waits there, but somebody may still look
        for entry in entries:
            entry.done = True


def settle(entries: Sequence[Entry]) -> None:
    """On their loop: tells whoever waits."""
    for entry in entries:  # first all, so that whoever hears of one can go on with the others
        entry.done = True
    for entry in entries:
        entry.settle()
