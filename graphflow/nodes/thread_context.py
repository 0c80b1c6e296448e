"""The context of a node function that runs in a thread: every call is made by the run's event loop, and waited for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial, wraps
from threading import Event
from types import FunctionType
from typing import Any

from graphflow.errors import NodeFailed
from graphflow.graph.context import Context


class ThreadContext:
    """What `Context` has, for a function that can't await: `ctx.content(text)` returns once it is sent, `ctx.once(…)` and
    `ctx.ask(…)` with their result.

    The engine belongs to one thread. Called from another it would mix the numbers of events, and the loop would not
    wake for them.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._loop = ctx, asyncio.get_running_loop()
        self._calls: set[Future[Any]] = set()
        self._over = Event()

    async def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """What the function gives, run in a thread. Cancelled, it ends at its next call of the context at the latest."""
        try:
            return await asyncio.to_thread(function, *given)
        finally:
            self._over.set()
            for call in list(self._calls):
                call.cancel()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ctx, name)
        if not isinstance(inspect.getattr_static(Context, name, None), FunctionType):
            return value

        @wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(value, *args, **kwargs)

        return call

    def once(self, name: str | None, fn: Callable[[], Any], **options: Any) -> Any:
        """As `Context.once`; a `fn` that is not async runs in a thread too."""
        act = fn if inspect.iscoroutinefunction(fn) else partial(asyncio.to_thread, fn)
        return self._call(self._ctx.once, name, act, **options)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._over.is_set():
            raise NodeFailed(f"node {self._ctx.node!r} is over: what its function still does counts for nothing")

        async def act() -> Any:
            out = method(*args, **kwargs)
            return await out if inspect.isawaitable(out) else out

        call = asyncio.run_coroutine_threadsafe(act(), self._loop)
        self._calls.add(call)
        if self._over.is_set():  # meanwhile: `run` may have missed this call
            call.cancel()
        try:
            return call.result()
        finally:
            self._calls.discard(call)
