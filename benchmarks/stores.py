"""What the stores cost: `python benchmarks/stores.py [--rounds 7] [--folder DIR]`.

All rows of one table come from interleaved rounds on one machine; the ratios are what to read. "bare" is the standard
library's sqlite3 on one thread: an INSERT and a COMMIT of the same bytes, WAL, `synchronous=FULL`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import aiosqlite

from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.rows import Lineage, Log, LogItem, Record, ThreadFacts
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer

Store = MemoryCheckpointer | SqliteCheckpointer
RUN, DOCUMENT = "018f0000-0000-7000-8000-000000000077", "sha256:" + "a" * 64
META, DATA, MESSAGE = b"m" * 50, b"d" * 100, os.urandom(1024)


def facts(ordinal: int) -> ThreadFacts:
    """Facts whose time moves on with each step, as a journal's do."""
    return ThreadFacts(status="running", run_id=RUN, document=DOCUMENT, updated_at=1_700_000_000_000 + 3 * ordinal)


def record(number: int, lineage: int, ordinal: int, item: bytes | None) -> Record:
    items = () if item is None else (LogItem(0, "messages", ordinal - 1, item),)
    name = f"018f0000-0000-7{number >> 12 & 0xFFF:03x}-8000-{number:012x}"
    return Record(id=name, lineage=lineage, ordinal=ordinal, checkpoint=True, meta=META, data=DATA, items=items)


async def commits(store: Store, count: int, *, item: bytes | None, awaited: bool) -> float:
    """Seconds for `count` commits of one thread, durable at the end."""
    lineage = int.from_bytes(os.urandom(6), "big")
    thread = f"thread-{lineage}"
    row = await store.take(thread, owner=store.owner, now=0, lease_ms=60_000)
    records = [[record(lineage % 2**30 + n, lineage, n, item)] for n in range(1, count + 1)]
    begins: Lineage | None = Lineage(number=lineage, thread_id=thread)
    head = None
    start = time.perf_counter()
    for one in records:
        durable = store.commit(thread, row.fence, head, one, facts=facts(one[-1].ordinal), begins=begins)
        head, begins = one[-1].id, None
        if awaited:
            await durable
    await store.flush()
    return time.perf_counter() - start


