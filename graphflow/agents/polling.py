"""When to look at a folder again: at once after a change, and now and then in any case."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

RETRY_DELAYS_S = (0.05, 0.15, 0.3)
"""Pauses before a file that vanished or is not JSON is read again: it may be half written."""

TICK_MS = 500
"""Interval at which the watcher wakes up; also the delay of the first check after its start."""

log = logging.getLogger("graphflow.agents")


async def until_sure(look: Callable[[bool], Awaitable[bool]], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Checks repeatedly while files may be half written; the last check accepts them as they are.

    Args:
        look: `(sure)` activates what changed, with `sure` only complete files, and returns whether a
            doubtful rest is left.
    """
    for delay in RETRY_DELAYS_S:
        if not await look(True):
            return
        await sleep(delay)
    await look(False)


async def folder_changes(
    folder: Path,
    *,
    suffix: str | tuple[str, ...],
    interval_ms: int,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[None, None]:
    """Yields whenever a file of the folder may have changed, until it is closed or cancelled.

    The first check comes once the watcher runs, so no earlier change is missed. A folder that
    can't be watched (the system has no watches left) is checked every `interval_ms`; one that does not exist is
    checked at every tick.
    """
    reported = False
    while True:
        try:
            async for _ in _watched(folder, suffix, interval_ms):
                yield
        except (OSError, RuntimeError) as error:  # watchfiles raises both, by cause
            # Once: the message would otherwise come with every interval. A missing folder is not an error.
            if not reported and await asyncio.to_thread(folder.is_dir):
                reported = True
                log.info("agents: %s can't be watched (%s); checking every %d ms", folder, error, interval_ms)
        yield
        await _pause(folder, interval_ms, sleep)


async def _pause(folder: Path, interval_ms: int, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Waits for the next check: the interval, or until a missing folder exists."""
    missing = not await asyncio.to_thread(folder.is_dir)
    left_ms = interval_ms
    while left_ms > 0 and not (missing and await asyncio.to_thread(folder.is_dir)):
        pause_ms = min(left_ms, TICK_MS) if missing else left_ms
        await sleep(pause_ms / 1000)
        left_ms -= pause_ms


async def _watched(folder: Path, suffix: str | tuple[str, ...], interval_ms: int) -> AsyncGenerator[None, None]:
    from watchfiles import awatch

    quiet_ms = interval_ms  # so that the first tick is a look
    changes = awatch(
        folder,
        watch_filter=lambda _, path: path.endswith(suffix),
        debounce=200,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    async for seen in changes:
        quiet_ms += TICK_MS
        # Also without an event, as a file system may report none.
        if seen or quiet_ms >= interval_ms:
            quiet_ms = 0
            yield
