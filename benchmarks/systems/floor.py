"""No framework: the least that asyncio code can do for a workload, and so what nobody in Python can beat by much.

With a store, one writer thread commits whatever has queued up (WAL, `synchronous=FULL`); a run is over when its last
row is durable. Variant `sync` waits for every row.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from harness import Case, Facts, Growing, Place, Timed, growth_facts, latencies, stored_bytes
from payloads import Chat, script, tool_result

PACKAGES = ["msgspec"]
_encode = msgspec.msgpack.encode


class Log:
    """Rows `(thread, number, data)` of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(
            "CREATE TABLE IF NOT EXISTS log (thread TEXT, number INTEGER, data BLOB, PRIMARY KEY (thread, number))"
        )
        going = True
        while going:
            batch = [self._queue.get()]
            while len(batch) < 512 and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            rows = [entry for entry in batch if type(entry) is tuple]
            if rows:
                db.execute("BEGIN")
                db.executemany("INSERT INTO log VALUES (?, ?, ?)", rows)
                db.execute("COMMIT")
            if waiters := [entry for entry in batch if isinstance(entry, asyncio.Future)]:
                self._loop.call_soon_threadsafe(lambda done=waiters: [waiter.set_result(None) for waiter in done])
            going = None not in batch
        db.close()

    def put(self, thread: str, number: int, value: Any) -> None:
        self._queue.put((thread, number, _encode(value)))

    def durable(self) -> asyncio.Future[None]:
        """Done when everything that was put is."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(waiter)
        return waiter

    def read(self, thread: str, upto: int = 1 << 60) -> list[Any]:
        db = sqlite3.connect(self.path)
        rows = db.execute(
            "SELECT data FROM log WHERE thread = ? AND number <= ? ORDER BY number", (thread, upto)
        ).fetchall()
        db.close()
        return [msgspec.msgpack.decode(row[0]) for row in rows]

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)


class Thread:
    """One thread's rows; without a log they go nowhere."""

    def __init__(self, log: Log | None, name: str, sync: bool) -> None:
        self._log, self._name, self._sync, self._number = log, name, sync, 0

    async def put(self, value: Any) -> None:
        if self._log is not None:
            self._number += 1
            self._log.put(self._name, self._number, value)
            if self._sync:
                await self._log.durable()

    async def durable(self) -> None:
        if self._log is not None:
            await self._log.durable()


@asynccontextmanager
async def _log(place: Place) -> AsyncIterator[Log | None]:
    log = Log(place.database()) if place.store else None
    yield log
    if log is not None:
        await log.close()


async def _add_one(state: dict[str, int]) -> dict[str, int]:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def counter(place: Place) -> AsyncIterator[Timed]:
    n, sync = place.params["n"], place.variant == "sync"
    async with _log(place) as log:

        async def run() -> None:
            thread, state = Thread(log, place.thread(), sync), {"n": 0}
            while state["n"] < n:
                state.update(await _add_one(state))
                if log is not None:
                    await thread.put(state)
            await thread.durable()

        yield Timed(run)


@asynccontextmanager
async def react(place: Place) -> AsyncIterator[Timed]:
    said = script(place.params["n"])

    async def model(messages: list[Any]) -> dict[str, Any]:
        turn = (len(messages) - 1) // 2
        if turn == len(said.calls):
            return {"role": "assistant", "content": said.answer}
        call = said.calls[turn]
        return {"role": "assistant", "calls": [{"id": call.id, "name": said.tool, "arguments": {"query": call.query}}]}

    async def tool(call: dict[str, Any]) -> dict[str, Any]:
        return {"role": "tool", "id": call["id"], "content": tool_result(call["arguments"]["query"])}

    async with _log(place) as log:

        async def run() -> None:
            thread, messages = (
                Thread(log, place.thread(), place.variant == "sync"),
                [{"role": "user", "content": "hi?"}],
            )
            while True:
                message = await model(messages)
                messages.append(message)
                await thread.put(message)
                if "calls" not in message:
                    break
                messages.append(await tool(message["calls"][0]))
                await thread.put(messages[-1])
            await thread.durable()

        yield Timed(run, Growing(place.database(), said.content_bytes()) if place.store else None)


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    chat = Chat(place.params)
    roles = ("user", "assistant", "tool", "assistant") if chat.tools else ("user", "assistant")
    async with _log(place) as log:
        assert log is not None

        async def run() -> Facts:
            name, hot = place.thread(), []
            for _ in range(chat.turns):
                start = time.perf_counter()
                messages = await asyncio.to_thread(log.read, name)
                for role in roles:
                    messages.append({"role": role, "content": chat.text(len(messages))})
                    log.put(name, len(messages), messages[-1])
                await log.durable()
                hot.append(time.perf_counter() - start)
            size = stored_bytes(log.path)
            start = time.perf_counter()
            assert len(await asyncio.to_thread(log.read, name)) == chat.messages
            load = time.perf_counter() - start
            start = time.perf_counter()
            half, other = await asyncio.to_thread(log.read, name, chat.messages // 2), place.thread()
            for number, message in enumerate(half):
                log.put(other, number, message)
            await log.durable()
            return growth_facts(
                hot=hot, size=size, messages=chat.messages, load=load, history=None, fork=time.perf_counter() - start
            )

        yield Timed(run)


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    async def run() -> Facts:
        sent: asyncio.Queue[float | None] = asyncio.Queue()

        async def emit() -> None:
            for _ in range(place.params["n"]):
                await asyncio.sleep(0)
                sent.put_nowait(time.perf_counter())
            sent.put_nowait(None)

        seen = []
        async with asyncio.TaskGroup() as group:
            group.create_task(emit())
            while (at := await sent.get()) is not None:
                seen.append(time.perf_counter() - at)
        assert len(seen) == place.params["n"]
        return latencies(seen)

    yield Timed(run)


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    log = Log(place.database())

    async def run() -> Facts:
        name, start = place.thread(), time.perf_counter()
        await _until_question(log, name)
        paused = time.perf_counter()
        await _answer(log, name)
        return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

    yield Timed(run)
    await log.close()


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    log = Log(place.database())
    yield Timed(lambda: _until_question(log, "cold") if place.phase == "pause" else _answer(log, "cold"))
    await log.close()


async def _until_question(log: Log, name: str) -> None:
    log.put(name, 1, {"n": 1})
    log.put(name, 2, {"question": "how many?"})
    await log.durable()


async def _answer(log: Log, name: str) -> None:
    rows = await asyncio.to_thread(log.read, name)
    log.put(name, 3, {"answer": 41})
    log.put(name, 4, {"n": rows[0]["n"] + 41})
    await log.durable()


CASES: dict[str, Case] = {
    "chain": counter, "loop": counter, "route": counter, "react": react, "growth": growth, "stream": stream, "pause": pause,
    "cold": cold,
}  # fmt: skip
