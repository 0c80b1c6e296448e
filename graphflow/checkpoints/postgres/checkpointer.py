"""`PostgresCheckpointer`: the store for several hosts, one schema of a PostgreSQL database (spec 4.4, extra `postgres`).

Each event loop that uses the store has connections of its own: one that commits (`_postgres_writer`) and a few that read
and change (`_postgres_pool`). What a lost connection leaves open is found out when the database is back. Any number of
processes and hosts may share the store; fences and leases keep them apart (E2).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from graphflow.checkpoints import errors as refusals
from graphflow.checkpoints import export, pruning
from graphflow.checkpoints.rows import (
    SEAL,
    Keep,
    Lineage,
    ListedRecord,
    Log,
    OpenInterrupt,
    Pruned,
    Queued,
    Record,
    Rewrite,
    Span,
    Spent,
    Stored,
    ThreadFacts,
    ThreadRow,
    parse_cursor,
)
from graphflow.errors import StoreError
from graphflow.graph.engine.ports import Durable

try:
    from psycopg import OperationalError
except ImportError as missing:  # pragma: no cover – the extra is not installed
    raise ImportError("PostgresCheckpointer needs psycopg 3: pip install 'graphflow[postgres]'") from missing

from graphflow.checkpoints.commit_queue import Promise
from graphflow.checkpoints.postgres import changes, lists, reader, rewriting
from graphflow.checkpoints.postgres import pruning as rows_off
from graphflow.checkpoints.postgres.commits import Life
from graphflow.checkpoints.postgres.errors import closed, forked, store_error
from graphflow.checkpoints.postgres.loop_connections import Side, shut
from graphflow.checkpoints.postgres.pipeline import Statement
from graphflow.checkpoints.postgres.pool import Pool, Transaction
from graphflow.checkpoints.postgres.rows import READ_NOTE, READ_THREAD, interrupt_row, thread_row
from graphflow.checkpoints.postgres.schema import migrate
from graphflow.checkpoints.postgres.target import owner_lock, target_of

T = TypeVar("T")


class PostgresCheckpointer:
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

    def __init__(
        self,
        url: str,
        *,
        schema: str = "graphflow",
        connections: int = 4,
        patience_s: float = 15.0,
        synchronous_commit: Literal["on", "off", "local", "remote_write", "remote_apply"] | None = None,
    ) -> None:
        self._target = target_of(
            url, schema, connections=connections, patience_s=patience_s, synchronous_commit=synchronous_commit
        )
        self.name = self._target.name
        """Who, where, which; without the password."""
        self._owner_lock = owner_lock(self.name)
        self._opening = threading.Lock()
        self._sides: dict[asyncio.AbstractEventLoop, Side] = {}
        self._lives: dict[str, Life] = {}
        self._broken: dict[str, int] = {}
        self._migrated = False
        self._closed = False
        self._sealed = False
        weakref.finalize(self, shut, self._target, self._sides, self._owner_lock)

    def __repr__(self) -> str:
        return f"PostgresCheckpointer({self.name!r})"

    @property
    def owner(self) -> str:
        """`host/boot id/uuid` of this object; its OS lock is taken with the first thread and lasts until `close`."""
        return self._owner_lock.id

    def is_dead(self, owner: str) -> bool:
        """Whether this owner's process is surely gone; False when that can't be known, as of another host."""
        return self._owner_lock.is_dead(owner)

    # --- opening and closing ---

    async def setup(self, *, sealed: bool = False) -> None:
        """Opens the database and makes or migrates the schema; the second time is no effect."""
        self._sealed = self._sealed or sealed
        await self._here()

    async def _here(self) -> Side:
        """This event loop's connections."""
        side = self._sides.get(asyncio.get_running_loop())
        if side is None or not self._migrated or self._closed or self._owner_lock.forked:
            side = await self._open()
        return side

    async def _open(self) -> Side:
        self._check()
        side = await self._side()
        if not self._migrated:
            try:
                await side.pool.warm()
                await migrate(side.pool, self._target)
                if not self._sealed and await side.pool.rows(READ_NOTE(SEAL)):
                    raise refusals.sealed(self.name)
            except (OperationalError, OSError) as error:
                raise store_error(self.name, error, "opened") from error
            self._migrated = True
        return side

    def _check(self) -> None:
        if self._owner_lock.forked:
            self._target.forked = True
            raise forked(self.name)
        if self._closed:
            raise closed(self.name)

    async def _side(self) -> Side:
        loop = asyncio.get_running_loop()
        with self._opening:
            dead = [self._sides.pop(other) for other in list(self._sides) if other.is_closed()]
            side = self._sides.get(loop)
            if side is None:
                side = self._sides[loop] = Side(self._target, self._lives, self._broken)
        for other in dead:  # what a loop that has ended left to do, and its connections
            other.writer.adopt()
            await other.writer.drain()
            spare = self._target.spare = self._target.spare or []
            other.writer.close(spare)
            other.pool.close(spare)
        return side

    async def close(self) -> None:
        with self._opening:
            already, self._closed = self._closed, True
            sides = dict(self._sides)
            self._sides.clear()
        if self._owner_lock.forked or already:
            return
        here = asyncio.get_running_loop()
        for loop, side in sides.items():
            if loop is not here and loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(side.close(), loop))
            else:
                if loop is not here:
                    side.writer.adopt()
                await side.close()
        self._target.closed = True
        for connection in self._target.spare or ():
            connection.close()
        self._owner_lock.release()

    async def flush(self) -> None:
        here = asyncio.get_running_loop()
        for loop, side in list(self._sides.items()):
            if loop is here:
                await side.writer.flush()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(side.writer.flush(), loop))

    async def _read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await (await self._here()).pool.read(work)

    async def _change(self, work: Callable[[Pool], Awaitable[T]]) -> T:
        """The result of a change, which comes after the commits that were queued before it."""
        side = await self._here()
        await side.writer.flush()
        return await work(side.pool)

    async def _rows(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        return await (await self._here()).pool.rows(statement(*values))

    # --- taking a thread (E2) ---

    async def take(
        self, thread_id: str, *, owner: str, now: int, lease_ms: int, create: bool = True
    ) -> ThreadRow:  # fmt: skip
        side = await self._here()
        if owner == self._owner_lock.id:
            self._owner_lock.acquire()
        # A task of its own, for when whoever waits is cancelled: the thread may be taken by now, or soon, and nobody would
        # drive it, yet its lease would be renewed.
        taking = asyncio.get_running_loop().create_task(
            self._take(side, thread_id, owner, now, lease_ms, create=create)
        )
        side.changes.add(taking)
        taking.add_done_callback(side.changes.discard)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            giving = asyncio.get_running_loop().create_task(self._give_back(taking))
            side.changes.add(giving)
            giving.add_done_callback(side.changes.discard)
            raise

    async def _take(
        self, side: Side, thread_id: str, owner: str, now: int, lease_ms: int, *, create: bool
    ) -> ThreadRow:  # fmt: skip
        await side.writer.flush()
        row = await changes.take(
            side.pool,
            thread_id,
            owner,
            now,
            now + lease_ms,
            create=create,
            is_dead=self._owner_lock.is_dead,
            token=uuid.uuid4().bytes,
        )
        self._lives[thread_id] = Life(row.fence, row.head, row.lineage, row.ordinal)
        return row

    async def _give_back(self, taking: asyncio.Task[ThreadRow]) -> None:
        with contextlib.suppress(Exception):  # it took nothing: nothing to give back
            row = await taking
            await self.release(row.thread_id, row.fence)

    async def assign(self, thread_id: str, user: str, *, now: int) -> str | None:
        return await self._change(lambda pool: changes.assign(pool, thread_id, user, now))

    async def renew(self, owner: str, *, lease_until: int) -> None:
        if owner == self._owner_lock.id:
            self._owner_lock.touch()
        await changes.renew((await self._here()).pool, owner, lease_until)

    async def release(self, thread_id: str, fence: int) -> None:
        await self._change(lambda pool: changes.release(pool, thread_id, fence))
        self._lives.pop(thread_id, None)

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
        side = self._sides.get(loop)
        if side is not None and not self._closed and not self._owner_lock.forked:
            side.writer.put(promise)
            return promise
        try:
            self._check()
        except StoreError as error:
            promise.error, promise.done = error, True
            return promise
        raise StoreError(
            f"the store {self.name} is not open on this event loop: take the thread before committing to it"
        )

    def hurry(self) -> None:
        """Waits for what was committed last in the caller's thread, where nobody else has to wait for that."""
        side = self._sides.get(asyncio.get_running_loop())
        if side is not None:
            side.writer.hurry()

    # --- reading ---

    async def thread(self, thread_id: str) -> ThreadRow | None:
        rows = await self._rows(READ_THREAD, thread_id)
        return thread_row(rows[0]) if rows else None

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Stored | None:
        return await self._read(lambda db: reader.load(db, thread_id, checkpoint_id))

    async def read_items(
        self, chain: Sequence[tuple[int, int]], frame: int, channel: str, count: int, *, start: int = 0
    ) -> list[bytes]:
        return (await self.read_logs(chain, [Log(frame, channel, count, start)]))[0]

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        return await self._read(lambda db: reader.read_logs(db, chain, logs))

    async def list_checkpoints(
        self, thread_id: str, *, before: str | None = None, limit: int | None = None, all_lineages: bool = False
    ) -> list[ListedRecord]:
        return await self._read(
            lambda db: reader.list_records(db, thread_id, before, limit, all_lineages=all_lineages)
        )  # fmt: skip

    async def read_records(
        self, thread_id: str, *, lineage: int, after: int, upto: int
    ) -> list[Record]:  # fmt: skip
        return await self._read(lambda db: reader.read_records(db, thread_id, lineage, after, upto))

    async def read_effects(self, thread_id: str, spans: Sequence[Span]) -> list[Record]:
        return await self._read(lambda db: reader.read_effects(db, thread_id, spans))

    async def spent(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        agent_key: str | None = None,
        thread_id: str | None = None,
    ) -> list[Spent]:
        return await self._read(lambda db: reader.read_spent(db, since, until, agent_key, thread_id))

    async def threads(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
    ) -> list[ThreadRow]:
        rows = await self._rows(lists.THREADS, status, agent_key, cursor, limit, user)
        if not rows and cursor is not None and await self.thread(cursor) is None:
            raise refusals.unknown_thread(cursor)
        return [thread_row(row) for row in rows]

    async def open_interrupts(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        role: str | None = None,
        agent_key: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> list[OpenInterrupt]:
        at, interrupt_id = (None, None) if cursor is None else parse_cursor(cursor)
        statement = lists.OPEN if thread_id is None else lists.OPEN_OF_THREAD
        rows = await self._rows(statement, thread_id, owner, role, agent_key, at, interrupt_id, limit, user)
        return [interrupt_row(row) for row in rows]

    async def due(self, before: int) -> list[OpenInterrupt]:
        return [interrupt_row(row) for row in await self._rows(lists.DUE, before)]

    async def find_run(self, run_id: str) -> str | None:
        rows = await self._rows(lists.RUN, run_id)
        return rows[0][0] if rows else None

    async def document(self, digest: str) -> bytes | None:
        rows = await self._rows(lists.DOCUMENT, digest)
        return rows[0][0] if rows else None

    async def queued(self, thread_id: str) -> tuple[int, bytes] | None:
        entries = await self.queue(thread_id, kind="input", limit=1)
        return (entries[0].position, entries[0].body) if entries else None

    async def queue(
        self, thread_id: str | None = None, *, kind: str | None = None, owner: str | None = None, limit: int = 100
    ) -> list[Queued]:
        rows = await self._rows(lists.QUEUE, thread_id, kind, owner, limit)
        return [Queued(thread_id=name, position=n, kind=k, body=body, at=at) for name, n, k, body, at in rows]

    async def queues(self, now: int) -> list[str]:
        rows = await self._rows(lists.QUEUES)
        return [name for name, owner, until in rows if owner is None or until <= now or self.is_dead(owner)]

    # --- forks, deletion, documents, queue ---

    async def fork(
        self, checkpoint_id: str, source_id: str, thread_id: str, *, number: int, facts: ThreadFacts
    ) -> ThreadRow:  # fmt: skip
        return await self._change(
            lambda pool: pool.write(lambda db: changes.fork(db, checkpoint_id, source_id, thread_id, number, facts))
        )

    async def delete_thread(self, thread_id: str) -> None:
        await self._change(lambda pool: pool.write(lambda db: changes.delete_thread(db, thread_id)))
        self._lives.pop(thread_id, None)

    async def delete_checkpoint(self, thread_id: str, checkpoint_id: str) -> None:
        await self._change(lambda pool: pool.write(lambda db: rows_off.delete_checkpoint(db, thread_id, checkpoint_id)))
        self._lives.pop(thread_id, None)

    async def prune(self, thread_id: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
        pruning.check_keep(thread_id, keep)
        if dry_run:
            return await self._read(lambda db: rows_off.prune(db, thread_id, keep, dry_run=True))
        return await self._change(
            lambda pool: pool.write(lambda db: rows_off.prune(db, thread_id, keep, dry_run=False))
        )  # fmt: skip

    async def put_note(self, name: str, note: bytes) -> None:
        await self._change(lambda pool: changes.put_note(pool, name, note))

    async def swap_note(self, name: str, note: bytes, *, instead_of: bytes | None) -> bool:
        return await self._change(
            lambda pool: pool.write(lambda db: changes.swap_note(db, name, note, instead_of))
        )  # fmt: skip

    async def note(self, name: str) -> bytes | None:
        rows = await self._rows(READ_NOTE, name)
        return rows[0][0] if rows else None

    async def rewrite(self, change: Rewrite, *, after: str | None = None, limit: int = 1000) -> str | None:
        return await self._change(lambda pool: pool.write(lambda db: rewriting.rewrite(db, change, after, limit)))

    async def put_document(self, digest: str, document: bytes) -> None:
        await self._change(lambda pool: changes.put_document(pool, digest, document))

    async def enqueue(
        self, thread_id: str, body: bytes, *, now: int, kind: str = "input", run_id: str | None = None
    ) -> int:
        return await self._change(
            lambda pool: pool.write(lambda db: changes.enqueue(db, thread_id, body, now, kind, run_id))
        )

    async def withdraw(self, thread_id: str, position: int, *, run_id: str | None = None) -> bool:
        return await self._change(
            lambda pool: pool.write(lambda db: changes.withdraw(db, thread_id, position, run_id))
        )  # fmt: skip

    async def dequeue(self, thread_id: str) -> bytes | None:
        return await self._change(lambda pool: pool.write(lambda db: changes.dequeue(db, thread_id)))

    # --- export ---

    async def export_thread(self, thread_id: str) -> AsyncIterator[Mapping[str, Any]]:
        copy = await self._read(lambda db: reader.copy_thread(db, thread_id))
        for line in export.to_lines(copy):
            yield line

    async def import_thread(
        self,
        lines: AsyncIterator[Mapping[str, Any]],
        *,
        thread_id: str | None = None,
        change: Rewrite | None = None,
    ) -> str:
        exported = await export.from_lines(lines)
        return await self._change(
            lambda pool: pool.write(lambda db: changes.import_thread(db, exported, thread_id, change))
        )
