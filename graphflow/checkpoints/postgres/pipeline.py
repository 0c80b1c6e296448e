"""One connection of the PostgreSQL store: statements sent together, answered in one round trip, on whatever loop asks.

It stands on `psycopg.pq`, the thin layer over libpq, and not on a connection class above it: what the store sends is a
handful of prepared statements with binary parameters, and the way from `commit` to the socket decides the cost of a step
(docs/internals/decisions/0016-postgres-over-libpq.md). While it is idle, a connection belongs to no event loop.
"""

from __future__ import annotations

import asyncio
import select
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from psycopg import AsyncConnection, OperationalError, pq

from graphflow.checkpoints.ids import check_text, clean_title
from graphflow.errors import StoreError

_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_GONE = ("25P03", "25P04", "57P01", "57P02", "57P03", "57P05")
"""The server ends this connection, or all of them, by its own will."""
HELD_MS = 15_000
"""For so long a session keeps its locks when its process does not go on: as long as a lease lasts."""


class PostgresError(Exception):
    """What the server refused; `state` is its five-character SQLSTATE."""

    def __init__(self, state: str, message: str, constraint: str = "", column: str = "") -> None:
        super().__init__(message)
        self.state = state
        self.constraint = constraint
        self.column = column


class ConnectionLost(Exception):
    """The connection ended before the answer came: whether the statements were done is not known."""


# --- parameters and rows ---------------------------------------------------------------------------

_int4, _int8, _array = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">iiIii")
_EMPTY = {oid: struct.pack(">iiI", 0, 0, oid) for oid in (16, 17, 20, 23, 25)}


def text(value: str) -> bytes:
    """A `text`.

    Raises:
        StoreError: `invalid_input` for one that PostgreSQL can't have: here, before it fails the statements sent with it.
    """
    check_text(value)
    return value.encode()


def _nullable(value: str | None) -> bytes | None:
    return None if value is None else text(value)


def integer(value: int) -> bytes:
    """An `integer`."""
    return _int4.pack(value)


def bigint(value: int | None) -> bytes | None:
    return None if value is None else _int8.pack(value)


def boolean(value: object) -> bytes:
    return b"\x01" if value else b"\x00"


def array(kind: int, values: Sequence[bytes]) -> bytes:
    """An array of values that are encoded already; `kind` is the OID of their type."""
    if not values:
        return _EMPTY[kind]
    parts = [_array.pack(1, 0, kind, len(values), 1)]
    pack = _int4.pack
    for value in values:
        parts.append(pack(len(value)))
        parts.append(value)
    return b"".join(parts)


BOOLEAN, BYTEA, BIGINT, INTEGER, TEXT = 16, 17, 20, 23, 25

_ENCODERS: dict[str, Callable[[Any], bytes | None]] = {
    "t": _nullable,
    "d": _nullable,
    "n": _nullable,
    "c": lambda title: _nullable(clean_title(title)),
    "i": integer,
    "l": bigint,
    "b": boolean,
    "y": lambda value: value,
    "u": lambda value: value,  # the sixteen bytes of a UUID
    "T": lambda values: array(TEXT, [text(value) for value in values]),
    "L": lambda values: array(BIGINT, [_int8.pack(value) for value in values]),
}
_OIDS = {
    "t": TEXT,
    "d": TEXT,
    "n": TEXT,
    "c": TEXT,
    "i": INTEGER,
    "l": BIGINT,
    "b": BOOLEAN,
    "y": BYTEA,
    "u": 2950,
    "T": 1009,
    "L": 1016,
}
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "t": bytes.decode,
    "d": bytes.decode,
    "i": lambda value: int.from_bytes(value, "big", signed=True),
    "b": lambda value: value == b"\x01",
    "y": lambda value: value,
}


