"""Several server processes over one store: `onBusy` across them, a killed one's queue, a paused one that wakes up fenced."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.patience import PATIENCE_S
from tests.server.conftest import frames
from tests.server.swarm import Server, Swarm, swarm
from tests.service.clients import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
N = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def four(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Swarm]:
    """Four servers over one store."""
    with ExitStack() as stack:
        store = []
        if request.param == "postgres":
            store = [stack.enter_context(request.getfixturevalue("postgres").database())]
        async with swarm(tmp_path_factory.mktemp("swarm"), store) as made:
            await made.start(4)
            yield made


async def ask(server: Server, message: str, chat: str, agent: str = "quick", **fields: Any) -> httpx.Response:
    body = {"message": message, "chatId": chat, "agentKey": agent, "stream": False, **fields}
    return await server.client.post("/api/query", json=body)


async def state(server: Server, chat: str) -> dict[str, Any]:
    response = await server.client.get(f"/api/threads/{chat}/state")
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json()["data"]
    return data


def said(data: dict[str, Any]) -> list[str]:
    """What the user has said on the thread."""
    return [m["content"] for m in data["values"]["messages"] if m["role"] == "user"]


class Stream:
    """A query's stream that is read in the background."""

    def __init__(self, server: Server, message: str, chat: str, agent: str = "held", **fields: Any) -> None:
        self.seen, self.thread_id = Client(), chat
        self.headers = asyncio.get_running_loop().create_future()
        body = {"message": message, "chatId": chat, "agentKey": agent, **fields}
        self.task = asyncio.ensure_future(self._read(server, body))  # noqa: TID251 - awaited by the tests
        self._moved = asyncio.Event()

    async def _read(self, server: Server, body: dict[str, Any]) -> None:
        with suppress(httpx.TransportError):  # its process was killed
            await self._take(server, body)

    async def _take(self, server: Server, body: dict[str, Any]) -> None:
        async with server.client.stream("POST", "/api/query", json=body) as response:
            self.headers.set_result(response.headers)
            async for sse_id, event in frames(response):
                if sse_id is not None:
                    self.seen.take(sse_id, event)
                else:
                    self.seen.events.append(event)
                self._moved.set()

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.seen.events]

    @property
    def run_id(self) -> str:
        return str(next(event["runId"] for event in self.seen.events if event["type"] == "run.start"))

    async def until(self, kind: str) -> None:
        """Returns when an event of this type has come."""
        while kind not in self.types:
            assert not self.task.done(), self.types
            self._moved.clear()
            await self._moved.wait()


async def test_of_200_queries_at_once_those_accepted_are_in_the_state_and_all_others_get_409(four: Swarm) -> None:
    accepted, refused = await _two_hundred(four, "many")
    assert accepted >= 1 and accepted + refused == N


async def _two_hundred(servers: Swarm, chat: str) -> tuple[int, int]:
    """How many were accepted, and how many refused."""
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(ask(servers.servers[n % 4], f"m{n}", chat) for n in range(N)))
        assert set(Counter(answer.status_code for answer in answers)) <= {200, 409}
        accepted = [f"m{n}" for n, answer in enumerate(answers) if answer.status_code == 200]
        assert accepted
        assert all(a.json()["data"]["status"] == "completed" for a in answers if a.status_code == 200)
        for refused in (answer for answer in answers if answer.status_code == 409):
            error = refused.json()["data"]["error"]
            assert error["code"] == "thread_busy" and error["detail"]["retryAfterMs"] > 0
        for server in servers.servers:
            now = await state(server, chat)
            assert sorted(said(now)) == sorted(accepted) and now["values"]["log"] == said(now)
        return len(accepted), sum(answer.status_code == 409 for answer in answers)


async def test_of_200_enqueued_queries_each_becomes_one_run_in_order(four: Swarm) -> None:
    assert await _all_in_turn(four, "queue") == N


