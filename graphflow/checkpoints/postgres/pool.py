"""The PostgreSQL store's connections for one event loop, and how it goes on when one of them is lost.

Reads and changes borrow a connection from a small pool; commits have one of their own (`loop_writer.py`). Work that
failed for a passing reason is done again until the store's patience ends, so it has to be such that twice is the same as
once: reads are, single statements have to be, and for a transaction whose COMMIT got no answer the database is asked what
became of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import OperationalError

from graphflow.checkpoints.postgres import stopped_clients
from graphflow.checkpoints.postgres.errors import PASSING, closed, forked, store_error, unreachable
from graphflow.checkpoints.postgres.pipeline import Call, Connection, ConnectionLost, PostgresError, Statement, connect

T = TypeVar("T")

_BEGIN_READING = Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_BEGIN_WRITING = Statement("BEGIN ISOLATION LEVEL READ COMMITTED")
# What takes long where there is much: reading holds no locks, and changes of whole threads are rare.
_LIMITS = {
    _BEGIN_READING: Statement("SET LOCAL transaction_timeout = 0"),
    _BEGIN_WRITING: Statement("SET LOCAL transaction_timeout = '30min'"),
}
COMMIT = Statement("COMMIT")
_TRY_LOCK = Statement("SELECT pg_try_advisory_xact_lock(hashtextextended('graphflow ' || $1 || ' @', 0))", "t", "b")
_WHICH = Statement("SELECT pg_current_xact_id_if_assigned()::text", "", "t")
_WHAT_BECAME = Statement("SELECT pg_xact_status($1::text::xid8)", "t", "t")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0


@dataclass(kw_only=True)
class Target:
    """Where the store is, and what all its event loops share."""

    conninfo: str
    schema: str
    """Quoted, for SQL."""
    name: str
    """For messages: without the password."""
    patience_s: float
    connections: int
    """Of one event loop for reads and changes."""
    closed: bool = False
    forked: bool = False
    spare: list[Connection] | None = None
    """Idle connections of event loops that have ended."""

    def check(self) -> None:
        """Raises `StoreError` when the store must not be used any more."""
        if self.forked:
            raise forked(self.name)
        if self.closed:
            raise closed(self.name)

    async def connect(self) -> Connection:
        while self.spare:
            connection = self.spare.pop()
            if not connection.lost:
                return connection
        return await connect(self.conninfo, self.schema)


class Patience:
    """Tries again after passing failures, at longer and longer intervals, until the store's patience ends."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    async def after(self, error: Exception, doing: str) -> None:
        """Returns when it is time for the next try.

        Raises:
            StoreError: there will be none.
        """
        passing = isinstance(error, ConnectionLost | OperationalError)
        if not passing and not (isinstance(error, PostgresError) and error.state in PASSING):
            raise store_error(self._target.name, error, doing) from error
        self._target.check()
        now = asyncio.get_running_loop().time()
        self._since = self._since if self._since is not None else now
        if now - self._since >= self._target.patience_s:
            if passing:
                raise unreachable(self._target.name, error, now - self._since) from error
            raise store_error(self._target.name, error, doing) from error
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 – spreads the clients of one database
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


class Transaction:
    """Statements that see one moment (reading) or are kept together (writing)."""

    def __init__(self, connection: Connection, begin: Statement) -> None:
        self._connection = connection
        self._begin: Statement | None = begin
        self._writes = begin is _BEGIN_WRITING
        self.number: str | None = None
        """The database's own, once something was written."""

    async def run(self, *calls: Call) -> list[list[tuple[Any, ...]]]:
        """The rows of each statement; they go together, so this is one round trip."""
        begin, self._begin = self._begin, None
        before = [] if begin is None else [begin()]
        if begin is not None and self._connection.is_limited:
            before.append(_LIMITS[begin]())
        # The number of the transaction comes with the answer, so that a lost COMMIT can be asked for by it.
        after = [_WHICH()] if self._writes else []
        results = await self._connection.run(*before, *calls, *after)
        if after:
            self.number = results.pop()[0][0]
        return results[len(before) :]

    async def rows(self, call: Call) -> list[tuple[Any, ...]]:
        return (await self.run(call))[0]

    async def row(self, call: Call) -> tuple[Any, ...] | None:
        """The first row, or None."""
        rows = await self.rows(call)
        return rows[0] if rows else None

    @property
    def begun(self) -> bool:
        return self._begin is None