class Statement:
    """SQL with `@` for the schema, and how its parameters and columns are written: `t`ext, `i`nteger, `l` for bigint,
    `b`oolean, `y` for bytes, `u`uid, capitals for arrays; for `d`, `n` and `c` see `SharedStatement`. A column of any integer type is an `i`.
    """

    __slots__ = ("_columns", "_parameters", "name", "sql", "types")
    _count = 0

    def __init__(self, sql: str, parameters: str = "", columns: str = "") -> None:
        Statement._count += 1
        self.name = b"graphflow_%d" % Statement._count
        self.sql = sql
        self.types = [_OIDS[letter] for letter in parameters] or None
        """OIDs of the parameters; None lets the server find them."""
        self._parameters = [_ENCODERS[letter] for letter in parameters]
        self._columns = [_DECODERS[letter] for letter in columns]

    def __call__(self, *values: Any) -> Call:
        return Call(self, [encode(value) for encode, value in zip(self._parameters, values, strict=True)])

    def rows(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        """Its rows; without columns an empty one for each row that it changed."""
        if not self._columns:
            return [()] * (result.command_tuples or 0)
        get, columns = result.get_value, list(enumerate(self._columns))
        out = []
        for row in range(result.ntuples):
            values = [(get(row, place), decode) for place, decode in columns]
            out.append(tuple([None if value is None else decode(value) for value, decode in values]))
        return out


class Call(NamedTuple):
    """A statement with its parameters, encoded."""

    statement: Statement
    parameters: list[bytes | None]


# --- the connection --------------------------------------------------------------------------------

Done = Callable[[list[Any] | None, Exception | None], None]
"""Called with the results of all statements, or with why they failed."""


class Connection:
    """One session. Statements that are sent together are one transaction, unless they say `BEGIN` themselves."""

    def __init__(self, session: AsyncConnection[Any], schema: str) -> None:
        self._session = session
        """Made by psycopg, which knows how to connect without blocking; kept, for it ends with this object."""
        self._link = session.pgconn
        self.is_limited = limits_transactions(session)
        """Its transactions last for no longer than a lease, unless they say otherwise."""
        self._schema = schema
        self._prepared: set[bytes] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1
        """What `_loop` watches. libpq closes the socket of a lost connection by itself and then can't name it any more, but the
        loop has to stop watching this number, or it watches nothing for the next socket that gets it.
        """
        self._done: Done | None = None
        self._expected: deque[bytes | None] = deque()
        """Per command under way: the name of a statement that is being prepared, None for one whose result is wanted."""
        self._results: list[Any] = []
        self._error: PostgresError | None = None
        self._writing = False
        self._skipped = 0
        """Round trips under way whose answers nobody waits for."""
        self.lost = False

    @property
    def busy(self) -> bool:
        return self._done is not None

    def send(self, calls: Iterable[Call], done: Done) -> None:
        """Sends the statements and returns; `done` is called on the running loop, never before this returns."""
        loop = asyncio.get_running_loop()
        assert self._done is None, "a connection does one thing at a time"
        self._done, self._results, self._error = done, [], None
        link, prepared, expected = self._link, self._prepared, self._expected
        expected.clear()
        try:
            for statement, parameters in calls:
                name = statement.name
                # Prepared in the same round trip as its first use. It counts as prepared only when the server has said
                # so.
                if name not in prepared and name not in expected:
                    link.send_prepare(name, statement.sql.replace("@", self._schema).encode(), statement.types)
                    expected.append(name)
                link.send_query_prepared(name, parameters, _formats(len(parameters)), 1)
                expected.append(None)
            # One sync ends the batch: all statements before it are one transaction and come back in one round trip.
            link.pipeline_sync()
            self._attach(loop)
            self._flush()
        except OperationalError as error:
            self._end(loop, error)
        except BaseException:  # half a batch is out: nobody can go on from there
            self._done = None
            self.close()
            raise

    async def run(self, *calls: Call) -> list[list[tuple[Any, ...]]]:
        """The rows of each statement.

        Raises:
            PostgresError: a statement was refused; none of them has changed anything.
            ConnectionLost: nobody knows.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()

        def done(results: list[Any] | None, error: Exception | None) -> None:
            if future.done():  # whoever waited was cancelled
                return
            if error is None:
                future.set_result(results or [])
            else:
                future.set_exception(error)

        self.send(calls, done)
        results = await future
        return [call.statement.rows(result) for call, result in zip(calls, results, strict=True)]

    async def rows(self, call: Call) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        return (await self.run(call))[0]

    def send_off(self, command: bytes) -> None:
        """Sends a command whose outcome nobody needs; the next statements may follow at once."""
        try:
            self._link.send_query_params(command, None)
            self._link.pipeline_sync()
            self._skipped += 1
            self._attach(asyncio.get_running_loop())
            self._flush()
        except OperationalError as error:
            self._gone(error)

    def wait_here(self, seconds: float) -> bool:
        """Blocks until what is under way is answered, `done` included, or so long; whether it was."""
        if self._loop is None or not hasattr(select, "poll"):  # lost, so that only the loop can go on; or Windows
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while self._done is not None and not self._writing:
            if not poll.poll(seconds * 1000):
                return False
            self._readable()
        return self._done is None

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Goes on with what is under way on another loop, whose own loop is closed."""
        try:
            self._attach(loop)
            self._flush()
        except OperationalError as error:
            self._end(loop, error)

    def leave(self) -> None:
        """Belongs to no loop from now on; nothing may be under way."""
        self._detach()

    def close(self) -> None:
        """Ends the session; what is under way is not waited for."""
        self._detach()
        self.lost = True
        self._link.finish()

    # --- answers

    def _flush(self) -> None:
        assert self._loop is not None
        waits = self._link.flush()
        if waits and not self._writing:
            self._writing = True
            self._loop.add_writer(self._descriptor, self._writable)
        elif not waits and self._writing:
            self._writing = False
            self._loop.remove_writer(self._descriptor)

    def _writable(self) -> None:
        if self._loop is None:  # the loop had both to call, and reading has found the connection lost
            return
        try:
            self._flush()
        except OperationalError as error:
            self._gone(error)

    def _readable(self) -> None:
        link = self._link
        try:
            link.consume_input()
            if self._writing:
                self._flush()
            while (self._done is not None or self._skipped) and not link.is_busy():
                result = link.get_result()
                if result is None:
                    continue
                if self._skipped:
                    self._skipped -= result.status == pq.ExecStatus.PIPELINE_SYNC
                elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                    self._finish()
                    return
                else:
                    self._take(result)
            if link.status == pq.ConnStatus.BAD:
                raise OperationalError("the server closed the connection")
        except OperationalError as error:
            self._gone(error)

    def _take(self, result: pq.abc.PGresult) -> None:
        if result.status in _OK:
            name = self._expected.popleft()
            if name is None:
                self._results.append(result)
            else:
                self._prepared.add(name)
        elif result.status == pq.ExecStatus.FATAL_ERROR:
            field = pq.DiagnosticField
            state, constraint, column = (
                (result.error_field(name) or b"").decode()
                for name in (field.SQLSTATE, field.CONSTRAINT_NAME, field.COLUMN_NAME)
            )
            if state in _GONE or not state or self._link.status == pq.ConnStatus.BAD:
                raise OperationalError(_words(result.error_message))
            primary = result.error_field(field.MESSAGE_PRIMARY) or result.error_message
            self._error = self._error or PostgresError(state, _words(primary), constraint, column)

    def _finish(self) -> None:
        done, self._done = self._done, None
        results, self._results = self._results, []
        error, self._error = self._error, None
        assert done is not None
        done(None if error else results, error)

    def _gone(self, error: Exception) -> None:
        self.close()
        done, self._done = self._done, None
        if done is not None:
            lost = ConnectionLost(_words(str(error)))
            lost.__cause__ = error
            done(None, lost)

    def _end(self, loop: asyncio.AbstractEventLoop, error: Exception) -> None:
        """`_gone`, but not within `send`. The loop forgets the socket at once: another may have its number by then."""
        self._detach()
        self.lost = True
        loop.call_soon(self._gone, error)

    # --- loops

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            return
        self._detach()
        descriptor = self._link.socket
        try:
            loop.add_reader(descriptor, self._readable)
        except NotImplementedError:
            raise StoreError(
                "this event loop can't watch a socket, which the PostgreSQL store needs: on Windows run with"
                " `asyncio.SelectorEventLoop`"
            ) from None
        self._loop, self._descriptor = loop, descriptor

    def _detach(self) -> None:
        loop, self._loop = self._loop, None
        writing, self._writing = self._writing, False
        if loop is None or loop.is_closed():
            return
        if writing:
            with suppress(
                OSError
            ):  # a closed socket can't be watched for less; the selector drops its whole entry then
                loop.remove_writer(self._descriptor)
        loop.remove_reader(self._descriptor)


_format_lists: dict[int, list[int]] = {}


def _formats(count: int) -> list[int]:
    formats = _format_lists.get(count)
    if formats is None:
        formats = _format_lists[count] = [1] * count
    return formats


def _words(message: bytes | str) -> str:
    if isinstance(message, bytes):
        message = message.decode("utf-8", "replace")
    return " ".join(message.split())


async def connect(conninfo: str, schema: str) -> Connection:
    """A new session.

    Raises:
        OperationalError: of psycopg; its text is libpq's, which names host and user, never the password.
    """
    session = await AsyncConnection.connect(conninfo, autocommit=True)
    session._pool = None  # as of a pool: a store that is dropped ends its sessions without a warning
    try:
        # Everything is looked up by an index, also while statistics say that a table is empty still. And a session whose process
        # stands still, or is gone without the server's knowing, keeps its locks for no longer than a lease lasts.
        await session.execute(f"SET enable_seqscan = off; SET idle_in_transaction_session_timeout = {HELD_MS}")
        if limits_transactions(session):
            # Of a batch that does not come to its end, because its process stands still, the server holds the locks so far.
            await session.execute(f"SET transaction_timeout = {HELD_MS}")
        session.pgconn.nonblocking = 1
        session.pgconn.enter_pipeline_mode()
    except BaseException:
        session.pgconn.finish()
        raise
    return Connection(session, schema)


def limits_transactions(session: AsyncConnection[Any]) -> bool:
    """Whether the server ends a transaction that takes too long, also amid a batch: from PostgreSQL 17 on."""
    return session.pgconn.server_version >= 170_000