async def _all_in_turn(servers: Swarm, chat: str) -> int:
    """How many runs there were, each one whole and in its turn."""
    async with asyncio.timeout(PATIENCE_S):
        options = {"onBusy": "enqueue"}
        answers = await asyncio.gather(*(ask(servers.servers[n % 4], f"m{n}", chat, **options) for n in range(N)))
        assert Counter(answer.status_code for answer in answers) == {200: N}
        bodies = [answer.json()["data"] for answer in answers]
        assert {body["status"] for body in bodies} == {"completed"} and len({body["runId"] for body in bodies}) == N
        now = await state(servers.servers[0], chat)
        assert sorted(said(now)) == sorted(f"m{n}" for n in range(N)) and now["values"]["log"] == said(now)
        first = servers.servers[0].client
        assert (await first.get(f"/api/threads/{chat}/queue")).json()["data"] == []
        return len(bodies)


async def test_inputs_of_several_processes_run_in_the_order_of_their_places(four: Swarm) -> None:
    async with asyncio.timeout(PATIENCE_S):
        four.hold()
        first = Stream(four.servers[0], "first", "order")
        await first.until("content.delta")
        later = []
        for n in range(8):
            stream = Stream(four.servers[n % 4], f"m{n}", "order", "quick", onBusy="enqueue")
            headers = await stream.headers
            assert headers["graphflow-queue-position"] == str(n + 1)
            later.append((headers["graphflow-run-id"], stream))
        listed = (await four.servers[3].client.get("/api/threads/order/queue")).json()["data"]
        assert [(line["runId"], line["position"], line["message"]) for line in listed] == [
            (run_id, n + 1, f"m{n}") for n, (run_id, _) in enumerate(later)
        ]
        taken = (await four.servers[1].client.delete(f"/api/threads/order/queue/{later[2][0]}")).json()["data"]
        assert taken["withdrawn"]
        await later[2][1].task
        assert later[2][1].types == ["run.cancel"]
        listens = asyncio.Event()
        joined = asyncio.ensure_future(_events(four.servers[2], later[0][0], listens))  # noqa: TID251 - awaited below
        await listens.wait()
        four.let_go()
        for n, (run_id, stream) in enumerate(later):
            await stream.task
            if n != 2:
                assert stream.types[:2] == ["request.query", "run.start"] and stream.types[-1] == "run.complete"
                assert {event.get("runId", run_id) for event in stream.seen.events} == {run_id}
        await first.task
        assert (await joined)[-1] == "run.complete"
        assert said(await state(four.servers[0], "order")) == ["first", *(f"m{n}" for n in range(8) if n != 2)]


async def _events(server: Server, run_id: str, listens: asyncio.Event | None = None) -> list[str]:
    """The types of a run's events; sets `listens` once the server has taken the reader."""
    async with server.client.stream("GET", f"/api/runs/{run_id}/events") as response:
        if listens is not None:
            listens.set()
        return [event["type"] async for _, event in frames(response)]


async def test_a_run_of_another_process_is_interrupted_rolled_back_and_cancelled(four: Swarm) -> None:
    a, b = four.servers[:2]
    async with asyncio.timeout(PATIENCE_S):
        four.hold()
        first = Stream(a, "first", "stop")
        await first.until("content.delta")
        assert (await ask(b, "no", "stop")).status_code == 409
        second = Stream(b, "second", "stop", onBusy="interrupt")
        await second.until("content.delta")
        await first.task
        assert first.types[-1] == "run.cancel"
        assert said(await state(b, "stop")) == ["first", "second"]
        third = Stream(a, "third", "stop", onBusy="rollback")
        await third.until("content.delta")
        await second.task
        assert second.types[-1] == "run.cancel"
        assert said(await state(a, "stop")) == ["first", "third"]
        cancelled = (await b.client.post("/api/threads/stop/cancel")).json()["data"]["cancelled"]
        assert cancelled
        await third.task
        assert third.types[-1] == "run.cancel"
        four.let_go()
        assert not [line for line in four.effects() if line[0] in {s.run_id for s in (first, second, third)}]


