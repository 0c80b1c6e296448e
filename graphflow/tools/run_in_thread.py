"""Run sync functions in threads, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def run_in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result, computed in a thread.

    Raises:
        RuntimeError: a `StopIteration` left it.
    """
    return await asyncio.to_thread(guard_stop_iteration, function, *args, **kwargs)


def guard_stop_iteration(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result; a `StopIteration` (`next` of nothing) becomes a `RuntimeError`."""
    # asyncio can't carry StopIteration through a future (PEP 479): the awaiting task would hang.
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError(f"StopIteration left the function {getattr(function, '__name__', function)!r}") from error
