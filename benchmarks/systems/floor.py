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
import wide as wides
from harness import Arrivals, Case, Facts, Pace, Place, Timed, growing, growth_facts, stored_bytes
from payloads import Chat, script, text, tool_result

PACKAGES = ["msgspec"]
_encode = msgspec.msgpack.encode


class Log:
    """Rows `(thread, number, data)` of one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        db = self._connection()
        db.execute(
            "CREATE TABLE IF NOT EXISTS log (thread TEXT, number INTEGER, data BLOB, PRIMARY KEY (thread, number))"
        )
        db.close()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _connection(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _write(self) -> None:
        db = self._connection()
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
    log = Log(place.database()) if place.store == "sqlite" else None
    yield log
    if log is not None:
        await log.close()


async def _add_one(state: dict[str, int]) -> dict[str, int]:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def counter(place: Place) -> AsyncIterator[Timed]:
    n, sync = place.params["n"], place.variant == "sync"
    async with _log(place) as log:

        async def one() -> None:
            thread, state = Thread(log, place.thread(), sync), {"n": 0}
            while state["n"] < n:
                state.update(await _add_one(state))
                if log is not None:
                    await thread.put(state)
            await thread.durable()

        async def swarm() -> None:
            await asyncio.gather(*(one() for _ in range(place.params["threads"])))

        yield Timed(swarm if "threads" in place.params else one, growing(place))


@asynccontextmanager
async def fanout(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]

    async def branch(x: int) -> int:
        return x

    async with _log(place) as log:

        async def run() -> None:
            thread = Thread(log, place.thread(), place.variant == "sync")
            got = await asyncio.gather(*(branch(x) for x in range(n)))
            for x in got:
                await thread.put(x)
            assert sum(got) == n * (n - 1) // 2
            await thread.durable()

        yield Timed(run)


@asynccontextmanager
async def nested(place: Place) -> AsyncIterator[Timed]:
    async def level(depth: int, state: dict[str, int]) -> dict[str, int]:
        return await _add_one(state) if depth == 1 else await level(depth - 1, dict(state))

    async def run() -> None:
        assert await level(place.params["depth"], {"n": 0}) == {"n": 1}

    yield Timed(run)


@asynccontextmanager
async def subfan(place: Place) -> AsyncIterator[Timed]:
    subjects = [text(1000, seed) for seed in range(place.params["n"])]

    async def bump(joke: str) -> str:
        return joke + " a"

    async def joke(subject: str) -> str:
        said = f"Joke about {subject} - hohoho"
        while not said.endswith(" a" * 10):
            said = await bump(said)
        return said

    async def run() -> None:
        assert len(await asyncio.gather(*(joke(subject) for subject in subjects))) == len(subjects)

    yield Timed(run)


@asynccontextmanager
async def wide(place: Place) -> AsyncIterator[Timed]:
    n = place.params["n"]

    async def copy(state: dict[str, Any], name: str) -> dict[str, Any]:
        read, writes = wides.NODES[name]
        return wides.written(state[read], writes, n)

    def reduce(state: dict[str, Any], update: dict[str, Any]) -> None:
        for key, value in update.items():
            if key in wides.ADDED:
                value = [*state[key], *value]
            elif key in wides.MERGED:
                value = state[key] | value
            state[key] = value

    async def run() -> None:
        state = {**{key: [] for key in wides.LISTS}, **{key: {} for key in wides.OBJECTS}}
        state["messages"] = [wides.start(place.params)]
        while len(state["messages"]) <= n:
            for name in wides.NODES:
                reduce(state, await copy(state, name))

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

        yield Timed(run, growing(place, said.content_bytes()))


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    chat = Chat(place.params)
    roles = ("user", "assistant", "tool", "assistant") if chat.tools else ("user", "assistant")

    async def measured(log: Log, name: str) -> Facts:
        hot = []
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
        fork = time.perf_counter() - start
        return growth_facts(hot=hot, size=size, messages=chat.messages, load=load, fork=fork)

    async def run() -> Facts:
        name = place.thread()
        log = Log(place.database(f"{name}.db"))
        facts = await measured(log, name)
        await log.close()
        return facts

    yield Timed(run)


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    n, runs = place.params["n"], place.params.get("runs", 1)

    async def one(arrivals: Arrivals) -> None:
        sent: asyncio.Queue[float | None] = asyncio.Queue()

        async def emit() -> None:
            pace = Pace(place.params.get("gap", 0.0))
            for _ in range(n):
                await asyncio.sleep(pace.pause())
                sent.put_nowait(time.perf_counter())
            sent.put_nowait(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(emit())
            while (at := await sent.get()) is not None:
                arrivals.seen(at)
        arrivals.ended()

    async def run() -> Facts:
        arrivals = Arrivals()
        await (one(arrivals) if runs == 1 else asyncio.gather(*(one(arrivals) for _ in range(runs))))
        return arrivals.facts(n * runs)

    if runs > 1:
        await one(Arrivals())  # what is loaded once is no cost of a run
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
    "chain": counter, "loop": counter, "route": counter, "sequential": counter, "fanout": fanout, "nested": nested,
    "subfan": subfan, "wide": wide, "react": react, "agent": react, "growth": growth, "stream": stream, "model_stream": stream,
    "pause": pause, "cold": cold,
}  # fmt: skip
