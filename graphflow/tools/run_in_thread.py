"""Run sync functions in threads, off the event loop; each person has a share of the threads.

The event loop's own few threads read and write for everybody, so code that may block for long has other ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import cache, partial
from threading import Lock
from typing import Any

from graphflow.capabilities import Starter, askers

MOST = 64
"""Functions that run at the same time; further ones wait."""
EACH = 8
"""Of these, the functions of one owner."""


def owner_of(starter: Starter | None, thread_id: str) -> str:
    """Whose share a call takes: that of the person who asked for the run; of the local person, that of the thread."""
    return f"thread {thread_id}" if starter is None else askers(starter)[0]


async def run_in_thread(owner: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result, computed in a thread of the owner's share.

    Raises:
        RuntimeError: a `StopIteration` left it.
    """
    work = partial(copy_context().run, guard_stop_iteration, function, *args, **kwargs)
    return await asyncio.wrap_future(_threads().submit(owner, work))


def guard_stop_iteration(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result; a `StopIteration` (`next` of nothing) becomes a `RuntimeError`."""
    # asyncio can't carry StopIteration through a future (PEP 479): the awaiting task would hang.
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError(f"StopIteration left the function {getattr(function, '__name__', function)!r}") from error


class SharedThreads:
    """Threads of which no owner has more than a share, so that one owner's slow functions delay only its own.

    Args:
        most: threads of all owners together.
        each: of one owner.
    """

    def __init__(self, most: int, each: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # the first function pays for it, not the import

        self._pool = ThreadPoolExecutor(most, thread_name_prefix="graphflow-tool")
        self._each = each
        self._lock = Lock()
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    def submit(self, owner: str, work: Callable[[], Any]) -> Future[Any]:
        """Begins the work, or lets it wait until one of this owner has ended; cancelled while it waits, it never begins."""
        future: Future[Any] = Future()
        with self._lock:
            if self._running[owner] >= self._each:
                self._waiting.setdefault(owner, deque()).append((future, work))
                return future
            self._running[owner] += 1
        self._pool.submit(self._run, owner, future, work)
        return future

    def _run(self, owner: str, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the result
            future.set_exception(error)
        finally:
            del future, work  # else the error's traceback holds its own future
            self._next(owner)

    def _next(self, owner: str) -> None:
        with self._lock:
            waiting = self._waiting.get(owner)
            if not waiting:
                self._running[owner] -= 1
                if not self._running[owner]:
                    del self._running[owner]
                return
            following = waiting.popleft()
            if not waiting:
                del self._waiting[owner]
        # Behind what other owners have submitted meanwhile: where all threads are taken, owners take turns.
        self._pool.submit(self._run, owner, *following)


@cache
def _threads() -> SharedThreads:
    return SharedThreads(MOST, EACH)