async def test_a_question_that_another_process_holds_is_answered_and_a_signal_reaches_it(four: Swarm) -> None:
    a, b = four.servers[2:]
    async with asyncio.timeout(PATIENCE_S):
        held = Stream(a, "x", "asks", "ask")
        await held.until("interrupt.request")
        refused = await ask(b, "y", "asks", "ask")
        assert refused.status_code == 409 and refused.json()["data"]["error"]["code"] == "thread_waiting"
        event = held.seen.events[-1]
        submit = {"chatId": "asks", "runId": event["runId"], "toolId": event["interruptId"], "payload": "me"}
        answer = (await b.client.post("/api/submit", json=submit)).json()["data"]
        assert answer["accepted"], answer
        await held.task
        assert held.types[-1] in ("run.waiting", "run.complete")
        while (await _events(a, event["runId"]))[-1] != "run.complete":
            await asyncio.sleep(0.02)
        assert (await state(a, "asks"))["values"]["log"] == ["me"]

        waits = Stream(a, "x", "waits", "wait")
        await waits.until("interrupt.request")
        sent = await b.client.post("/api/threads/waits/signal", json={"name": "go", "payload": "now"})
        assert sent.status_code == 200
        await waits.task
        assert waits.types[-1] == "run.complete"
        assert (await state(b, "waits"))["values"]["log"] == ["now"]


async def test_what_a_killed_process_had_accepted_runs_in_order_in_another(tmp_path: Path) -> None:
    async with swarm(tmp_path) as servers, asyncio.timeout(PATIENCE_S):
        (a,) = await servers.start()
        servers.hold()
        first = Stream(a, "first", "k")
        await first.until("content.delta")
        later = [Stream(a, f"m{n}", "k", "held", onBusy="enqueue") for n in range(3)]
        runs = [(await stream.headers)["graphflow-run-id"] for stream in later]
        await a.end(signal.SIGKILL)
        await asyncio.gather(first.task, *(stream.task for stream in later), return_exceptions=True)
        servers.let_go()
        (b,) = await servers.start()
        ends = [await _events(b, run_id) for run_id in runs]
        assert [end[-1] for end in ends] == ["run.complete"] * 3
        now = await state(b, "k")
        wanted = sorted(said(now)[1:])
        assert said(now)[0] == "first" and wanted == ["m0", "m1", "m2"] and now["values"]["log"] == said(now)
        by_run = {run_id: f"m{n}" for n, run_id in enumerate(runs)}
        assert [by_run.get(line[0], "first") for line in servers.effects()] == said(now), "each did its effect once"


async def stop_outside_a_transaction(server: Server, store: Path) -> None:
    """A process that is stopped in the midst of a write to SQLite keeps the file locked: no fence can help there."""
    while True:
        server.send(signal.SIGSTOP)
        server.process.wait_until_stopped()
        with closing(sqlite3.connect(store, timeout=0.2, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
            except sqlite3.OperationalError:
                server.send(signal.SIGCONT)
            else:
                return


async def test_a_paused_process_that_wakes_after_its_lease_does_nothing_and_says_nothing(tmp_path: Path) -> None:
    async with swarm(tmp_path, store_lease_ms=600, server_take_over="false") as servers, asyncio.timeout(PATIENCE_S):
        a, b = await servers.start(2)
        servers.hold()
        first = Stream(a, "x", "p")
        await first.until("checkpoint.create")  # its input is durable: there is something to go on from
        await first.until("content.delta")
        await stop_outside_a_transaction(a, tmp_path / "checkpoints" / "threads.db")
        stopped_at = time.time() * 1000
        servers.let_go()  # what it does next when it wakes is to write
        while (resumed := await b.client.post("/api/threads/p/resume", json={"stream": False})).status_code == 409:
            assert resumed.json()["data"]["error"]["code"] == "thread_busy"
            await asyncio.sleep(0.05)
        assert resumed.json()["data"].get("status") == "completed", resumed.text
        assert resumed.json()["data"]["runId"] == first.run_id
        done = await state(b, "p")
        a.send(signal.SIGCONT)
        await first.task
        late = [event for event in first.seen.events if event["timestamp"] > stopped_at]
        assert not late, "not a word after it woke up"
        assert set(first.types) <= {"request.query", "chat.start", "run.start", "node.start", "node.end", "checkpoint.create",
            "content.start", "content.delta"}  # fmt: skip
        assert await state(a, "p") == done == await state(b, "p")
        assert [line[1] for line in servers.effects()] == [str(b.process.pid)]
        assert (await ask(a, "next", "p")).json()["data"]["status"] == "completed", "it serves on"
