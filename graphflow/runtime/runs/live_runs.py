"""Runs of this process over one store: taking threads, driving runs, and finding a run that is live (E2, E18).

What other processes ask of a run that is driven here (to stop, to take a signal) comes through the thread's queue, which
is looked at every `WATCH_S` while any run is live.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from os import PathLike

import msgspec

from graphflow.checkpoints import errors
from graphflow.checkpoints.checkpointer import Checkpointer, owner_liveness
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import Loaded, load_thread
from graphflow.checkpoints.rows import Queued, ThreadRow
from graphflow.errors import GraphflowError, ThreadBusy, ThreadNotFound
from graphflow.graph.core.ticks import AnyTick
from graphflow.graph.engine.executor import Executor
from graphflow.graph.engine.light_event import LightEvent
from graphflow.graph.engine.ports import Clock
from graphflow.runtime.queue_codec import Signal, Stop, decode_queued, encode_queued, kind_of
from graphflow.runtime.runs.answer_delivery import take_from_queue
from graphflow.runtime.runs.event_ring import RunLog
from graphflow.runtime.runs.lease import ThreadLease
from graphflow.runtime.runs.lease_guard import LeaseGuard
from graphflow.runtime.runs.lease_keeper import LEASE_MS, LeaseKeeper
from graphflow.runtime.runs.store_time import StoreTime

log = logging.getLogger("graphflow.runtime")
WATCH_S = 0.5
"""How often a process with live runs looks for what others ask of them."""
STOP_WAIT_S = 10.0
"""How long a new run waits for another process to end the one that drives the thread."""
POLL_S = 0.05
ASK_AGAIN_MS = 1000
"""When a caller that finds a thread busy is told to come again, at the latest."""
HOT_THREADS = 64
"""Threads whose state stays in this process after a run, so that the next one reads nothing."""


class LiveRun:
    """One epoch of a run, driven by this process.

    Args:
        run_id: of the run; default: of the one that the executor's machine stands in.
    """

    def __init__(
        self,
        executor: Executor,
        journal: ThreadJournal | None,
        log: RunLog | None = None,
        *,
        run_id: str | None = None,
    ) -> None:
        self.executor, self.thread_id = executor, executor.run.thread_id
        self.run_id = run_id or executor.machine.run_id
        """Known from the beginning: the machine stands in the thread's last run until the first tick."""
        self.journal = journal
        self.log = log
        self.task: asyncio.Task[None] | None = None
        self.lease: ThreadLease | None = None
        self.fed: set[int] = set()
        """Positions of queue entries that it was given."""
        self.unasked = False
        """It goes on after a crash although nobody has asked for that."""
        self.over = LightEvent()
        """Set when the epoch is over: everything is durable and the thread is given back."""

    def busy(self, remedy: str) -> ThreadBusy:
        """The refusal of what needs the thread now."""
        text = f"run {self.run_id} drives thread {self.thread_id!r}; wait for it, {remedy}"
        return ThreadBusy(text, retryAfterMs=1000, runId=self.run_id)


class PreparedRun(msgspec.Struct):
    """A run that has its thread and only has to be driven."""

    runs: LiveRuns | None
    """Those that it is one of; None without a store."""
    run: LiveRun
    tick: AnyTick | None
    before: Callable[[], None]
    """Sends what comes before the first tick."""

    def detach(self) -> LiveRun:
        """Drives it apart from any caller (E18)."""
        if self.runs is None:
            raise GraphflowError("a detached run needs a checkpointer", code="invalid_input")
        return self.runs.start(self)


Listener = Callable[[LiveRun], Awaitable[None]]
Watcher = Callable[[LiveRun], None]


