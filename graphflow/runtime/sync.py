"""The sync twins of the async surface, made by one helper: each call runs on a loop of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from graphflow.arguments import arguments_of

P = ParamSpec("P")
T = TypeVar("T")


def _refuse_running_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{name} would block the running event loop; await the method without `_sync` instead")


def blocking(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A method that runs `method` to its end and returns its result."""
    name, check, plain = _called(method)

    @functools.wraps(method)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        check(args, kwargs, name)
        _refuse_running_loop(name)
        return asyncio.run(plain(*args, **kwargs))

    return twin


def blocking_stream(method: Callable[P, AsyncIterator[T]]) -> Callable[P, Iterator[T]]:
    """A method that iterates over what `method` streams, as it comes; leaving the loop ends the stream."""
    name, check, plain = _called(method)

    @functools.wraps(method)
    def twin(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        # Not in the generator: it would begin with the first event that is asked for.
        check(args, kwargs, name)
        _refuse_running_loop(name)
        return _iterated(lambda: plain(*args, **kwargs))

    return twin


def _iterated(streaming: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
    # One loop for the whole stream: what it awaits belongs to the loop on which it began.
    with asyncio.Runner() as runner:
        stream = streaming()
        try:
            while True:
                try:
                    yield runner.run(anext(stream))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            # An async iterator need not have `aclose`; a generator must be closed on its own loop.
            close = getattr(stream, "aclose", None)
            if close is not None:
                runner.run(close())


def _called(method: Callable[P, T]) -> tuple[str, Callable[[Any, Any, str], None], Callable[P, T]]:
    """The twin's name, the check of its arguments, and the method without that check."""
    name = f"{method.__name__}_sync"
    if (arguments := arguments_of(method)) is None:
        return name, lambda *_: None, method
    return name, arguments.check, method.__wrapped__  # type: ignore[attr-defined]
