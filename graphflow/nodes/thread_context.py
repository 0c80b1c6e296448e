"""The context of a node function that runs in a thread: every call is made by the run's event loop, and waited for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from functools import cache, partial, wraps
from queue import SimpleQueue
from threading import Event
from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphflow.graph.engine.node_run import NodeRun
from graphflow.graph.engine.suspension import NodeRunOver
from graphflow.tools.run_in_thread import guard_stop_iteration

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MOST_THREADS = 1_000
"""Limit of functions that run or wait at the same time; further ones start when one has ended."""


@cache
def _pool() -> ThreadPoolExecutor:
    """A pool of its own: functions that wait for a person would block the event loop's few default threads."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="graphflow-node")


class ThreadContext:
    """`Context` for a function that can't await: `ctx.content(text)` returns once it is sent, `ctx.step(…)` and
    `ctx.ask(…)` with their result.

    The engine belongs to one thread. Called from another it would mix the numbers of events, and the loop would not
    wake for them.
    """

    __slots__ = ("_calls", "_ctx", "_loop", "_over")

    def __init__(self, ctx: NodeRun) -> None:
        self._ctx, self._loop = ctx, asyncio.get_running_loop()
        self._calls: set[Future[Any]] = set()
        self._over = Event()

    async def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """The function's result, computed in a thread. When cancelled, it ends at its next call of the context."""
        try:
            return await self._loop.run_in_executor(
                _pool(), partial(copy_context().run, guard_stop_iteration, function, *given)
            )
        finally:
            self._over.set()
            # A thread can't be stopped from outside; cancelling its calls wakes it from each wait.
            for call in list(self._calls):
                call.cancel()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ctx, name)
        # Plain values can be read from any thread; only methods must run on the loop.
        if not isinstance(inspect.getattr_static(NodeRun, name, None), FunctionType):
            return value

        @wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(value, *args, **kwargs)

        return call

    def step(self, name: str | None, fn: Callable[[], Any], **options: Any) -> Any:
        """As `Context.step`; a sync `fn` runs in the function's own thread, as its objects may be bound to that thread."""
        # The loop may return the recorded value without running `fn`; this queue tells the thread which case it is.
        wanted: SimpleQueue[bool] = SimpleQueue()
        given: Future[Any] = Future()

        async def act() -> Any:
            wanted.put(True)
            out = await asyncio.wrap_future(given)
            return await out if inspect.isawaitable(out) else out

        call = self._begin(self._ctx.step, name, act, **options)
        # After a True it is not read; without one it frees the thread when the step ends without `fn`.
        call.add_done_callback(lambda _: wanted.put(False))
        if wanted.get() and given.set_running_or_notify_cancel():
            try:
                given.set_result(guard_stop_iteration(fn))
            except BaseException as error:  # noqa: BLE001 - it is raised by the call that it belongs to
                given.set_exception(error)
        return self._result(call)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._result(self._begin(method, *args, **kwargs))

    def _begin(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        if self._over.is_set():
            raise self._ended()

        async def act() -> Any:
            out = method(*args, **kwargs)
            return await out if inspect.isawaitable(out) else out

        call = asyncio.run_coroutine_threadsafe(act(), self._loop)
        self._calls.add(call)
        if self._over.is_set():  # meanwhile: `run` may have missed this call
            call.cancel()
        return call

    def _result(self, call: Future[Any]) -> Any:
        try:
            return call.result()
        # A cancelled call of a future is an `Exception`: a function that catches those would go on and act.
        except CancelledError:
            raise self._ended() from None
        finally:
            self._calls.discard(call)

    def _ended(self) -> NodeRunOver:
        return NodeRunOver(f"node {self._ctx.node!r} is over: what its function still does counts for nothing")
