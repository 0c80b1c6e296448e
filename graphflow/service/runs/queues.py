"""Inputs that wait for their turn: put into a thread's queue, begun in order, told where they stand (spec 2.4, 3.1).

The queue is the store's, so it outlives every process. Whoever frees a thread begins the next input, and the sweep of every
server looks for threads that somebody freed and left: after a crash the run that was cut off goes on first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import msgspec

from graphflow.checkpoints.checkpointer import owner_liveness
from graphflow.checkpoints.rows import Queued, ThreadRow
from graphflow.errors import GraphflowError
from graphflow.events import Event, RequestQuery
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.queue import QueuedRun, decode_queued, encode_queued
from graphflow.runtime.runs.concurrency import HELD_MS
from graphflow.runtime.runs.live_runs import LiveRun
from graphflow.runtime.runs.signals import deliver_queued
from graphflow.service.chats.uploads import announced
from graphflow.service.requests import CHAT_ID

if TYPE_CHECKING:
    from graphflow.service.application import Application

OBSERVE_S = 0.5
"""How often a process looks whether inputs that it waits for have left the queue by another's hand."""
PAGE = 10_000
FULL_RETRY_MS = 5_000
LATER = frozenset({"thread_busy", "thread_waiting", "fenced", "store_failed", "stopping", "connection"})
"""Refusals that leave an input in the queue: its turn will come."""

log = logging.getLogger("graphflow.service")


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a request has set going."""

    run: LiveRun
    run_id: str
    chat_id: str
    request_id: str | None = None
    after: int = 0
    """The requester's stream has the events with higher numbers."""


Turn = Begun | Literal["gone"]
"""What became of an input: its run has begun here, or it has left the queue by another's hand."""


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """An input that was accepted and waits for its turn."""

    run_id: str
    chat_id: str
    request_id: str | None
    position: int
    """As the store counts."""
    place: int
    """1: it is next."""
    begins: asyncio.Future[Any] | None = None
    """Kept with it, so that a run which begins before anybody waits for it is told to who comes then."""


