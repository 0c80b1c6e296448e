"""Ways to one awaited insert in PostgreSQL: `python benchmarks/drivers.py [--count 1500] [--rounds 5] [--parent DIR]`.

The table of docs/internals/decisions/0016-postgres-over-libpq.md. Needs asyncpg besides the extra `test`. The server is one from the
wheel, with its default settings; `--parent` chooses the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.postgres_server import PostgresServer

ROW = os.urandom(1024)
INSERT = "INSERT INTO rows (data) VALUES ($1::bytea)"
Way = Callable[[str, str, int], Awaitable[tuple[float, float]]]


async def timed(count: int, one: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Wall and CPU seconds of `count` awaited calls, after one that warms up."""
    await one()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await one()
    return time.perf_counter() - wall, time.process_time() - cpu


async def on_asyncpg(url: str, commit: str, count: int) -> tuple[float, float]:
    import asyncpg  # here: no extra of graphflow installs it

    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": commit})
    statement = await connection.prepare(INSERT)
    took = await timed(count, lambda: statement.fetch(ROW))
    await connection.close()
    return took


async def on_psycopg(url: str, commit: str, count: int) -> tuple[float, float]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) as connection:
        await connection.execute(f"SET synchronous_commit = {commit}".encode())
        cursor = connection.cursor(binary=True)
        return await timed(count, lambda: cursor.execute(b"INSERT INTO rows (data) VALUES (%b)", (ROW,)))


def raw(url: str, commit: str) -> pq.abc.PGconn:
    link = pq.PGconn.connect(url.encode())
    link.exec_(f"SET synchronous_commit = {commit}".encode())
    link.prepare(b"insert", INSERT.encode())
    return link


async def on_libpq(url: str, commit: str, count: int) -> tuple[float, float]:
    link, loop = raw(url, commit), asyncio.get_running_loop()
    link.nonblocking = 1
    future: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        link.consume_input()
        while not link.is_busy():
            if link.get_result() is None:
                future.set_result(None)
                return

    def one() -> Awaitable[None]:
        nonlocal future
        future = loop.create_future()
        link.send_query_prepared(b"insert", [ROW], [1], 1)
        link.flush()
        return future

    loop.add_reader(link.socket, readable)
    took = await timed(count, one)
    loop.remove_reader(link.socket)
    link.finish()
    return took


async def libpq_in_a_thread(url: str, commit: str, count: int) -> tuple[float, float]:
    link, loop = raw(url, commit), asyncio.get_running_loop()
    waiting: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()

    def serve() -> None:
        while (future := waiting.get()) is not None:
            link.exec_prepared(b"insert", [ROW], [1], 1)
            loop.call_soon_threadsafe(future.set_result, None)

    def one() -> Awaitable[None]:
        future: asyncio.Future[None] = loop.create_future()
        waiting.put(future)
        return future

    worker = threading.Thread(target=serve)
    worker.start()
    took = await timed(count, one)
    waiting.put(None)
    worker.join()
    link.finish()
    return took


WAYS: dict[str, Way] = {
    "psycopg.pq on the loop": on_libpq,
    "asyncpg on the loop": on_asyncpg,
    "psycopg.AsyncConnection": on_psycopg,
    "psycopg.pq in a thread": libpq_in_a_thread,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parent")
    chosen = parser.parse_args()
    with PostgresServer({}, parent=chosen.parent) as server:
        server.run("CREATE TABLE rows (id bigserial PRIMARY KEY, data bytea)")
        for commit in ("on", "off"):
            took: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
            names = list(WAYS)
            for number in range(chosen.rounds):
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    took[name].append(asyncio.run(WAYS[name](server.url(), commit, chosen.count)))
            print(f"synchronous_commit={commit}: µs an insert, wall and CPU")
            for name, rounds in took.items():
                wall, cpu = (statistics.median(part) / chosen.count * 1e6 for part in zip(*rounds, strict=True))
                print(f"  {name:26s} {wall:8.0f} {cpu:8.0f}")


if __name__ == "__main__":
    main()