def bare(path: Path, count: int, item: bytes | None) -> float:
    """Seconds for `count` durable inserts of the same bytes by sqlite3 alone."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA page_size = 8192")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY, data BLOB)")
    data = META + DATA + (item or b"")
    start = time.perf_counter()
    for _ in range(count):
        db.execute("INSERT INTO rows (data) VALUES (?)", (data,))
    took = time.perf_counter() - start
    db.close()
    return took


async def calling_side(store: Store, count: int) -> float:
    """Seconds that `commit` itself keeps the event loop from other work, for `count` commits."""
    row = await store.take("calling", owner=store.owner, now=0, lease_ms=60_000)
    records = [[record(n, 1, n, MESSAGE)] for n in range(1, count + 1)]
    begins: Lineage | None = Lineage(number=1, thread_id="calling")
    head, total = None, 0.0
    for one in records:
        start = time.perf_counter()
        store.commit("calling", row.fence, head, one, facts=facts(one[-1].ordinal), begins=begins)
        total += time.perf_counter() - start
        head, begins = one[-1].id, None
    await store.flush()
    return total


async def swarm(store: Store, threads: int, steps: int, *, awaited: bool) -> float:
    """Seconds for `threads` threads of `steps` commits each, at once."""

    async def one(number: int) -> None:
        lineage = number + 1
        row = await store.take(f"swarm-{number}", owner=store.owner, now=0, lease_ms=60_000)
        begins: Lineage | None = Lineage(number=lineage, thread_id=f"swarm-{number}")
        head = None
        for ordinal in range(1, steps + 1):
            new = record(number * 1000 + ordinal, lineage, ordinal, None)
            durable = store.commit(f"swarm-{number}", row.fence, head, [new], facts=facts(ordinal), begins=begins)
            head, begins = new.id, None
            if awaited:
                await durable
            else:
                await asyncio.sleep(0)
        await durable

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(threads):
            group.create_task(one(number))
    return time.perf_counter() - start


async def loads(store: SqliteCheckpointer, count: int) -> tuple[float, float]:
    """Seconds for a load of a small thread: through the lane, and its statements through aiosqlite."""
    start = time.perf_counter()
    for _ in range(count):
        stored = await store.load("small")
        assert stored is not None
        await store.read_logs(stored.chain, [Log(0, "messages", 10)])
    ours = time.perf_counter() - start
    async with aiosqlite.connect(store.path) as db:
        start = time.perf_counter()
        for _ in range(count):
            await db.execute("BEGIN")
            await db.execute_fetchall("SELECT * FROM threads WHERE id = ?", ("small",))
            await db.execute_fetchall("SELECT * FROM snapshots WHERE record = 1")
            await db.execute_fetchall("SELECT * FROM records WHERE record > 0 LIMIT 10")
            await db.execute_fetchall("SELECT log FROM logs WHERE lineage = 1")
            await db.execute_fetchall("SELECT * FROM items WHERE item > 0 LIMIT 10")
            await db.commit()
        return ours, time.perf_counter() - start


async def small_thread(store: Store) -> None:
    row = await store.take("small", owner=store.owner, now=0, lease_ms=60_000)
    records = [record(n, 9, n, MESSAGE) for n in range(1, 11)]
    lineage = Lineage(number=9, thread_id="small")
    await store.commit("small", row.fence, None, records, facts=facts(10), begins=lineage, release=True)


async def with_sqlite(folder: Path, work: Callable[[SqliteCheckpointer], Awaitable[float]]) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = SqliteCheckpointer(Path(name) / "threads.db")
        await store.setup()
        try:
            return await work(store)
        finally:
            await store.close()


async def resume(store: SqliteCheckpointer, note: Callable[[str, float], None]) -> float:
    """Seconds to take, load and commit to a small thread that nobody has in memory."""
    await small_thread(store)
    start = time.perf_counter()
    row = await store.take("small", owner=store.owner, now=0, lease_ms=60_000)
    taken = time.perf_counter()
    stored = await store.load("small")
    assert stored is not None
    await store.read_logs(stored.chain, [Log(0, "messages", 10)])
    loaded = time.perf_counter()
    await store.commit("small", row.fence, row.head, [record(11, 9, 11, MESSAGE)], facts=facts(11), release=True)
    note("  of which taking", taken - start)
    note("  of which loading, two visits", loaded - taken)
    return time.perf_counter() - start


async def measured(rounds: int, folder: Path) -> dict[str, float]:
    """Median microseconds per unit of every row."""
    units: dict[str, list[float]] = {}

    def note(name: str, seconds: float, count: int) -> None:
        units.setdefault(name, []).append(seconds / count * 1e6)

    for _ in range(rounds):
        for label, item in (("step of 150 bytes", None), ("step with a 1 KiB item", MESSAGE)):
            with tempfile.TemporaryDirectory(dir=folder) as name:
                note(f"bare durable insert, {label}", bare(Path(name) / "bare.db", 300, item), 300)
            awaited = await with_sqlite(folder, partial(commits, count=300, item=item, awaited=True))
            note(f"sqlite awaited, {label}", awaited, 300)
            queued = await with_sqlite(folder, partial(commits, count=1000, item=item, awaited=False))
            note(f"sqlite queued, {label}", queued, 1000)
            note(f"memory, {label}", await commits(MemoryCheckpointer(), 1000, item=item, awaited=False), 1000)
        note("sqlite, the call of commit", await with_sqlite(folder, lambda s: calling_side(s, 1000)), 1000)
        note("memory, the call of commit", await calling_side(MemoryCheckpointer(), 1000), 1000)
        note("100 threads, queued", await with_sqlite(folder, lambda s: swarm(s, 100, 20, awaited=False)), 2000)
        note("100 threads, awaited", await with_sqlite(folder, lambda s: swarm(s, 100, 20, awaited=True)), 2000)
        note(
            "resume: take, load, commit",
            await with_sqlite(folder, lambda s: resume(s, lambda name, t: note(name, t, 1))),
            1,
        )

        async def both(store: SqliteCheckpointer) -> float:
            await small_thread(store)
            ours, theirs = await loads(store, 100)
            note("load of 10 steps, statements through aiosqlite", theirs, 100)
            return ours

        note("load of 10 steps, one visit each", await with_sqlite(folder, both), 100)
    return {name: statistics.median(values) for name, values in units.items()}


async def stored_bytes(folder: Path, count: int) -> int:
    """Size of a store with one thread of `count` steps of a 1 KiB item and 150 bytes."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = SqliteCheckpointer(Path(name) / "threads.db")
        await commits(store, count, item=MESSAGE, awaited=False)
        await store.close()
        return store.path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description="What the stores cost, as ratios to a bare durable insert.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the files are made: the disk to measure")
    options = parser.parse_args()
    rows = asyncio.run(measured(options.rounds, options.folder))
    base = rows["bare durable insert, step of 150 bytes"]
    print(f"{'':48} {'us':>9} {'ratio to bare':>14}")
    for name, value in rows.items():
        print(f"{name:48} {value:9.1f} {value / base:14.2f}")
    for count in (100, 1000, 10_000):
        size = asyncio.run(stored_bytes(options.folder, count))
        print(f"{count:6} steps with a 1 KiB item: {size:11,} bytes, {size / count:8.0f} per step")


if __name__ == "__main__":
    main()