class LiveRuns:
    """The live runs over one store on one event loop, and the threads that are hot.

    One task renews every lease and reads what others ask while any run is live; it ends with the last of them.
    """

    def __init__(self, store: Checkpointer, clock: Clock, registry: RunRegistry) -> None:
        self.store, self.clock, self.registry = store, clock, registry
        self.loop = asyncio.get_running_loop()
        self.owner = store.owner
        self.by_thread: dict[str, LiveRun] = {}
        self._curious: dict[str, set[asyncio.Future[None]]] = {}
        self._ready: asyncio.Future[None] | None = None
        self._hot: OrderedDict[str, Loaded] = OrderedDict()
        self._renewer: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Asked for each time: the registry's owner may set it after the first run.
        self.time = StoreTime(store, clock)
        self.leases = LeaseKeeper(store, clock, self.time, lambda: registry.lease_ms)
        # No store that belongs to one process tells who lives, and nobody else can take its threads.
        self._guarded = owner_liveness(store) is not None

    async def ready(self) -> None:
        """Sets the store up, once."""
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._open())  # noqa: TID251 - awaited here, by all who come
        try:
            # Shielded: all callers await one setup, and one that is cancelled must not cancel it for the others.
            await asyncio.shield(self._ready)
        except BaseException:
            # A failed setup is not remembered: the next caller tries again.
            if self._ready.done():
                self._ready = None
            raise

    async def _open(self) -> None:
        await self.store.setup()
        await self.time.measure()

    async def take(self, thread_id: str, *, create: bool = True) -> ThreadRow:
        """Takes the thread, or raises `ThreadBusy`."""
        await self.ready()
        # Otherwise the thread would look busy with an ended epoch of this very process.
        if thread_id in self.leases.owed:
            await self.leases.give_back(thread_id)
        if self.time.source is not None:
            await self.time.refresh()
        lease_ms, now = self.registry.lease_ms, self.time.now_ms()
        try:
            return await self.store.take(thread_id, owner=self.owner, now=now, lease_ms=lease_ms, create=create)
        except ThreadBusy as refusal:
            # Most runs end long before their lease does.
            wait = min(refusal.detail["retryAfterMs"], ASK_AGAIN_MS)
            raise errors.busy(thread_id, now + wait, now) from None

    async def load_head(self, row: ThreadRow) -> Loaded:
        """The head of the thread that was just taken.

        Raises:
            ThreadNotFound: nothing was recorded yet.
        """
        loaded = await self.load(row)
        if loaded is None:
            raise ThreadNotFound(f"thread {row.thread_id!r} has no checkpoint yet; run it first")
        return loaded

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

    async def drive(self, prepared: PreparedRun) -> None:
        """Drives a run to its end in the caller's task; the thread is given back whatever happens."""
        live = prepared.run
        thread_id = live.thread_id
        self.by_thread[thread_id] = live
        if self._renewer is None and live.journal is not None:
            self._renewer = asyncio.ensure_future(self._watch())  # noqa: TID251 - ends with the last run
        if live.journal is not None:
            self.leases.begin()
            if self._guarded:
                self.registry.guard.watch()
        try:
            for watcher in self.registry.on_begin:
                watcher(live)
            prepared.before()
            await live.executor.drive(prepared.tick)
            if live.journal is not None:
                self.keep_hot(live.journal.as_loaded(live.executor.machine, live.executor.seq, live.executor.sent))
        # After an error the machine may be ahead of the store; the next run has to read what is durable.
        except BaseException:
            self.forget(thread_id)
            raise
        finally:
            if self.by_thread.get(thread_id) is live:
                del self.by_thread[thread_id]
            # Shielded: a cancelled caller must not leave the thread taken. Nothing is awaited where nothing is to be done,
            # since each shield takes a task and three turns of the loop.
            if live.journal is not None:
                self.leases.end()
            if live.journal is not None and live.journal.owes_release:
                try:
                    await asyncio.shield(live.journal.release())
                except GraphflowError:
                    self.leases.owed[thread_id] = live.journal.row.fence
            if live.lease is not None:
                await asyncio.shield(live.lease.settle()) if live.lease.withholds else live.lease.detach()
            if self.registry.on_end:
                await asyncio.shield(self.notify(live))
            if live.log is not None:
                live.log.end()
            # `over` comes last: its waiters may count on a free thread and on finished listeners.
            live.over.set()
            for future in self._curious.get(thread_id, ()):
                if not future.done():
                    future.set_result(None)

    async def notify(self, live: LiveRun) -> None:
        """Calls every listener; one that fails is logged, and the others are called all the same."""
        for listener in list(self.registry.on_end):
            try:
                await listener(live)
            except Exception:  # the run has ended, whatever becomes of what is written about it
                facts = {"thread_id": live.thread_id, "run_id": live.run_id}
                log.exception("a listener failed at the end of a run", extra={"facts": facts})

    def start(self, prepared: PreparedRun) -> LiveRun:
        """Drives a run detached from any caller (E18); `close` ends what is still running."""
        live = prepared.run
        self.by_thread[live.thread_id] = live
        task = live.task = asyncio.ensure_future(self._detached(prepared))  # noqa: TID251 - ended by `close`
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return live

    async def _detached(self, prepared: PreparedRun) -> None:
        # A failed store has ended the run with an event already; nobody awaits this task to hear it again.
        with contextlib.suppress(GraphflowError):
            await self.drive(prepared)

    # --- what other processes ask

    async def _watch(self) -> None:
        """Renews every lease of this process and reads its control messages, for as long as a run is live (E2)."""
        loop = asyncio.get_running_loop()
        pause, renewed_at = min(WATCH_S, self.registry.pause_s), loop.time()
        try:
            while self.by_thread:
                await asyncio.sleep(pause)
                with contextlib.suppress(GraphflowError):
                    if loop.time() - renewed_at + pause > self.registry.pause_s:
                        renewed_at = loop.time()
                        await self.leases.renew(
                            [live.lease for live in self.by_thread.values() if live.lease is not None]
                        )
                    await self._read_control_messages()
        except asyncio.CancelledError:  # the loop ends, and a node that swallows its own cancellation would hold it up
            for live in list(self.by_thread.values()):
                if live.task is not None:
                    live.executor.leave()
            raise
        finally:
            self._renewer = None

    async def _read_control_messages(self) -> None:
        for kind in ("stop", "signal", "answer"):
            for queued in await self.store.queue(kind=kind, owner=self.owner):
                live = self.by_thread.get(queued.thread_id)
                # An ending run takes no more messages; a signal stays queued for the next one.
                if live is not None and live.journal is not None and not live.executor.ending:
                    await self._handle_control_message(live, live.journal, queued)

    async def _handle_control_message(self, live: LiveRun, journal: ThreadJournal, queued: Queued) -> None:
        if queued.kind != "stop":
            # It leaves the queue with a commit, which may not be durable when the queue is read again.
            if queued.position in live.fed:
                return
            live.fed.add(queued.position)
        if queued.kind == "answer":
            await take_from_queue(self.store, live.executor, journal, queued)
            return
        message = decode_queued(queued)
        if isinstance(message, Signal):
            self.signal(live, journal, message, queued.position)
            return
        # Withdrawn even if it is void, or it would be read again and again.
        await self.store.withdraw(queued.thread_id, queued.position)
        if message.fence == journal.row.fence and not live.executor.ending:
            live.executor.leave() if message.how == "cancel" else live.executor.release()

    def signal(self, live: LiveRun, journal: ThreadJournal, signal: Signal, position: int | None) -> bool:
        """Feeds a signal to a run of this process; whether a `wait` took it. Its queue entry goes with the commit."""
        journal.consumes = position
        return live.executor.signal(signal.name, signal.payload)

    def is_driven(self, row: ThreadRow) -> bool:
        """Whether somebody drives the thread, as far as its row and this process can tell."""
        if row.thread_id in self.by_thread:
            return True
        # An expired lease may be taken at once, whoever holds it (E2).
        if row.owner is None or row.lease_until <= self.time.now_ms():
            return False
        # The lock file shows a dead owner on this host long before its lease expires (E2).
        liveness = owner_liveness(self.store)
        return liveness is None or not liveness.is_dead(row.owner)

    def status_of(self, row: ThreadRow) -> str:
        """`idle`, `running`, `waiting`, `failed` or `stopped` (spec 3.2), as far as a thread's row shows.

        A thread whose driver is gone is `stopped`: nobody renews its lease, or the owner's lock is free.
        """
        if row.facts.status != "running":
            return row.facts.status
        return "running" if self.is_driven(row) else "stopped"

    async def preempt(self, thread_id: str, how: str = "cancel", *, wait_s: float | None = None) -> None:
        """Ends the run that drives the thread, in this process or another, and returns when the thread is free.

        Args:
            how: `cancel` its run, or only `release` a thread that waits for people while its process holds it.

        Raises:
            ThreadBusy: its process did not respond in time.
        """
        live = self.by_thread.get(thread_id)
        if live is not None:
            # Not `cancel`, which has no effect on a run whose first tick is yet to come.
            live.executor.leave() if how == "cancel" else live.executor.release()
            await self._ended(live)
            return
        row = await self.store.thread(thread_id)
        if row is None or not self.is_driven(row):
            return
        message = Stop(fence=row.fence, how=how)
        position = await self.store.enqueue(
            thread_id, encode_queued(message), now=self.clock.now_ms(), kind=kind_of(message)
        )
        try:
            async with asyncio.timeout(STOP_WAIT_S if wait_s is None else wait_s):
                while row is not None and row.fence == message.fence and self.is_driven(row):
                    await asyncio.sleep(POLL_S)
                    row = await self.store.thread(thread_id)
        except TimeoutError:
            raise ThreadBusy(
                f"the process that drives thread {thread_id!r} was asked to stop and has not answered; try again",
                threadId=thread_id,
                retryAfterMs=ASK_AGAIN_MS,
            ) from None
        # The driver withdraws what it has read; this removes a message that nobody has read.
        finally:
            await asyncio.shield(self.store.withdraw(thread_id, position))

    async def _ended(self, live: LiveRun) -> None:
        """Waits for the end of a run that was cancelled.

        Raises:
            ThreadBusy: the code of its nodes does not end; the run is cancelled all the same, and nothing of it counts.
        """
        waits = (asyncio.ensure_future(live.over.wait()), asyncio.ensure_future(self.clock.sleep(STOP_WAIT_S)))  # noqa: TID251 - ended below
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not live.over.is_set():
            nodes = ", ".join(repr(name) for name in live.executor.tasks.unended()) or "a node"
            raise ThreadBusy(
                f"the run of thread {live.thread_id!r} is cancelled, but the code of {nodes} ignores that and still runs after"
                f" {STOP_WAIT_S:g} s; the thread is free when it ends, or its process does",
                threadId=live.thread_id,
                retryAfterMs=ASK_AGAIN_MS,
            )

    async def settled(self, thread_id: str) -> LiveRun | None:
        """The run that drives the thread here; one that is just ending is waited for first."""
        live = self.by_thread.get(thread_id)
        if live is not None and live.executor.ending:
            await live.over.wait()
            live = self.by_thread.get(thread_id)
        return live

    async def changed(self, thread_id: str, within_s: float) -> None:
        """Returns when a run of the thread has ended in this process, at the latest after `within_s`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        curious = self._curious.setdefault(thread_id, set())
        curious.add(future)
        try:
            await asyncio.wait((future,), timeout=within_s)
        finally:
            curious.discard(future)
            if not curious:
                self._curious.pop(thread_id, None)

    async def close(self, grace_s: float = 5.0) -> None:
        """Lets running nodes finish for a while, then leaves their threads at the last checkpoint (spec 3.5)."""
        tasks = [*self._tasks]
        for live in list(self.by_thread.values()):
            live.executor.release()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        await abandon(self.by_thread.values())
        if self._renewer is not None:
            tasks.append(self._renewer)
            self._renewer.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def abandon(lives: Iterable[LiveRun]) -> None:
    """Leaves the threads of detached runs at their last checkpoint."""
    lives = list(lives)
    # A shutdown is not recorded as a cancel.
    for live in lives:
        live.executor.abandoned = True
        if live.task is not None:  # an attached one is left by its caller
            live.executor.leave()
    await asyncio.gather(*(live.task for live in lives if live.task is not None), return_exceptions=True)


class RunRegistry:
    """What this process knows of the runs over one open store: the live ones of each event loop, and who listens to them.

    All graphs over a store share one, or they would not see that a thread is busy with another's run. Whoever opens the
    store passes it on; `registry_of` finds it for those who are given the store alone.
    """

    def __init__(self, store: Checkpointer) -> None:
        self.store = store
        self.lease_ms = LEASE_MS
        """For how long a thread is taken."""
        self.on_begin: list[Watcher] = []
        """Called with each run just before it is driven, on whatever event loop."""
        self.on_end: list[Listener] = []
        """Called with each run that has ended or waits."""
        self._by_loop: dict[asyncio.AbstractEventLoop, LiveRuns] = {}
        self.guard = LeaseGuard(lambda: self.pause_s, self._keepers)

    def _keepers(self) -> list[LeaseKeeper]:
        return [runs.leases for loop, runs in list(self._by_loop.items()) if loop.is_running()]

    @property
    def live(self) -> int:
        """How many runs this process drives now, on whatever event loop."""
        return sum(len(runs.by_thread) for runs in self._by_loop.values())

    @property
    def pause_s(self) -> float:
        """The time between two renewals: a third of a lease (ms to s), so that one late renewal does not lose it."""
        return self.lease_ms / 3000

    def home_of(self, thread_id: str) -> LiveRuns | None:
        """Where a run of this process drives the thread, on whatever event loop."""
        homes = (
            runs for loop, runs in list(self._by_loop.items()) if thread_id in runs.by_thread and loop.is_running()
        )
        return next(homes, None)

    def here(self, clock: Clock) -> LiveRuns:
        """The live runs of the running event loop; the first caller gives them their clock."""
        loop = asyncio.get_running_loop()
        runs = self._by_loop.get(loop)
        if runs is None:
            # Every `_sync` call has a loop of its own; entries of closed loops would pile up.
            for old in [other for other in self._by_loop if other.is_closed()]:
                del self._by_loop[old]
            runs = self._by_loop[loop] = LiveRuns(self.store, clock, self)
        return runs


def registry_of(store: Checkpointer) -> RunRegistry:
    """The registry of this store object.

    It hangs on the store, so that it ends with it and needs no table of all stores; a store that wraps another one has its
    own.
    """
    if isinstance(store, str | PathLike):  # a path is the likely mistake, and anything else has attributes
        raise TypeError(f"checkpointer is the path {str(store)!r}; give a store: SqliteCheckpointer({str(store)!r})")
    registry: RunRegistry | None = vars(store).get("_run_registry")
    if registry is None:
        registry = vars(store)["_run_registry"] = RunRegistry(store)
    return registry
