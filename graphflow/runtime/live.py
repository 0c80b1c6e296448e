"""Runs of this process over one store: taking threads, leases, and finding a run that is live (E2, E18)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from graphflow.checkpoints.journal import Loaded, ThreadJournal, load_thread
from graphflow.checkpoints.port import Checkpointer, ThreadRow
from graphflow.errors import GraphflowError
from graphflow.graph.executor import Executor
from graphflow.graph.machine import AnyTick
from graphflow.graph.ports import Clock
from graphflow.runtime.run_log import RunLog

LEASE_MS = 15_000
RENEW_S = 5.0
HOT_THREADS = 64
"""Threads whose state stays in this process after a run, so that the next one reads nothing."""


class LiveRun:
    """One life of a run that this process drives."""

    def __init__(self, executor: Executor, journal: ThreadJournal | None, log: RunLog | None = None) -> None:
        self.executor = executor
        self.journal = journal
        self.log = log
        self.task: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        """Set when the life has ended: everything is durable and the thread is given back."""

    @property
    def thread_id(self) -> str:
        return self.executor.thread_id

    @property
    def run_id(self) -> str:
        return self.executor.machine.run_id


Listener = Callable[[LiveRun], Awaitable[None]]


class Runs:
    """The live runs over one store, and the threads that are hot.

    One task renews every lease while any run is live; it ends with the last of them.
    """

    _all: ClassVar[WeakKeyDictionary[Any, dict[asyncio.AbstractEventLoop, Runs]]] = WeakKeyDictionary()
    _listeners: ClassVar[WeakKeyDictionary[Any, list[Listener]]] = WeakKeyDictionary()

    def __init__(self, store: Checkpointer, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.on_end = self.listeners(store)
        self.by_thread: dict[str, LiveRun] = {}
        self._ready: asyncio.Future[None] | None = None
        self._hot: OrderedDict[str, Loaded] = OrderedDict()
        self._renewer: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def over(cls, store: Checkpointer, clock: Clock) -> Runs:
        """The one `Runs` of this store and event loop."""
        loop = asyncio.get_running_loop()
        per_loop = cls._all.setdefault(store, {})
        for old in [other for other in per_loop if other.is_closed()]:
            del per_loop[old]
        if loop not in per_loop:
            per_loop[loop] = cls(store, clock)
        return per_loop[loop]

    @classmethod
    def listeners(cls, store: Checkpointer) -> list[Listener]:
        """Who is told of each life over this store that has ended or waits, on whatever event loop.

        Add to the list, and remove what you have added.
        """
        return cls._listeners.setdefault(store, [])

    async def ready(self) -> None:
        """Sets the store up, once."""
        if self._ready is None:
            self._ready = asyncio.ensure_future(self.store.setup())  # noqa: TID251 - awaited here, by all who come
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            if self._ready.done():
                self._ready = None
            raise

    async def take(self, thread_id: str, *, create: bool = True) -> ThreadRow:
        """Takes the thread, or raises `ThreadBusy`."""
        await self.ready()
        return await self.store.take(
            thread_id, owner=self.store.owner, now=self.clock.now_ms(), lease_ms=LEASE_MS, create=create
        )

    async def load(self, row: ThreadRow) -> Loaded | None:
        """The thread that was just taken; from this process if it is hot and nobody moved its head."""
        hot = self._hot.get(row.thread_id)
        if hot is not None and hot.row.head == row.head and hot.row.lineage == row.lineage:
            hot.row = row
            return hot
        return await load_thread(self.store, row.thread_id) if row.head is not None else None

    def keep_hot(self, loaded: Loaded) -> None:
        self._hot[loaded.row.thread_id] = loaded
        self._hot.move_to_end(loaded.row.thread_id)
        while len(self._hot) > HOT_THREADS:
            self._hot.popitem(last=False)

    def forget(self, thread_id: str) -> None:
        self._hot.pop(thread_id, None)

    # --- driving

    async def drive(self, live: LiveRun, tick: AnyTick | None, before: Callable[[], None] | None = None) -> None:
        """Drives a life to its end in the caller's task; the thread is given back whatever happens."""
        thread_id = live.thread_id
        self.by_thread[thread_id] = live
        if self._renewer is None and live.journal is not None:
            self._renewer = asyncio.ensure_future(self._renew())  # noqa: TID251 - ends with the last run
        try:
            if before is not None:
                before()
            await live.executor.drive(tick)
            self._keep(live)
        except BaseException:
            self.forget(thread_id)
            raise
        finally:
            if self.by_thread.get(thread_id) is live:
                del self.by_thread[thread_id]
            if live.journal is not None:
                with contextlib.suppress(GraphflowError):
                    await asyncio.shield(live.journal.release())
            if self.on_end:
                await asyncio.shield(self.tell(live))
            if live.log is not None:
                live.log.end()
            live.over.set()

    async def tell(self, live: LiveRun) -> None:
        """Tells every listener that this life is over; one that fails is logged and harms nobody."""
        for listener in list(self.on_end):
            try:
                await listener(live)
            except Exception:  # noqa: BLE001 - the run has ended, whatever becomes of what is written about it
                import structlog

                structlog.get_logger("graphflow.runtime").exception(
                    "a listener failed at the end of a run", thread_id=live.thread_id, run_id=live.run_id
                )

    def start(self, live: LiveRun, tick: AnyTick | None, before: Callable[[], None] | None = None) -> None:
        """Drives a life detached from any caller (E18); `close` ends what is still running."""
        self.by_thread[live.thread_id] = live
        task = live.task = asyncio.ensure_future(self._detached(live, tick, before))  # noqa: TID251 - ended by `close`
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _detached(self, live: LiveRun, tick: AnyTick | None, before: Callable[[], None] | None) -> None:
        # A failed store has ended the run with an event already; nobody awaits this task to be told again.
        with contextlib.suppress(GraphflowError):
            await self.drive(live, tick, before)

    def _keep(self, live: LiveRun) -> None:
        journal = live.journal
        if journal is None:
            return
        executor = live.executor
        self.keep_hot(journal.as_loaded(executor.machine, executor.seq, executor.sent))

    async def _renew(self) -> None:
        """Renews every lease of this process, for as long as a run is live (E2)."""
        try:
            while self.by_thread:
                await asyncio.sleep(RENEW_S)
                if self.by_thread:
                    with contextlib.suppress(GraphflowError):
                        await self.store.renew(self.store.owner, lease_until=self.clock.now_ms() + LEASE_MS)
        finally:
            self._renewer = None

    async def close(self, grace_s: float = 5.0) -> None:
        """Lets running nodes finish for a while, then leaves their threads at the last checkpoint (spec 3.5)."""
        tasks = [*self._tasks]
        for live in list(self.by_thread.values()):
            live.executor.release()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for live in list(self.by_thread.values()):
            live.executor.abandoned = True
        for task in tasks:
            task.cancel()
        if self._renewer is not None:
            tasks.append(self._renewer)
            self._renewer.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
