"""What the tests of the checkpointer suite are made of: a store per test, and a driver that commits as a journal does."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.rows import Lineage, LogItem, Record, ThreadFacts
from graphflow.errors import GraphflowError
from graphflow.graph.engine.ports import Durable
from graphflow.testing.existing import existing

E = TypeVar("E", bound=GraphflowError)
S = TypeVar("S", bound="Suite")

NOW = 1_700_000_000_000
LEASE = 15_000
# Counted and not drawn, so that a failing test reads the same each time.
_numbers = itertools.count(1)


def next_number() -> int:
    """A number for a lineage, unique in this process."""
    return next(_numbers)


def new_id() -> str:
    """A time-ordered id in the form of UUIDv7."""
    number = next(_numbers)
    return f"018f0000-{number >> 16:04x}-7{number & 0xFFF:03x}-8000-{number:012x}"


def facts(**changes: Any) -> ThreadFacts:
    return ThreadFacts(**{"status": "running", "updated_at": NOW, **changes})


class Driver:
    """One epoch of a thread: commits records in order, as a journal does."""

    def __init__(self, store: Checkpointer, thread_id: str, fence: int, head: str | None) -> None:
        self.store = store
        self.thread_id = thread_id
        self.fence = fence
        self.head = head
        self.lineage = 0
        self.ordinal = 0
        self.ids: list[str] = []
        self.counts: dict[tuple[int, str], int] = {}
        self._begins: Lineage | None = None

    def begin(
        self, parent: int | None = None, cut: int = 0, counts: Mapping[tuple[int, str], int] | None = None
    ) -> int:
        """The next commit begins a lineage; its number."""
        self.lineage = next_number()
        self.ordinal = 0
        if counts is not None:
            self.counts = dict(counts)
        self._begins = Lineage(number=self.lineage, thread_id=self.thread_id, parent=parent, cut=cut)
        return self.lineage

    def record(self, *messages: bytes, channel: str = "messages", frame: int = 0, **fields: Any) -> Record:
        """The next record, with entries for one channel."""
        self.ordinal += 1
        first = self.counts.get((frame, channel), 0)
        self.counts[frame, channel] = first + len(messages)
        items = tuple(LogItem(frame, channel, first + n, data) for n, data in enumerate(messages))
        fields = {"checkpoint": True, "meta": b"meta", "data": b"data", "items": items, "id": new_id(), **fields}
        return Record(lineage=self.lineage, ordinal=self.ordinal, **fields)

    def commit(self, *records: Record, **options: Any) -> Durable:
        # Moved on before anything is durable, as a journal does: the next commit expects the head of this one.
        begins, self._begins = self._begins, None
        options = {"facts": facts(), "begins": begins, **options}
        durable = self.store.commit(self.thread_id, self.fence, self.head, records, **options)
        if records:
            self.head = records[-1].id
            self.ids += [record.id for record in records]
        return durable

    async def add(self, *messages: bytes, **fields: Any) -> Record:
        """One durable record."""
        record = self.record(*messages, **fields)
        await self.commit(record)
        return record


async def drive(store: Checkpointer, thread_id: str = "thread", *, now: int = NOW, owner: str = "owner") -> Driver:
    """Takes a thread; a new one begins its first lineage with its first commit."""
    row = await store.take(thread_id, owner=owner, now=now, lease_ms=LEASE)
    driver = Driver(store, thread_id, row.fence, row.head)
    if row.lineage is None:
        driver.begin()
    else:
        driver.lineage, driver.ordinal = row.lineage, row.ordinal
    return driver


async def filled(store: Checkpointer, count: int) -> Driver:
    """A thread with this many checkpoints, each of which adds its number to the messages."""
    driver = await drive(store)
    for n in range(count):
        await driver.add(b"%d" % n)
    return driver


async def refused(kind: type[E], awaitable: Awaitable[Any]) -> E:
    """The error of this kind that awaiting raises."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"nothing raised {kind.__name__}")


async def messages(store: Checkpointer, thread_id: str, checkpoint_id: str | None = None, *, count: int) -> list[bytes]:
    stored = existing(await store.load(thread_id, checkpoint_id))
    return await store.read_items(stored.chain, 0, "messages", count)


async def lines_of(store: Checkpointer, thread_id: str) -> list[Mapping[str, Any]]:
    return [line async for line in store.export_thread(thread_id)]


async def stream(lines: Iterable[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    for line in lines:
        yield line


class Suite:
    """What all parts of the suite need."""

    durable = True
    """Whether a second `make(folder)` sees what the first one stored."""
    encrypted = False
    """Whether what `make` gives opens and encrypts blobs itself, so that their stored sizes are not those of the blobs."""

    def make(self, folder: Path) -> Checkpointer:
        """A store whose data lies in this folder, not yet set up."""
        raise NotImplementedError(
            "override make(folder): see the docstring of graphflow.testing.checkpointer_conformance"
        )


def promise(test: Callable[[S, Checkpointer], Coroutine[Any, Any, None]]) -> Callable[[S], None]:
    """A test that any runner can call: it opens a store, runs on a loop of its own, and closes the store."""

    async def kept(suite: S, folder: Path) -> None:
        store = suite.make(folder)
        await store.setup()
        try:
            # For a store that hangs: no promise takes a second.
            async with asyncio.timeout(60):
                await test(suite, store)
        finally:
            await store.close()

    def run(self: S) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(kept(self, Path(folder)))

    # By hand, since `functools.wraps` would show runners the signature with `store`, which they take for a fixture.
    run.__name__, run.__qualname__, run.__doc__, run.__module__ = (
        test.__name__,
        test.__qualname__,
        test.__doc__,
        test.__module__,
    )
    return run


async def rewound(store: Checkpointer) -> tuple[Driver, int]:
    """A thread of five checkpoints that went back to the third and on for two; the old lineage."""
    driver = await filled(store, 5)
    old = driver.lineage
    driver.begin(old, 3, counts={(0, "messages"): 3})
    await driver.add(b"new 0")
    await driver.add(b"new 1")
    return driver, old


async def forked(store: Checkpointer, source: Driver, count: int, thread_id: str = "fork") -> Driver:
    """A driver of a new fork that shares the source's first `count` messages, one per checkpoint."""
    history = [line.id for line in await store.list_checkpoints(source.thread_id)][::-1]
    await store.fork(history[count - 1], source.thread_id, thread_id, number=next_number(), facts=facts())
    driver = await drive(store, thread_id)
    driver.counts = {(0, "messages"): count}
    return driver
