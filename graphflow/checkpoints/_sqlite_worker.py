"""What the SQLite store's threads have in common: entries that event loops queue, and how loops hear of the outcome."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from graphflow.checkpoints.port import Lineage, Record, ThreadFacts
from graphflow.errors import StoreError


class Promise:
    """One queued commit, and the `Durable` that `commit` returns."""

    __slots__ = (
        "_waiting", "begins", "consumes", "done", "error", "expected_head", "facts", "fence", "loop", "records",
        "release", "thread_id",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread_id: str,
        fence: int,
        expected_head: str | None,
        records: Sequence[Record],
        facts: ThreadFacts,
        begins: Lineage | None,
        release: bool,
        consumes: int | None,
    ) -> None:
        self.loop = loop
        self.thread_id = thread_id
        self.fence = fence
        self.expected_head = expected_head
        self.records = records
        self.facts = facts
        self.begins = begins
        self.release = release
        self.consumes = consumes
        self.done = False
        self.error: BaseException | None = None
        self._waiting: list[Callable[[], None]] | None = None

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
        """On the loop: `done` changes nowhere else, so callbacks run in the order of the commits."""
        self.done = True
        waiting, self._waiting = self._waiting, None
        for callback in waiting or ():
            try:
                callback()
            except Exception as error:  # noqa: BLE001 – one listener's fault must not silence the others
                self.loop.call_exception_handler({"message": "a when_done callback failed", "exception": error})


class Call:
    """One queued function on the database; its result goes to a future."""

    __slots__ = ("error", "function", "future", "loop", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[sqlite3.Connection], Any] | None) -> None:
        self.loop = loop
        self.function = function
        """None only marks a place in the queue."""
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

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
        self.queue: SimpleQueue[Entry | None] = SimpleQueue()
        self.ended: StoreError | None = None
        """Why nothing is served any more."""
        self._starting = threading.Lock()
        self._started = False
        self._thread = threading.Thread(target=self._serve, name=f"graphflow-{name} {path.name}", daemon=True)
        _workers.add(self)

    @abstractmethod
    def run(self) -> None:
        """Serves the queue until it gives None; a `StoreError` ends it and becomes everybody's answer."""

    def start(self) -> None:
        """Starts the thread; the second time is no effect."""
        with self._starting:
            if not self._started:
                self._started = True
                self._thread.start()

    def put(self, entry: Entry) -> None:
        self.queue.put(entry)
        if self.ended is not None:  # looked at after the put: either this call or the thread drains the queue
            self._refuse()

    def stop(self) -> None:
        """Serves what is queued, then ends the thread and waits for it; the second time is no effect."""
        self.queue.put(None)
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
        while not self.queue.empty():
            entry = self.queue.get_nowait()
            if entry is not None:
                entries.append(entry)
        fail(entries, self.ended)
        deliver(entries)

    def after_fork(self) -> None:
        """In the child, which has neither the thread nor a right to the connection."""
        self.queue = SimpleQueue()
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
        loop.call_soon_threadsafe(_settle, entries)
    except RuntimeError:  # the loop is closed: nobody waits there, but somebody may still look
        for entry in entries:
            if type(entry) is Promise:
                entry.done = True


def _settle(entries: Sequence[Entry]) -> None:
    for entry in entries:
        entry.settle()
