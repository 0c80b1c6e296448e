"""`PostgresCheckpointer`: the store for several hosts, one schema of a PostgreSQL database (spec 4.4, extra `postgres`).

Each event loop that uses the store has connections of its own: one that commits (`loop_writer.py`) and a few that read
and change (`pool.py`). What a lost connection leaves open is found out when the database is back. Any number of
processes and hosts may share the store; fences and leases keep them apart (E2).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, TypeVar

from graphflow.arguments import checked
from graphflow.checkpoints import errors
from graphflow.checkpoints.rows import (
    ENCRYPTION_NOTE,
    Lineage,
    ListedRecord,
    Log,
    Record,
    Stored,
    ThreadFacts,
    ThreadRow,
)
from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Durable

try:
    from psycopg import OperationalError
except ImportError as missing:  # pragma: no cover – the extra is not installed
    raise ImportError("PostgresCheckpointer needs psycopg 3: pip install 'graphflow[postgres]'") from missing

from graphflow.checkpoints.commit_queue import Promise
from graphflow.checkpoints.ids import check_text
from graphflow.checkpoints.postgres import checkpoint_reader
from graphflow.checkpoints.postgres.checkpoint_writer import PostgresEpoch
from graphflow.checkpoints.postgres.compaction import compact
from graphflow.checkpoints.postgres.dialect import POSTGRES
from graphflow.checkpoints.postgres.driver import drive
from graphflow.checkpoints.postgres.errors import closed, forked, store_error
from graphflow.checkpoints.postgres.loop_connections import LoopConnections, shut
from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.schema import migrate
from graphflow.checkpoints.postgres.take import take as take_thread
from graphflow.checkpoints.postgres.target import owner_lock, target_of
from graphflow.checkpoints.sql import changes, lists
from graphflow.checkpoints.sql.checkpointer import SqlCheckpointer
from graphflow.checkpoints.sql.statement import Work

T = TypeVar("T")
_CLOCK = Statement("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", "", "i")


class PostgresCheckpointer(SqlCheckpointer):
    """A `Checkpointer` in one schema of a PostgreSQL database (13 or newer); may be used from several event loops.

    Args:
        url: as libpq takes it: `postgresql://user@host/database?sslmode=…`, or `host=… dbname=…`. What it leaves out comes
            from libpq's environment (`PGPASSWORD`, `PGPASSFILE`, …). Its password appears in no message.
        schema: made at the first `setup` when missing; several stores may share a database.
        connections: of one event loop for reads and changes; one more commits.
        patience_s: how long commits, reads and changes wait for a database that is away before they fail. After the length
            of a lease (15 s) other processes may have taken the threads.
        synchronous_commit: PostgreSQL's setting for the store's sessions; by default that of the server, where `on` keeps
            every acknowledged commit through a crash.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        schema: str = "graphflow",
        connections: int = 4,
        patience_s: float = 15.0,
        synchronous_commit: Literal["on", "off", "local", "remote_write", "remote_apply"] | None = None,
    ) -> None:
        self._dialect = POSTGRES
        self._target = target_of(
            url, schema, connections=connections, patience_s=patience_s, synchronous_commit=synchronous_commit
        )
        self.name = self._target.name
        """Who, where, which; without the password."""
        self._owner_lock = owner_lock(self.name)
        self._opening = threading.Lock()
        self._per_loop: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._epochs: dict[str, PostgresEpoch] = {}
        self._broken: dict[str, int] = {}
        self._migrated = False
        self._closed = False
        self._encrypted = False
        weakref.finalize(self, shut, self._target, self._per_loop, self._owner_lock)

    def __repr__(self) -> str:
        return f"PostgresCheckpointer({self.name!r})"

    # --- opening and closing ---

    async def setup(self, *, encrypted: bool = False) -> None:
        """Opens the database and makes or migrates the schema; calling it again has no effect."""
        self._encrypted = self._encrypted or encrypted
        await self._here()

    async def _here(self) -> LoopConnections:
        """This event loop's connections."""
        connections = self._per_loop.get(asyncio.get_running_loop())
        if connections is None or not self._migrated or self._closed or self._owner_lock.forked:
            connections = await self._open()
        return connections

    async def _open(self) -> LoopConnections:
        self._check()
        connections = await self._loop_connections()
        if not self._migrated:
            try:
                await connections.pool.warm()
                await migrate(connections.pool, self._target)
                if not self._encrypted and await drive(connections.pool.ask, lists.note(ENCRYPTION_NOTE)) is not None:
                    raise errors.encrypted(self.name)
            except (OperationalError, OSError) as error:
                raise store_error(self.name, error, "opened") from error
            self._migrated = True
        return connections

    def _check(self) -> None:
        if self._owner_lock.forked:
            self._target.forked = True
            raise forked(self.name)
        if self._closed:
            raise closed(self.name)

    async def _loop_connections(self) -> LoopConnections:
        loop = asyncio.get_running_loop()
        with self._opening:
            # A loop that ended has no way to flush its queue: whoever comes next does it for that loop.
            dead = [self._per_loop.pop(other) for other in list(self._per_loop) if other.is_closed()]
            connections = self._per_loop.get(loop)
            if connections is None:
                connections = self._per_loop[loop] = LoopConnections(self._target, self._epochs, self._broken)
        for other in dead:  # what a loop that has ended left to do, and its connections
            other.writer.adopt()
            await other.writer.drain()
            spare = self._target.spare = self._target.spare or []
            other.writer.close(spare)
            other.pool.close(spare)
        return connections

    async def close(self) -> None:
        with self._opening:
            already, self._closed = self._closed, True
            per_loop = dict(self._per_loop)
            self._per_loop.clear()
        if self._owner_lock.forked or already:
            return
        here = asyncio.get_running_loop()
        for loop, connections in per_loop.items():
            if loop is not here and loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connections.close(), loop))
            else:
                if loop is not here:
                    connections.writer.adopt()
                await connections.close()
        self._target.closed = True
        for connection in self._target.spare or ():
            connection.close()
        self._owner_lock.release()

    async def flush(self) -> None:
        here = asyncio.get_running_loop()
        for loop, connections in list(self._per_loop.items()):
            if loop is here:
                await connections.writer.flush()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connections.writer.flush(), loop))

    async def _read(self, make: Callable[[], Work[T]]) -> T:
        return await (await self._here()).pool.read(lambda db: drive(db.run, make()))

    async def _ask(self, make: Callable[[], Work[T]]) -> T:
        return await drive((await self._here()).pool.ask, make())

    async def _change(self, make: Callable[[], Work[T]], *, forget: str | None = None) -> T:
        connections = await self._here()
        await connections.writer.flush()
        result = await connections.pool.write(lambda db: drive(db.run, make()))
        self._forget(forget)
        return result

    async def _do(self, make: Callable[[], Work[T]], *, forget: str | None = None) -> T:
        connections = await self._here()
        await connections.writer.flush()
        result = await drive(connections.pool.do, make())
        self._forget(forget)
        return result

    def _forget(self, thread_id: str | None) -> None:
        if thread_id is not None:
            self._epochs.pop(thread_id, None)

    async def compact(self) -> None:
        connections = await self._here()
        await connections.writer.flush()
        await compact(connections.pool, self._target)

    async def clock_ms(self) -> int:
        """The database's time, which is the same for every host."""
        [[(now,)]] = await (await self._here()).pool.ask(_CLOCK())
        return int(now)

    @contextlib.asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        async with (await self._here()).pool.alone(name) as mine:
            yield mine

    # --- taking a thread (E2) ---

    async def take(
        self, thread_id: str, *, owner: str, now: int, lease_ms: int, create: bool = True
    ) -> ThreadRow:  # fmt: skip
        connections = await self._here()
        if owner == self._owner_lock.id:
            self._owner_lock.acquire()
        # A task of its own, for when whoever waits is cancelled: the thread may be taken by now, or soon, and nobody would
        # drive it, yet its lease would be renewed.
        taking = asyncio.get_running_loop().create_task(
            self._take(connections, thread_id, owner, now, lease_ms, create=create)
        )
        connections.changes.add(taking)
        taking.add_done_callback(connections.changes.discard)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            giving = asyncio.get_running_loop().create_task(self._give_back(taking))
            connections.changes.add(giving)
            giving.add_done_callback(connections.changes.discard)
            raise

    async def _take(
        self, connections: LoopConnections, thread_id: str, owner: str, now: int, lease_ms: int, *, create: bool
    ) -> ThreadRow:  # fmt: skip
        await connections.writer.flush()
        row = await take_thread(
            connections.pool,
            thread_id,
            owner,
            now,
            now + lease_ms,
            create=create,
            is_dead=self._owner_lock.is_dead,
            token=uuid.uuid4().bytes,
        )
        self._epochs[thread_id] = PostgresEpoch(row.fence, row.head, row.lineage, row.ordinal)
        return row

    async def _give_back(self, taking: asyncio.Task[ThreadRow]) -> None:
        with contextlib.suppress(Exception):  # it took nothing: nothing to give back
            row = await taking
            await self.release(row.thread_id, row.fence)

    async def renew(self, owner: str, *, lease_until: int) -> None:
        if owner == self._owner_lock.id:
            self._owner_lock.touch()
        await drive((await self._here()).pool.do, changes.renew(owner, lease_until))

    # --- commits (E3) ---

    def commit(
        self,
        thread_id: str,
        fence: int,
        expected_head: str | None,
        records: Sequence[Record],
        *,
        facts: ThreadFacts,
        begins: Lineage | None = None,
        release: bool = False,
        consumes: int | None = None,
        awaited: bool = False,
    ) -> Durable:
        """As the port says.

        Args:
            awaited: the caller goes no further before this is durable, and calls `hurry` next.
        """
        loop = asyncio.get_running_loop()
        promise = Promise(loop, thread_id, fence, expected_head, records, facts, begins, release, consumes)
        connections = self._per_loop.get(loop)
        try:
            # Before it is queued: the writer reads unknown threads' heads for a whole batch, which this would fail.
            check_text(thread_id)
            if connections is not None and not self._closed and not self._owner_lock.forked:
                connections.writer.put(promise)
                return promise
            self._check()
        except StoreError as error:
            promise.error, promise.done = error, True
            return promise
        raise StoreError(
            f"the store {self.name} is not open on this event loop: take the thread before committing to it"
        )

    def hurry(self) -> None:
        """Waits for what was committed last in the caller's thread, where nobody else has to wait for that."""
        connections = self._per_loop.get(asyncio.get_running_loop())
        if connections is not None:
            connections.writer.hurry()

    # --- reading ---

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        return await (await self._here()).pool.read(lambda db: checkpoint_reader.load(db, thread_id, checkpoint_id))

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        return await (await self._here()).pool.read(lambda db: checkpoint_reader.read_logs(db, chain, logs))

    async def list_checkpoints(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        return await (await self._here()).pool.read(
            lambda db: checkpoint_reader.list_records(db, thread_id, before, limit, all_lineages=all_lineages)
        )
