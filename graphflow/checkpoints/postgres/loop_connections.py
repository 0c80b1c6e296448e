"""What the PostgreSQL store has on each event loop, and how the last of it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from graphflow.checkpoints.postgres.checkpoint_writer import PostgresEpoch
from graphflow.checkpoints.postgres.loop_writer import PostgresWriter
from graphflow.checkpoints.postgres.pool import Pool, Target
from graphflow.checkpoints.process_lock import OwnerLock


class LoopConnections:
    """What the store has on one event loop."""

    def __init__(self, target: Target, epochs: dict[str, PostgresEpoch], broken: dict[str, int]) -> None:
        self.pool = Pool(target)
        self.writer = PostgresWriter(target, epochs, broken)
        self.changes: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        await self.writer.drain()
        self.writer.close()
        self.pool.close()


def shut(target: Target, per_loop: dict[asyncio.AbstractEventLoop, LoopConnections], lock: OwnerLock) -> None:
    """What is queued is made durable, also when the object is collected or the interpreter ends without `close`."""
    left = dict(per_loop)
    per_loop.clear()
    if lock.forked or target.closed:
        return
    here = asyncio._get_running_loop()  # this one is blocked until we are done: as good as ended
    ended = [left.pop(loop) for loop in list(left) if loop is here or not loop.is_running()]

    async def drain() -> None:
        for connections in ended:
            connections.writer.adopt()
            await connections.close()
        for connection in target.spare or ():
            connection.close()

    async def last(connections: LoopConnections) -> None:
        await connections.close()
        lock.release()

    if ended:
        worker = threading.Thread(target=lambda: asyncio.run(drain()), name="graphflow-postgres-end")
        try:
            worker.start()
        except RuntimeError:  # the interpreter ends: no more threads
            asyncio.run(drain())
        else:
            worker.join()
    for loop, connections in left.items():  # whoever runs goes on with its own
        asyncio.run_coroutine_threadsafe(last(connections), loop)
    if not left:
        lock.release()
