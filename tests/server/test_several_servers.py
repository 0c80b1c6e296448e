"""Several servers over one PostgreSQL: what one leaves behind, another one goes on with."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.server.swarm import Server, Swarm, swarm
from tests.server.test_busy_processes import Stream, _events, state


@pytest.fixture
async def servers(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Swarm]:
    with postgres.database() as url:
        async with swarm(tmp_path, [url]) as made:
            yield made


async def followed(server: Server, run_id: str) -> list[str]:
    """The types of the run's events, once it has ended."""
    while True:
        types = await _events(server, run_id)
        if types and types[-1] in ("run.complete", "run.error", "run.cancel"):
            return types


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_run_whose_server_is_gone_goes_on_in_another_without_a_client(servers: Swarm, how: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await _goes_on(servers, how)


async def _goes_on(servers: Swarm, how: int) -> None:
    a, b = await servers.start(2)
    servers.hold()
    runs = [Stream(a, "x", f"t{n}") for n in range(5)]
    for run in runs:
        await run.until("checkpoint.create")  # its input is durable: there is something to go on from
        await run.until("content.delta")
    await a.end(how)
    servers.let_go()
    for n, run in enumerate(runs):
        assert (await followed(b, run.run_id))[-1] == "run.complete"
        assert (await state(b, f"t{n}"))["values"]["log"] == ["x"]
    assert sorted(servers.effects()) == sorted([run.run_id, str(b.process.pid)] for run in runs)


async def test_a_run_is_found_on_another_server_as_soon_as_a_client_has_its_first_event(servers: Swarm) -> None:
    async with asyncio.timeout(PATIENCE_S):
        a, b = await servers.start(2)
        for n in range(10):
            run = Stream(a, "x", f"t{n}", "quick")
            await run.until("run.start")
            async with b.client.stream("GET", f"/api/runs/{run.run_id}/events") as response:
                assert response.status_code == 200
            await run.task


async def asked(server: Server, thread_id: str) -> dict[str, Any]:
    """The open question of the thread, once there is one."""
    while True:
        found = (await server.client.get("/api/inbox", params={"threadId": thread_id})).json()["data"]
        if found:
            return dict(found[0])


def submission(thread_id: str, question: dict[str, Any], payload: Any) -> dict[str, Any]:
    return {"chatId": thread_id, "runId": question["runId"], "toolId": question["interruptId"], "payload": payload}


async def test_an_answer_to_any_server_takes_effect_where_the_run_is_driven(servers: Swarm) -> None:
    """While another branch works there. Of answers to several servers exactly one is accepted."""
    async with asyncio.timeout(PATIENCE_S):
        a, b, c = await servers.start(3)
        servers.hold()
        runs = [Stream(a, "x", f"t{n}", "review") for n in range(3)]
        for n, run in enumerate(runs):
            await run.until("content.delta")
            question = await asked(b, f"t{n}")
            given = [
                server.client.post("/api/submit", json=submission(f"t{n}", question, name))
                for name, server in (("a", a), ("b", b), ("c", c))[n:]
            ]
            said = [answer.json()["data"] for answer in await asyncio.gather(*given)]
            assert sorted(answer["status"] for answer in said) == sorted(["accepted"] + ["stale"] * (2 - n))
        servers.let_go()
        for n, run in enumerate(runs):
            assert (await followed(c, run.run_id))[-1] == "run.complete"
            (answer,) = (await state(b, f"t{n}"))["values"]["log"]
            assert answer in ("a", "b", "c")[n:]
        assert sorted(servers.effects()) == sorted([run.run_id, str(a.process.pid)] for run in runs)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_an_answer_that_was_handed_to_a_server_that_ends_is_not_lost(
    postgres: PostgresServer, tmp_path: Path, how: int
) -> None:
    with postgres.database() as url:
        async with swarm(tmp_path, [url], store_lease_ms=1500) as servers, asyncio.timeout(PATIENCE_S):
            await _is_not_lost(servers, how)


async def _is_not_lost(servers: Swarm, how: int) -> None:
    a, b = await servers.start(2)
    servers.hold()
    run = Stream(a, "x", "t", "review")
    await run.until("content.delta")
    question = await asked(b, "t")
    a.send(signal.SIGSTOP)
    answered = asyncio.ensure_future(  # noqa: TID251 - awaited below
        b.client.post("/api/threads/t/resume", json={"answers": {question["interruptId"]: "b"}, "stream": False})
    )
    if how == signal.SIGKILL:
        await a.end()
    servers.let_go()
    done = (await answered).json()["data"]
    assert (done["status"], done["runId"]) == ("completed", run.run_id)
    a.send(signal.SIGCONT) if how == signal.SIGSTOP else None
    assert (await state(b, "t"))["values"]["log"] == ["b"]
    assert servers.effects() == [[run.run_id, str(b.process.pid)]]


async def test_a_server_that_is_told_not_to_takes_nothing_over(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database() as url:
        async with swarm(tmp_path, [url], server_take_over="false") as servers, asyncio.timeout(PATIENCE_S):
            a, b = await servers.start(2)
            servers.hold()
            left = Stream(a, "x", "left")
            await left.until("checkpoint.create")
            await left.until("content.delta")
            await a.end(signal.SIGKILL)
            servers.let_go()
            assert (await b.client.get("/api/threads/left")).json()["data"]["status"] == "stopped"
            resumed: Any = await b.client.post("/api/threads/left/resume", json={"stream": False})
            assert resumed.json()["data"]["status"] == "completed"


async def test_a_run_that_ends_each_process_that_takes_it_is_given_up_after_three(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with postgres.database() as url:
        async with swarm(tmp_path, [url], store_durability="sync") as servers, asyncio.timeout(PATIENCE_S):
            (first,) = await servers.start()
            run = Stream(first, "x", "d", "deadly")
            await asyncio.to_thread(first.process.wait)
            await run.task
            for _ in range(3):
                (server,) = await servers.start()
                await asyncio.to_thread(server.process.wait)
            (last,) = await servers.start()
            assert (await followed(last, run.run_id))[-1] == "run.error"
            deaths = (servers.folder / "deaths.log").read_text(encoding="utf-8").split()
            assert deaths == [str(server.process.pid) for server in servers.servers[:-1]]
            found = (await last.client.get("/api/threads/d")).json()["data"]
            assert found["status"] == "failed"
            assert servers.effects() == []
