"""A thread that renews leases while an event loop stands still.

A node that computes, or waits without `await`, keeps its loop from everything else, renewals included; its process lives all
the same and keeps its threads. A process that stands still as a whole renews nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

from graphflow.runtime.runs.lease_keeper import LeaseKeeper


class LeaseGuard:
    """Looks after the leases of this process over one store.

    Args:
        pause_s: the time between two renewals. A loop that is later than half of it more is taken to stand still.
        keepers: those of the running event loops.
    """

    def __init__(self, pause_s: Callable[[], float], keepers: Callable[[], list[LeaseKeeper]]) -> None:
        self._pause_s, self._keepers = pause_s, keepers
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Looks for as long as leases are kept; calling it again costs next to nothing."""
        thread = self._thread
        if thread is not None and thread.is_alive():  # a forked child has the object without its thread
            return
        with self._lock:
            self._thread = threading.Thread(
                target=_look_again, args=(weakref.ref(self),), name="graphflow-leases", daemon=True
            )
            self._thread.start()

    def look(self) -> bool:
        """Renews what is late; False when there is nothing to look after any more."""
        keepers = [keeper for keeper in self._keepers() if keeper.kept_now]
        if not keepers:
            with self._lock:
                if not any(keeper.kept_now for keeper in self._keepers()):
                    self._thread = None
                    return False
        late = time.monotonic() - 1.5 * self._pause_s()
        for keeper in keepers:
            if keeper.renewed_at < late:
                # The store fails, or is just being closed: the loop finds out when it goes on.
                with suppress(Exception):
                    asyncio.run(keeper.renew_all())
        return True


def _look_again(guard: weakref.ref[LeaseGuard]) -> None:
    while (here := guard()) is not None:
        pause_s = here._pause_s() / 2
        del here  # a store that nobody uses any more takes its guard with it
        time.sleep(pause_s)
        here = guard()
        if here is None or not here.look():
            return
