"""Functions that are not async: they run in threads, beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def beside_loop(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What the function gives, run in a thread.

    Raises:
        RuntimeError: a `StopIteration` left it.
    """
    return await asyncio.to_thread(whole, function, *args, **kwargs)


def whole(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What the function gives, and no `StopIteration` (`next` of nothing): a future that got one would never end."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError(f"StopIteration left the function {getattr(function, '__name__', function)!r}") from error
