"""Servers over one PostgreSQL while either of them is lost: 0 hangs, 0 lost runs, 0 doubled effects, 0 lost answers.

Each round has runs, questions, queued inputs and waiting streams open when something happens: the database ends all sessions,
restarts or crashes, a failover drops and refuses connections, a server is killed, stopped for longer than its lease, or told to
end. What a client was told is compared with the records and with what was done outside.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.campaign import size
from tests.checkpoints.postgres_proxy import Proxy, proxy_to
from tests.postgres_server import PostgresServer
from tests.server.swarm import Server, Swarm, swarm
from tests.server.test_busy_processes import Stream
from tests.server.test_several_servers import submission

ROUNDS = size(3, long=70)
SERVERS = 3
LEASE_MS = 2000
ROUND_S = 120
"""Only what hangs takes so long."""


class Upheaval:
    """The servers, the database between them, and what clients were told."""

    def __init__(self, servers: Swarm, postgres: PostgresServer, proxy: Proxy) -> None:
        self.servers, self.postgres, self.proxy = servers, postgres, proxy
        self.alive: list[Server] = []
        self.acknowledged: dict[str, str] = {}
        """Run → thread, of inputs of which a client knows that they are durable."""
        self.answered: dict[str, str] = {}
        """Thread → the answer that was accepted."""
        self.happenings: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "crash": self.crash, "stop": self.stop, "failover": self.failover, "terminate": self.terminate,
            "kill": self.kill, "restart": self.restart, "term": self.term,
        }  # fmt: skip

    # --- what happens

    async def terminate(self) -> None:
        for _ in range(3):
            await asyncio.to_thread(
                self.postgres.run,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                " AND pid <> pg_backend_pid()",
            )

    async def restart(self) -> None:
        await asyncio.to_thread(self.postgres.restart, "INT")

    async def crash(self) -> None:
        await asyncio.to_thread(self.postgres.restart, "QUIT")

    async def failover(self) -> None:
        self.proxy.away = True
        await self.proxy.cut()
        await asyncio.sleep(0.5)
        self.proxy.away = False

    async def kill(self) -> None:
        await self.replaced(signal.SIGKILL)

    async def term(self) -> None:
        await self.replaced(signal.SIGTERM)

    async def replaced(self, how: int) -> None:
        await self.alive.pop(0).end(how)
        self.alive += await self.servers.start()

    async def stop(self) -> None:
        """Longer than a lease: others have gone on with its runs when it does."""
        stopped = self.alive.pop(0)
        stopped.send(signal.SIGSTOP)
        self.servers.let_go()
        await self.settled()
        stopped.send(signal.SIGCONT)
        self.alive.append(stopped)

    # --- clients

    async def one_round(self, number: int, happening: str, draw: random.Random) -> None:
        self.servers.hold()
        streams = [Stream(draw.choice(self.alive), "x", f"r{number}-{n}") for n in range(5)]
        reviews = [Stream(draw.choice(self.alive), "x", f"q{number}-{n}", "review") for n in range(2)]
        for stream in (*streams, *reviews):
            await stream.until("content.delta")
            await stream.until("checkpoint.create")
            self.acknowledged[stream.run_id] = stream.thread_id
        queued = [Stream(draw.choice(self.alive), "y", stream.thread_id, onBusy="enqueue") for stream in streams[:2]]
        for stream in queued:
            self.acknowledged[(await stream.headers)["graphflow-run-id"]] = stream.thread_id
        async with asyncio.TaskGroup() as group:
            happens = group.create_task(self.happenings[happening]())
            for stream in reviews:
                group.create_task(self.answer(stream, draw))
            hasty = [group.create_task(self.try_to_run(f"h{number}-{n}", draw)) for n in range(3)]
            await happens
            self.servers.let_go()
        for task in hasty:
            if (run_id := task.result()) is not None:
                self.acknowledged[run_id] = ""
        await self.settled()
        await asyncio.gather(*(stream.task for stream in (*streams, *reviews, *queued)))

    async def answer(self, stream: Stream, draw: random.Random) -> None:
        """Answers, and again if it can't be known whether the answer was taken."""
        name = f"a{draw.random()}"
        while True:
            server = draw.choice(self.alive)
            try:
                found = (await server.client.get("/api/inbox", params={"threadId": stream.thread_id})).json()["data"]
                if not found and await self.log(stream.thread_id):
                    break
                if found:
                    body = submission(stream.thread_id, found[0], name)
                    said = (await server.client.post("/api/submit", json=body)).json()["data"]
                    if said.get("status") in ("accepted", "stale"):
                        break
            except (httpx.TransportError, KeyError, TypeError):
                pass
            await asyncio.sleep(0.05)
        self.answered[stream.thread_id] = name

    async def try_to_run(self, thread_id: str, draw: random.Random) -> str | None:
        """The run of a request that was answered; amid an upheaval it may be refused, but never without an end."""
        body = {"message": "x", "chatId": thread_id, "agentKey": "held", "stream": False}
        try:
            response = await draw.choice(self.alive).client.post("/api/query", json=body)
        except httpx.ReadTimeout:
            pytest.fail("a request hangs")
        except httpx.TransportError:
            return None
        return str(response.json()["data"]["runId"]) if response.status_code == 200 else None

    async def log(self, thread_id: str) -> list[str]:
        for server in list(self.alive):
            try:
                response = await server.client.get(f"/api/threads/{thread_id}/state")
                if response.status_code == 200:
                    return list(response.json()["data"]["values"]["log"])
            except httpx.TransportError:
                continue
        return []

    # --- what must hold

    async def settled(self) -> None:
        """Returns when every run that a client knows of has had its effect, and no thread is at work."""
        while True:
            done = {run for run, _ in self.servers.effects()}
            if set(self.acknowledged) - {""} <= done and await self.at_rest():
                return
            await asyncio.sleep(0.1)

    async def at_rest(self) -> bool:
        for server in self.alive:
            try:
                running = await server.client.get("/api/threads", params={"status": "running"})
                stopped = await server.client.get("/api/threads", params={"status": "stopped"})
            except httpx.TransportError:
                return False
            if running.status_code != 200 or running.json()["data"] or stopped.json()["data"]:
                return False
        return True

    async def check(self) -> None:
        effects = Counter(run for run, _ in self.servers.effects())
        assert not {run: times for run, times in effects.items() if times > 1}, "an effect was doubled"
        assert set(self.acknowledged) <= set(effects), "a run was lost"
        for thread_id, name in self.answered.items():
            assert await self.log(thread_id) == [name], "an answer was lost, or doubled"


@pytest.fixture
async def upheaval(own_postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Upheaval]:
    async with (
        proxy_to(own_postgres.folder) as proxy,
        swarm(tmp_path, [proxy.url], store_lease_ms=LEASE_MS) as servers,
    ):
        made = Upheaval(servers, own_postgres, proxy)
        made.alive = await servers.start(SERVERS)
        yield made


@pytest.mark.campaign
async def test_whatever_is_lost_no_client_hangs_and_nothing_is_lost_or_done_twice(upheaval: Upheaval) -> None:
    names = list(upheaval.happenings)
    for number in range(ROUNDS):
        async with asyncio.timeout(ROUND_S):
            await upheaval.one_round(number, names[number % len(names)], random.Random(number))
            await upheaval.check()