class Queues:
    """The queues of an application's threads.

    Only an application that serves begins queued inputs: a command that ends soon would cut their runs off.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self.serving = False
        self._closed = False
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Future[Turn]] = WeakValueDictionary()
        """(thread, position) → who waits for it here."""
        self._observed: dict[str, asyncio.Task[None]] = {}
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    # --- putting in, looking, taking out

    async def add(self, chat_id: str, queued: QueuedRun) -> Enqueued:
        """Accepts an input durably; the caller has the thread's turn.

        Raises:
            GraphflowError: `overloaded` when as many wait as are let in.
        """
        app = self._app
        now = app.clock.now_ms()
        await self._refuse_when_full(chat_id)
        position = await app.store.enqueue(chat_id, encode_queued(queued), now=now, run_id=queued.run_id)
        begins = self._turns[chat_id, position] = asyncio.get_running_loop().create_future()
        entries = await app.store.queue(chat_id, kind="input", limit=PAGE)
        self.nudge(chat_id)  # the run may have ended before the input was there
        return Enqueued(
            run_id=queued.run_id,
            chat_id=chat_id,
            request_id=(queued.request or {}).get("request_id"),
            position=position,
            place=sum(entry.position <= position for entry in entries),
            begins=begins,
        )

    async def _refuse_when_full(self, chat_id: str) -> None:
        most = self._app.settings.server.max_queued
        if len(await self._app.store.queue(chat_id, kind="input", limit=most)) >= most:
            raise GraphflowError(
                f"{most} inputs wait on thread {chat_id!r}, which is as many as it takes; try again later",
                code="overloaded",
                retryAfterMs=FULL_RETRY_MS,
            )

    async def entries(self, chat_id: str) -> list[tuple[Queued, QueuedRun]]:
        """The inputs that wait, in order."""
        await self._app.runs.ready()
        found = await self._app.store.queue(chat_id, kind="input", limit=PAGE)
        return [(entry, decode_queued(entry)) for entry in found]

    async def find(self, run_id: str) -> Enqueued | None:
        """The input of a run that has not begun."""
        await self._app.runs.ready()
        chat_id = await self._app.store.find_run(run_id) if CHAT_ID.fullmatch(run_id) else None
        if chat_id is None:
            return None
        for place, (entry, queued) in enumerate(await self.entries(chat_id), 1):
            if queued.run_id == run_id:
                request_id = (queued.request or {}).get("request_id")
                return Enqueued(
                    run_id=run_id, chat_id=chat_id, request_id=request_id, position=entry.position, place=place
                )
        return None

    async def withdraw(self, enqueued: Enqueued) -> bool:
        """Takes the input out of the queue; False when its run has begun or it is gone already."""
        run_id = enqueued.run_id
        async with self._app.turn(enqueued.chat_id):
            out = await self._app.store.withdraw(enqueued.chat_id, enqueued.position, run_id=run_id)
        if out:
            self._settle(enqueued.chat_id, enqueued.position, "gone")
        return out

    # --- waiting for the turn

    async def turn(self, enqueued: Enqueued) -> Turn:
        """Returns when the input's run begins in this process, or when the input is no longer in the queue.

        Raises:
            GraphflowError: its turn came, and it was refused for good (its agent is gone, say); or `stopping`.
        """
        key = (enqueued.chat_id, enqueued.position)
        future = enqueued.begins or self._turns.get(key)
        if future is None:
            future = self._turns[key] = asyncio.get_running_loop().create_future()
        if self._closed and not future.done():  # the input got into the store while those who waited were told
            raise _stopping()
        if enqueued.chat_id not in self._observed:
            task = asyncio.ensure_future(self._observe(enqueued.chat_id))  # noqa: TID251 - ends with the last who waits
            self._observed[enqueued.chat_id] = task
        await asyncio.wait((future,))
        return future.result()

    async def _observe(self, chat_id: str) -> None:
        """Tells those who wait here that their input has left the queue, for as long as somebody waits."""
        try:
            while waited := {position for name, position in list(self._turns) if name == chat_id}:
                try:
                    entries = await self._app.store.queue(chat_id, kind="input", limit=PAGE)
                except GraphflowError:  # a store that is locked for a moment
                    entries = None
                if entries is not None:
                    for position in waited - {entry.position for entry in entries}:
                        self._settle(chat_id, position, "gone")
                await asyncio.sleep(OBSERVE_S)
        finally:
            self._observed.pop(chat_id, None)

    def _settle(self, chat_id: str, position: int, turn: Turn | GraphflowError) -> None:
        future = self._turns.pop((chat_id, position), None)
        if future is None or future.done():
            return
        if isinstance(turn, GraphflowError):
            future.set_exception(turn)
            future.exception()  # whoever waits gets it; nobody may wait
        else:
            future.set_result(turn)

    # --- beginning the next

    async def ended(self, live: LiveRun) -> None:
        """A listener of `Runs.on_end`: the thread is free, or waits."""
        if live.executor.machine.status != "running":
            self.nudge(live.thread_id)

    def nudge(self, chat_id: str) -> None:
        """Begins what is next on the thread, soon, if it is free."""
        app = self._app
        if not self.serving or app.stopping:
            return
        if chat_id in self._draining:
            self._again.add(chat_id)
            return
        task = asyncio.ensure_future(self._drain(chat_id))  # noqa: TID251 - ended by `close`
        self._draining[chat_id] = task

    async def sweep(self) -> None:
        """Looks at every thread with something queued that nobody drives."""
        for chat_id in await self._app.store.queues(self._app.clock.now_ms()):
            if chat_id not in self._app.runs.by_thread:
                await self._signals(chat_id)
                self.nudge(chat_id)

    async def close(self) -> None:
        """Begins nothing any more; what waits stays in the store, and who waits here is told so."""
        self.serving, self._closed = False, True
        for chat_id, position in list(self._turns):
            self._settle(chat_id, position, _stopping())
        tasks = [*self._draining.values(), *self._observed.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self, chat_id: str) -> None:
        try:
            while True:
                self._again.discard(chat_id)
                try:
                    async with self._app.turn(chat_id):
                        await self._next(chat_id)
                except Exception:  # a store that is locked for a moment: the sweep comes again
                    log.exception("the next input of thread %s could not be begun", chat_id)
                if chat_id not in self._again:
                    return
        finally:
            del self._draining[chat_id]

    async def _next(self, chat_id: str) -> None:
        app = self._app
        first = await app.store.queued(chat_id)
        row = await app.store.thread(chat_id) if first is not None else None
        if first is None or row is None or app.stopping or app.runs.is_driven(row):
            return
        queued = decode_queued(Queued(thread_id=chat_id, position=first[0], kind="input", body=first[1], at=0))
        if queued.holder is not None and not await self._is_lost(chat_id, queued, first[0]):
            return
        if row.facts.status == "running" and await self._goes_on(chat_id):
            return
        try:
            self._settle(chat_id, first[0], await self._begin(chat_id, row, queued, first[0]))
        except GraphflowError as refusal:
            if refusal.code in LATER:
                log.debug("thread %s: the next input waits on: %s", chat_id, refusal.message)
                return
            log.warning("thread %s: run %s can't begin: %s", chat_id, queued.run_id, refusal.message)
            await app.store.withdraw(chat_id, first[0], run_id=queued.run_id)
            self._settle(chat_id, first[0], refusal)
            self._again.add(chat_id)

    async def _goes_on(self, chat_id: str) -> bool:
        """Whether a run that a crash cut off goes on, or will: its input was there before those that wait."""
        app = self._app
        try:
            graph = await app.graph_of_thread(chat_id)
            await graph.launch_resume(chat_id, hold_ms=app.settings.tools.hold_ms)
        except GraphflowError as refusal:
            if refusal.code not in LATER:
                log.warning("thread %s: its run can't go on, so the next input begins: %s", chat_id, refusal.message)
                return False
        return True

    async def _begin(self, chat_id: str, row: ThreadRow, queued: QueuedRun, position: int) -> Begun:
        app = self._app
        graph = await self._graph(chat_id, queued.agent_key)
        preamble: list[Event] = [*await announced(app, chat_id, queued.run_id)]
        if queued.request is not None:
            preamble.append(RequestQuery(chat_id=chat_id, **_fields(queued.request)))
        run = await graph.launch(
            queued.input,
            chat_id,
            preamble=preamble,
            hold_ms=app.settings.tools.hold_ms if queued.hold_ms is None else queued.hold_ms,
            on_waiting=queued.on_waiting,
            consumes=position,
            **queued.options(),
        )
        request_id = (queued.request or {}).get("request_id")
        return Begun(run=run, run_id=queued.run_id, chat_id=chat_id, request_id=request_id)

    async def _graph(self, chat_id: str, agent_key: str | None) -> CompiledGraph:
        app = self._app
        if agent_key is not None and agent_key in {agent.key for agent in app.agents.list()}:
            return app.graph(agent_key)
        return await app.graph_of_thread(chat_id)

    async def _is_lost(self, chat_id: str, queued: QueuedRun, position: int) -> bool:
        """Whether a caller that wanted to drive its run itself is surely gone, or did not take its turn."""
        store = self._app.store
        liveness = owner_liveness(store)
        if liveness is not None and queued.holder is not None and liveness.is_dead(queued.holder):
            return True
        entries = await store.queue(chat_id, kind="input", limit=1)
        row = await store.thread(chat_id)
        since = max(entries[0].at if entries else 0, row.facts.updated_at if row is not None else 0)
        return self._app.clock.now_ms() - since > HELD_MS

    async def _signals(self, chat_id: str) -> None:
        if await self._app.store.queue(chat_id, kind="signal", limit=1):
            graph, hold = await self._app.graph_of_thread(chat_id), self._app.settings.tools.hold_ms
            await deliver_queued(graph, self._app.runs, chat_id, hold_ms=hold)


def _stopping() -> GraphflowError:
    return GraphflowError("the server stops; the input stays in the queue", code="stopping", retryAfterMs=1000)


def _fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `request.query` as this version knows them."""
    return {name: value for name, value in request.items() if name in RequestQuery.__struct_fields__}