Work = Callable[[Transaction], Awaitable[T]]


class Pool:
    """Connections of one event loop."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(target.connections)

    async def warm(self) -> None:
        """Opens the first connection; a database that can't be reached is told at once.

        Raises:
            OperationalError: of psycopg.
        """
        if not self._idle:
            self._idle.append(await self._target.connect())

    async def read(self, work: Work[T]) -> T:
        """The result of a function that reads: all its statements see one moment."""
        return await self._retried(work, _BEGIN_READING, "read")

    async def write(self, work: Work[T]) -> T:
        """The result of a function that ran in one transaction, durably; called again after a passing failure."""
        return await self._retried(work, _BEGIN_WRITING, "written")

    async def ask(self, *calls: Call) -> list[list[tuple[Any, ...]]]:
        """The rows of statements that only read, in one round trip."""
        return await self.do(*calls, doing="read")

    async def do(self, *calls: Call, doing: str = "written") -> list[list[tuple[Any, ...]]]:
        """The rows of statements that are one transaction in one round trip; sent again after a passing failure."""

        async def work(connection: Connection) -> list[list[tuple[Any, ...]]]:
            return await connection.run(*calls)

        return await self._patiently(work, doing)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Whether this block has the advisory lock of this name; it goes with the session, which does not outlive a pause."""
        connection = await self._get()
        try:
            yield (await connection.run(_BEGIN_WRITING(), _TRY_LOCK(name)))[1][0][0]
        finally:
            if not connection.busy and not connection.lost:
                connection.send_off(b"COMMIT")
            self._put(connection)

    async def _retried(self, work: Work[T], begin: Statement, doing: str) -> T:
        async def whole(connection: Connection) -> T:
            transaction = Transaction(connection, begin)
            try:
                result = await work(transaction)
            except BaseException:  # whatever broke it off: the next who borrows the connection begins anew
                if transaction.begun and not connection.busy and not connection.lost:
                    connection.send_off(b"ROLLBACK")
                raise
            # Nobody waits for the end of a transaction that only read; the next statement may follow it at once.
            if transaction.begun and begin is _BEGIN_READING:
                connection.send_off(b"COMMIT")
            elif transaction.begun:
                try:
                    await connection.run(COMMIT())
                except ConnectionLost:
                    if transaction.number is None or not await self._was_committed(transaction.number):
                        raise
            return result

        return await self._patiently(whole, doing)

    async def _was_committed(self, number: str) -> bool:
        patience = Patience(self._target)
        while True:
            try:
                became = (await self._once(lambda connection: connection.rows(_WHAT_BECAME(number))))[0][0]
                if became != "in progress":  # the server may not have noticed yet that we are gone
                    return bool(became == "committed")
                raise ConnectionLost("the transaction is still in progress")
            except (ConnectionLost, OperationalError, PostgresError) as error:
                await patience.after(error, "written")

    async def _patiently(self, work: Callable[[Connection], Awaitable[T]], doing: str) -> T:
        patience = Patience(self._target)
        async with self._room:
            while True:
                self._target.check()
                try:
                    return await self._once(work)
                except (ConnectionLost, OperationalError, PostgresError) as error:
                    await patience.after(error, doing)

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        connection = await self._get()
        freeing: list[asyncio.Task[None]] = []
        watch: asyncio.TimerHandle | None = None
        if not connection.is_limited:
            loop = asyncio.get_running_loop()
            watch = loop.call_later(
                stopped_clients.LOOK_S,
                lambda: freeing.append(loop.create_task(stopped_clients.end_stopped_clients(self._target.connect))),
            )
        try:
            return await work(connection)
        finally:
            self._put(connection)
            if watch is not None:
                watch.cancel()
            for task in freeing:
                task.cancel()

    def _put(self, connection: Connection) -> None:
        if connection.busy:  # whoever waited was cancelled
            connection.close()
        elif not connection.lost:
            self._idle.append(connection)

    async def _get(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                return connection
        return await self._target.connect()

    def close(self, spare: list[Connection] | None = None) -> None:
        """Closes what is idle, or gives it to another loop."""
        idle, self._idle = self._idle, []
        for connection in idle:
            if spare is None or connection.busy or connection.lost:
                connection.close()
            else:
                connection.leave()
                spare.append(connection)
