"""What the SQLite store's threads have in common: each serves a queue of entries."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from queue import SimpleQueue

from graphflow.checkpoints.commit_queue import Entry, deliver, fail
from graphflow.checkpoints.sqlite.schema import store_error
from graphflow.errors import StoreError


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
        # Weak, for `after_fork`: a store that is dropped must be collected, and its finalizer ends the thread.
        _workers.add(self)

    @abstractmethod
    def run(self) -> None:
        """Serves the entries until there is a None; a `StoreError` ends it and becomes everybody's answer."""

    def start(self) -> None:
        """Starts the thread; calling it again has no effect."""
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
        """Serves what is queued, then ends the thread and waits for it; calling it again has no effect."""
        self.entries.append(None)
        self.ring()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether this code runs in the thread itself."""
        return self._thread is threading.current_thread()

    def _serve(self) -> None:
        reason = closed(self.path)
        try:
            self.run()
        except StoreError as error:
            reason = error
        except Exception as error:  # noqa: BLE001 – whoever asks is told of it, instead of nobody
            reason = store_error(self.path, error, "opened")
            reason.__cause__ = error
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
