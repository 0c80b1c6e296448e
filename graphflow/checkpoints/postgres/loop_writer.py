"""The PostgreSQL store's one writer per event loop: queued commits of many threads as few round trips.

A commit that finds the writer idle is sent at once, from the call itself; what comes while it is under way goes together as
the next transaction (group commit). Nothing hops between threads, so a lone commit costs what the database costs. The
rest of this file is for bad days: a refused transaction is done again commit by commit, so that only the guilty one
fails, and after a lost connection the store first finds out what of it is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from psycopg import OperationalError

from graphflow.checkpoints import errors
from graphflow.checkpoints.commit_queue import Promise, fail
from graphflow.checkpoints.postgres.checkpoint_reader import READ_THREAD
from graphflow.checkpoints.postgres.checkpoint_writer import (
    OUTCOME,
    PostgresEpoch,
    RecordRun,
    accept,
    calls_of,
    facts_kept,
    is_not_moved,
    refusal,
    weight,
)
from graphflow.checkpoints.postgres.errors import PASSING, store_error
from graphflow.checkpoints.postgres.pipeline import Call, Connection, ConnectionLost, PostgresError
from graphflow.checkpoints.postgres.pool import Patience, Target
from graphflow.checkpoints.rows import ThreadRow
from graphflow.checkpoints.sql.rows import thread_row
from graphflow.errors import Fenced, StoreError

MAX_COMMITS = 512
MAX_BYTES = 4 << 20
"""Of one transaction: they bound how long the first of its commits waits."""
MAX_WAIT_S = 0.001
"""For longer the loop does not stand still for a commit (`hurry`); it is then not tried for a while."""
RETRY_AFTER_COMMITS = 100


class PostgresWriter:
    """The commits of one event loop, in order.

    Args:
        epochs: what the store knows of the threads that it drives; shared by its writers.
        broken: thread → fence of which a commit failed, so that every later one does; shared too.
    """

    def __init__(self, target: Target, epochs: dict[str, PostgresEpoch], broken: dict[str, int]) -> None:
        self._target = target
        self._epochs = epochs
        self._broken = broken
        self._queue: deque[Promise] = deque()
        self._batch: list[Promise] = []
        """What is under way."""
        self._breaking: dict[str, int] = {}
        """What `broken` gets when the batch under way has landed."""
        self._fenced_epochs: dict[tuple[str, int], StoreError] = {}
        """Epochs that are not the thread's any more, and why, for the commits that wait in the queue."""
        self._uncertain: set[Promise] = set()
        """Sent once by a connection that was lost: perhaps they are there, or come to be there yet."""
        self._landings: list[asyncio.Future[None]] = []
        """Who waits for the batch under way."""
        self._not_hurried = 0
        """So many commits more are not hurried."""
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return bool(self._batch) or self._task is not None

    def put(self, promise: Promise) -> None:
        self._queue.append(promise)
        # An idle writer sends from the call itself: no hop to a task, and a lone step costs one round trip.
        if not self._batch and self._task is None:
            self._pump()

    async def flush(self) -> None:
        """Returns when everything queued before is durable or has failed."""
        last = self._queue[-1] if self._queue else self._batch[-1] if self._batch else None
        while last is not None and not last.done:
            landing = asyncio.get_running_loop().create_future()
            self._landings.append(landing)
            await landing

    def hurry(self) -> None:
        """Waits for the batch under way without turning the loop, if one run alone is at work and the loop has nothing else to
        run: else it would go to sleep and be woken for nothing but this. Not where answers take long.
        """
        if self._not_hurried:
            self._not_hurried -= 1
            return
        ready = getattr(asyncio.get_running_loop(), "_ready", None)  # uvloop does not tell
        # Anything else that could run would stand still meanwhile.
        if ready is None or ready or len(self._epochs) > 1 or len(self._batch) != 1 or self._queue:
            return
        connection = self._connection
        if connection is not None and self._task is None and connection.busy and not connection.wait_here(MAX_WAIT_S):
            self._not_hurried = RETRY_AFTER_COMMITS

    # --- the way of every day

    def _pump(self) -> None:
        """Sends the next batch, or sees to it that it can be sent."""
        if not self._queue:
            return
        batch = self._batch = self._next()
        connection = self._connection
        if connection is None or connection.lost or not self._knows(batch):
            self._start(self._look)
            return
        try:
            calls = self._calls(batch)
        except Exception:  # noqa: BLE001 – one of them can't be written down: which, the slow way finds out
            self._start(self._one_by_one)
            return
        if calls:
            connection.send(calls, self._landed)
        else:
            asyncio.get_running_loop().call_soon(self._landed, [], None)

    def _next(self) -> list[Promise]:
        queue = self._queue
        if len(queue) == 1:
            return [queue.popleft()]
        batch: list[Promise] = []
        size = 0
        while queue and len(batch) < MAX_COMMITS and size < MAX_BYTES:
            batch.append(queue.popleft())
            size += weight(batch[-1])
        return batch

    def _knows(self, batch: Iterable[Promise]) -> bool:
        epochs = self._epochs
        for promise in batch:
            epoch = epochs.get(promise.thread_id)
            if (epoch is None or epoch.fence != promise.fence) and not self._is_broken(promise):
                if (promise.thread_id, promise.fence) not in self._fenced_epochs:
                    return False
        return True

    def _is_broken(self, promise: Promise) -> bool:
        return promise.fence in (self._broken.get(promise.thread_id), self._breaking.get(promise.thread_id))

    def _calls(self, batch: Sequence[Promise]) -> list[Call]:
        """The statements of what passes; the others carry their error."""
        calls: list[Call] = []
        runs: dict[str, tuple[RecordRun, PostgresEpoch]] = {}
        for promise in batch:
            thread_id = promise.thread_id
            promise.error = self._stop(promise)
            if promise.error is not None:
                self._breaking[thread_id] = promise.fence
                continue
            epoch = self._epochs[thread_id]
            before = epoch.head
            known = runs.get(thread_id)
            # As in SQLite: only the first commit of a run may begin a lineage.
            if known is not None and (promise.begins is not None or known[1] is not epoch):
                calls += calls_of(*runs.pop(thread_id))
                known = None
            promise.error = accept(epoch, promise)
            if promise.error is not None:
                self._breaking[thread_id] = promise.fence
                continue
            if known is None:
                known = runs[thread_id] = (RecordRun(before), epoch)
            known[0].promises.append(promise)
        for thread_id in sorted(runs):  # the same order in every process, so that they don't block each other
            calls += calls_of(*runs[thread_id])
        return calls

    def _stop(self, promise: Promise) -> StoreError | None:
        """Why a commit can't pass, as far as its epoch tells."""
        thread_id, fence = promise.thread_id, promise.fence
        if self._is_broken(promise):
            return errors.fenced_earlier(thread_id, fence)
        epoch = self._epochs.get(thread_id)
        if epoch is None or epoch.fence != fence:
            return self._fenced_epochs[thread_id, fence]
        return None

    def _landed(self, results: list[Any] | None, error: Exception | None) -> None:
        batch = self._batch
        if error is not None:
            # A refused transaction has done nothing; one whose answer was lost may have done everything.
            self._start(self._find_out if isinstance(error, ConnectionLost) else self._one_by_one)
            return
        self._confirm(batch)
        self._batch = []
        if self._queue:
            self._pump()  # first of all the next round trip
        self._settle(batch)

    def _confirm(self, batch: Iterable[Promise]) -> None:
        if self._breaking:
            self._broken.update(self._breaking)
            self._breaking.clear()
        if self._uncertain:
            self._uncertain.difference_update(batch)
        for promise in batch:
            if promise.release or promise.error is not None:
                self._epochs.pop(promise.thread_id, None)

    def _settle(self, promises: Sequence[Promise]) -> None:
        for promise in promises:  # first all, so that whoever hears of one can go on with the others
            promise.done = True
        loop = asyncio.get_running_loop()
        for promise in promises:
            if promise.loop is loop:
                promise.settle()
            elif not promise.loop.is_closed():  # else nobody waits there, but somebody may still look
                promise.loop.call_soon_threadsafe(promise.settle)
        if self._landings:
            landings, self._landings = self._landings, []
            for landing in landings:
                if not landing.done():
                    landing.set_result(None)

    # --- bad days

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._worked(work))

    async def _worked(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does the work for the batch under way; what it leaves in the batch is queued again."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 – patience has ended: so it has for all that wait behind
            waiting = [*self._batch, *self._queue]
            self._queue.clear()
            self._batch = []
            self._refuse(waiting, store_error(self._target.name, error, "written"))
        finally:
            self._breaking.clear()
            self._queue.extendleft(reversed(self._batch))
            self._batch = []
            self._task = None
        if not self._queue:
            self._fenced_epochs.clear()
        self._pump()

    def _refuse(self, promises: Sequence[Promise], error: StoreError) -> None:
        for promise in promises:
            self._broken[promise.thread_id] = promise.fence
            self._epochs.pop(promise.thread_id, None)
        self._uncertain.difference_update(promises)
        fail(promises, error)
        self._settle(promises)

    async def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or connection.lost:
            self._target.check()
            connection = self._connection = await self._target.connect()
        return connection

    async def _patiently(self, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        patience = Patience(self._target)
        while True:
            try:
                await work(await self._connected())
            except (ConnectionLost, OperationalError, PostgresError) as error:
                await patience.after(error, "written")
            else:
                return

    async def _look(self) -> None:
        """A connection, and the heads of those threads of the batch that the store does not know."""

        async def work(connection: Connection) -> None:
            missing = [promise for promise in self._batch if not self._knows([promise])]
            first = {(promise.thread_id, promise.fence): promise for promise in missing}
            names = list(dict.fromkeys(promise.thread_id for promise in first.values()))
            found = await connection.run(*[READ_THREAD(name) for name in names])
            rows = {name: thread_row(row[0]) for name, row in zip(names, found, strict=True) if row}
            for promise in first.values():
                self._learn(promise, rows.get(promise.thread_id))

        await self._patiently(work)

    def _learn(self, promise: Promise, row: ThreadRow | None) -> StoreError | None:
        """Remembers the epoch, or why it is over."""
        thread_id, fence = promise.thread_id, promise.fence
        reason = _why_fenced(promise, row)
        if reason is not None:
            self._fenced_epochs[thread_id, fence] = reason
            return reason
        assert row is not None
        self._epochs[thread_id] = PostgresEpoch(fence, row.head, row.lineage, row.ordinal)
        return None

    async def _find_out(self) -> None:
        """After a lost connection: the batch was one transaction, so it is there as a whole or not at all."""
        batch = list(self._batch)
        for promise in batch:
            self._epochs.pop(promise.thread_id, None)
        # One record is enough to tell, for all of the batch is one transaction.
        sent = [promise for promise in batch if promise.error is None]
        telling = [promise for promise in sent if promise.records][-1:]
        self._uncertain.update(sent)
        found = False

        async def work(connection: Connection) -> None:
            nonlocal found
            found = bool(telling) and await _is_there(connection, telling[0])

        await self._patiently(work)
        if found:
            self._confirm(batch)
            self._batch = []
            self._settle(batch)
        else:  # yet: the server may not have noticed, and do it while we look; the slow way minds that
            await self._one_by_one()

    async def _one_by_one(self) -> None:
        """Each commit of the batch as a transaction of its own."""
        batch = list(self._batch)
        self._breaking.clear()
        for promise in batch:
            self._epochs.pop(promise.thread_id, None)
        for promise in batch:
            promise.error = None
            promise.error = await self._alone(promise)
            del self._batch[0]
            if promise.error is not None:
                self._broken[promise.thread_id] = promise.fence
            self._confirm([promise])
            self._settle([promise])

    async def _alone(self, promise: Promise) -> StoreError | None:
        """Why the commit failed; None when it is durable.

        Raises:
            StoreError: the database can't be reached.
        """
        patience = Patience(self._target)
        while True:
            try:
                reason = await self._once(promise)
                if reason is None:
                    return None
                self._epochs.pop(promise.thread_id, None)
                if promise in self._uncertain and await _is_there(await self._connected(), promise):
                    return None  # the lost connection has done it meanwhile, and that was the reason
            except (ConnectionLost, OperationalError) as error:
                self._uncertain.add(promise)
                self._epochs.pop(promise.thread_id, None)
                await patience.after(error, "written")
            except PostgresError as error:
                self._epochs.pop(promise.thread_id, None)
                try:
                    await patience.after(error, "written")
                except StoreError as final:
                    return final
            else:
                return reason

    async def _once(self, promise: Promise) -> StoreError | None:
        """One try; why it can't pass.

        Raises:
            PostgresError: for a passing reason.
            ConnectionLost, OperationalError: the connection is gone.
        """
        if self._is_broken(promise):
            return errors.fenced_earlier(promise.thread_id, promise.fence)
        connection = await self._connected()
        if promise in self._uncertain and await _is_there(connection, promise):
            return None
        epoch = self._epochs.get(promise.thread_id)
        if epoch is None or epoch.fence != promise.fence:
            reason = self._learn(promise, await _row(connection, promise))
            if reason is not None:
                return reason
            epoch = self._epochs[promise.thread_id]
        run = RecordRun(epoch.head)
        run.promises.append(promise)
        try:
            reason = accept(epoch, promise)
            if reason is not None:
                return reason
            await connection.run(*calls_of(run, epoch))
        except (ConnectionLost, OperationalError):
            raise
        except PostgresError as error:
            if error.state in PASSING:
                raise
            # The head is compared by the database and not by what is remembered here, so this is the fence of E2.
            if is_not_moved(error):
                row = await _row(connection, promise)
                head = row.head if row else None
                return _why_fenced(promise, row) or errors.fenced_head(promise.thread_id, promise.expected_head, head)
            return refusal(error, promise) or store_error(self._target.name, error, "written")
        except Exception as error:  # noqa: BLE001 – what can't be written down is this commit's error alone
            return store_error(self._target.name, error, "written")
        return None

    # --- the end

    def adopt(self) -> None:
        """Goes on on the running loop with what one that is closed or blocked left."""
        task, self._task = self._task, None
        if task is not None and not task.get_loop().is_closed():
            task.cancel()
        self._landings.clear()
        loop = asyncio.get_running_loop()
        if self._batch and self._connection is not None and self._connection.busy:
            self._connection.adopt(loop)
        elif self._batch:
            self._queue.extendleft(reversed(self._batch))
            self._batch = []
        if not self._batch:
            self._pump()

    async def drain(self) -> None:
        """Returns when nothing is queued."""
        while self._queue or self.busy:
            if self._queue or self._batch:
                await self.flush()
            if self._task is not None:
                await asyncio.wait([self._task])

    def close(self, spare: list[Connection] | None = None) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if spare is None or connection.busy or connection.lost:
            connection.close()
        else:
            connection.leave()
            spare.append(connection)


async def _row(connection: Connection, promise: Promise) -> ThreadRow | None:
    rows = await connection.rows(READ_THREAD(promise.thread_id))
    return thread_row(rows[0]) if rows else None


def _why_fenced(promise: Promise, row: ThreadRow | None) -> Fenced | None:
    """Why the thread is no longer this epoch's; None when it is."""
    thread_id, fence = promise.thread_id, promise.fence
    if row is None:
        return errors.fenced_gone(thread_id, fence)
    if row.fence != fence:
        return errors.fenced_epoch(thread_id, fence, row.fence)
    if row.owner is None:
        return errors.fenced_released(thread_id, fence)
    return None


async def _is_there(connection: Connection, promise: Promise) -> bool:
    """Whether a commit whose answer was lost was done."""
    if promise.records:
        last = promise.records[-1]
        return await connection.rows(OUTCOME(last.lineage, last.ordinal)) == [(last.id,)]
    row = await _row(connection, promise)
    if row is None or row.fence < promise.fence or row.facts != facts_kept(promise.facts, row.facts):
        return False
    return row.fence > promise.fence or not promise.release or row.owner is None
