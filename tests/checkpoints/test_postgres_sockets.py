"""A PostgreSQL connection that is lost leaves nothing behind in the event loop (spec 4.4).

libpq closes the socket of a lost connection by itself, and the system gives its number to the next socket. A loop that still
has the number registered never watches that next socket, and whoever waits for it waits forever.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from graphflow.checkpoints.postgres.pipeline import Call, Connection, ConnectionLost, Statement, connect
from tests.patience import PATIENCE_S
from tests.postgres import Schemas

PID = Statement("SELECT pg_backend_pid()", "", "i")
SLEEP = Statement("SELECT pg_sleep(600)::text", "", "t")
LENGTH = Statement("SELECT length($1)", "t", "i")
MORE_THAN_A_SOCKET_HOLDS = "x" * (32 << 20)

Terminate = Callable[[int], None]
"""Has the database end the session of a backend, as for a restart."""


@pytest.fixture
async def connection(schemas: Schemas) -> AsyncIterator[Connection]:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
    made = await connect(schemas.url, "public")
    yield made
    made.close()
    assert errors == []


@pytest.fixture
def terminate(schemas: Schemas) -> Terminate:
    def end(pid: int) -> None:
        assert schemas.run(f"SELECT pg_terminate_backend({pid}, 60000)") == [(True,)]

    return end


def cut(descriptor: int) -> None:
    """The network cuts both ways off."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)


async def attached(connection: Connection) -> tuple[int, int]:
    """The numbers of the connection's socket and of its backend, once the running loop watches the socket."""
    before = set(watched())
    pid = (await connection.rows(PID()))[0][0]
    (descriptor,) = set(watched()) - before
    return descriptor, pid


def send(connection: Connection, *calls: Call) -> asyncio.Future[Exception | None]:
    """Sends the statements; why they failed comes later."""
    told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    connection.send(calls, lambda _, error: told.set_result(error))
    return told


def watched() -> Any:
    """What the running loop watches, by number."""
    return asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]


async def assert_number_is_free(descriptor: int) -> None:
    """The socket is closed, the loop has forgotten it, and the next socket with its number hears what it is sent."""
    assert descriptor not in watched()
    with pytest.raises(OSError):
        os.fstat(descriptor)
    here, there = socket.socketpair()
    number = here.detach()
    if number != descriptor:
        os.dup2(number, descriptor)
        os.close(number)
    with socket.socket(fileno=descriptor) as again, there:
        again.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            loop.call_soon(there.send, b"hello")
            assert await loop.sock_recv(again, 100) == b"hello"


async def test_a_session_ended_during_a_statement_frees_its_socket_number(
    connection: Connection, terminate: Terminate
) -> None:
    descriptor, pid = await attached(connection)
    told = send(connection, SLEEP())
    await asyncio.to_thread(terminate, pid)
    assert isinstance(await told, ConnectionLost)
    await assert_number_is_free(descriptor)


async def test_a_session_ended_while_idle_frees_its_socket_number(connection: Connection, terminate: Terminate) -> None:
    descriptor, pid = await attached(connection)
    await asyncio.to_thread(terminate, pid)
    async with asyncio.timeout(PATIENCE_S):
        while not connection.lost:  # nobody waits for an idle connection, so nobody is told
            await asyncio.sleep(0)
    await assert_number_is_free(descriptor)


async def test_a_session_cut_off_during_a_statement_frees_its_socket_number(
    connection: Connection, terminate: Terminate
) -> None:
    descriptor, pid = await attached(connection)
    told = send(connection, SLEEP())
    cut(descriptor)
    assert isinstance(await told, ConnectionLost)
    await assert_number_is_free(descriptor)
    await asyncio.to_thread(terminate, pid)  # the server does not look at the socket while it sleeps


async def test_a_session_lost_while_sending_frees_its_socket_number(connection: Connection) -> None:
    descriptor, _ = await attached(connection)
    told = send(connection, LENGTH(MORE_THAN_A_SOCKET_HOLDS))
    assert watched()[descriptor].data[1] is not None, "the rest waits for room in the socket"
    cut(descriptor)
    assert isinstance(await told, ConnectionLost)
    await assert_number_is_free(descriptor)


async def test_statements_that_find_their_session_lost_free_its_socket_number_before_anything_else_runs(
    connection: Connection,
) -> None:
    descriptor, _ = await attached(connection)
    cut(descriptor)
    told = send(connection, *[LENGTH("x" * 100_000)] * 3)
    assert connection.lost and not told.done()
    assert not connection.wait_here(60), "nothing can come any more"
    assert descriptor not in watched()
    assert isinstance(await told, ConnectionLost)
    await assert_number_is_free(descriptor)
