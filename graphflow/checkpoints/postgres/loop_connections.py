"""What the PostgreSQL store has on each event loop, and how the last of it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from graphflow.checkpoints.postgres.commits import Life
from graphflow.checkpoints.postgres.pool import Pool, Target
from graphflow.checkpoints.postgres.writer import Writer
from graphflow.checkpoints.process_lock import OwnerLock


class Side:
    """What the store has on one event loop."""

    def __init__(self, target: Target, lives: dict[str, Life], broken: dict[str, int]) -> None:
        self.pool = Pool(target)
        self.writer = Writer(target, lives, broken)
        self.changes: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        await self.writer.drain()
        self.writer.close()
        self.pool.close()


def shut(target: Target, sides: dict[asyncio.AbstractEventLoop, Side], lock: OwnerLock) -> None:
    """What is queued is made durable, also when the object is collected or the interpreter ends without `close`."""
    left = dict(sides)
    sides.clear()
    if lock.forked or target.closed:
        return
    here = asyncio._get_running_loop()  # this one is blocked until we are done: as good as ended
    ended = [left.pop(loop) for loop in list(left) if loop is here or not loop.is_running()]

    async def drain() -> None:
        for side in ended:
            side.writer.adopt()
            await side.close()
        for connection in target.spare or ():
            connection.close()

    async def last(side: Side) -> None:
        await side.close()
        lock.release()

    if ended:
        worker = threading.Thread(target=lambda: asyncio.run(drain()), name="graphflow-postgres-end")
        try:
            worker.start()
        except RuntimeError:  # the interpreter ends: no more threads
            asyncio.run(drain())
        else:
            worker.join()
    for loop, side in left.items():  # whoever runs goes on with its own
        asyncio.run_coroutine_threadsafe(last(side), loop)
    if not left:
        lock.release()
