"""Programs that tests run as processes of their own, to kill them: `python children.py NAME STORE [ARGUMENT]`."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time

from graphflow.checkpoints.commit_queue import QueuedCall
from graphflow.checkpoints.postgres import pipeline
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.errors import StoreError, ThreadBusy
from graphflow.testing.checkpointer.suite import Driver


def say(*words: object) -> None:
    # One write, also where output is not buffered: parent and child share the pipe.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


Store = SqliteCheckpointer | PostgresCheckpointer


def store_at(place: str) -> Store:
    """The store of a path, or of `URL#SCHEMA`."""
    url, _, schema = place.partition("#")
    return PostgresCheckpointer(url, schema=schema) if "://" in url else SqliteCheckpointer(place)


async def taken(store: Store, thread_id: str) -> Driver:
    """A driver under the store's own owner and the real clock."""
    row = await store.take(thread_id, owner=store.owner, now=int(time.time() * 1000), lease_ms=60_000)
    driver = Driver(store, thread_id, row.fence, row.head)
    if row.lineage is None:
        driver.begin()
        # Numbers are drawn at random where several processes write.
        driver.lineage = int.from_bytes(os.urandom(6), "big")
        driver._begins = type(driver._begins)(number=driver.lineage, thread_id=thread_id)  # type: ignore[misc]
    else:
        driver.lineage, driver.ordinal = row.lineage, row.ordinal
        driver.counts = {(0, "messages"): row.ordinal}
    return driver


async def commits(path: str) -> None:
    """Commits for ever to three threads at once; says each acknowledged one."""
    store = store_at(path)

    async def one(name: str) -> None:
        driver = await taken(store, name)
        while True:
            promises = [driver.commit(driver.record(b"%d" % driver.ordinal)) for _ in range(7)]
            for ordinal, durable in enumerate(promises, driver.ordinal - 6):
                await durable
                say(name, ordinal)

    await asyncio.gather(*(one(name) for name in ("a", "b", "c")))


async def holds(path: str) -> None:
    """Takes a thread and waits to be killed."""
    store = store_at(path)
    driver = await taken(store, "thread")
    await driver.add(b"0")
    say("taken")
    await asyncio.Event().wait()


async def stops(path: str) -> None:
    """Takes a thread, and stands still amid a commit of which the database has the beginning."""
    store = store_at(path)
    pipeline.HELD_MS = 500
    driver = await taken(store, "thread")
    await driver.add(b"0")
    say("taken")
    commit = driver.commit(driver.record(bytes(8 << 20)))  # a socket takes some 200 KB before its reader reads on
    os.kill(os.getpid(), signal.SIGSTOP)
    await commit


async def forks(path: str) -> None:
    """Takes a thread, forks, and waits to be killed; the child tries to use the store and outlives it."""
    store = store_at(path)
    driver = await taken(store, "thread")
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(in_the_child(store, driver))
        finally:
            os._exit(0)
    say("parent", child)
    await asyncio.Event().wait()


async def in_the_child(store: Store, driver: Driver) -> None:
    said = []
    for attempt in (driver.commit(driver.record()), store.load("thread"), store.threads(), store.setup()):
        try:
            await attempt
        except StoreError as error:
            said.append("forked" in error.message)
    await store.close()
    say("child", all(said) and len(said) == 4)
    await asyncio.Event().wait()


async def forgets(path: str) -> None:
    """Queues commits and ends without waiting or closing."""
    store = store_at(path)
    driver = await taken(store, "thread")
    await store.threads()
    for n in range(500):
        driver.commit(driver.record(b"%d" % n))
    say("queued")


async def forgets_in_its_thread(path: str) -> None:
    """Queues commits, and a garbage collection behind them that finds the store in the store's own thread; then ends."""
    gc.disable()
    store = SqliteCheckpointer(path)
    driver = await taken(store, "thread")
    for n in range(500):
        driver.commit(driver.record(b"%d" % n))
    writer = store._writer
    assert writer is not None

    def collect(db: object) -> None:
        dropped.wait()
        gc.collect()
        collected.set()
        threading.main_thread().join()  # what is behind this is written while the interpreter ends, or never

    dropped, collected = threading.Event(), threading.Event()
    writer.put(QueuedCall(asyncio.get_running_loop(), collect))
    await asyncio.sleep(0)  # the loop's call that wakes the thread holds the store
    cycle: list[object] = [store, driver]
    cycle.append(cycle)
    del store, driver, cycle
    dropped.set()
    collected.wait()
    say("queued")


async def competes(path: str, name: str) -> None:
    """Adds ten messages to the thread that all want; says which ones got in."""
    store = store_at(path)
    added = 0
    while added < 10:
        try:
            driver = await taken(store, "shared")
        except ThreadBusy:
            await asyncio.sleep(0.001)
            continue
        await driver.commit(driver.record(f"{name}:{added}".encode()), release=True)
        added += 1
        say(f"{name}:{added - 1}")
    await store.close()


async def opens(path: str) -> None:
    """Sets the store up at the moment that is told by standard input."""
    store = store_at(path)
    say("ready")
    sys.stdin.readline()
    await store.setup()
    driver = await taken(store, f"thread of {os.getpid()}")
    await driver.add(b"0")
    await store.close()
    say("done")


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
