"""Runs as resources: whoever has a run's id learns what became of it, from any server (spec 3.1)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.server.conftest import ask, serving
from tests.server.swarm import Server, Swarm, swarm
from tests.server.test_busy_processes import Stream
from tests.server.test_users import ANN, BOB, OPS, with_tokens
from tests.service.conftest import Gate, make_application


async def data(client: httpx.AsyncClient, path: str, **request: Any) -> Any:
    response = await client.get(f"/api{path}", **request)
    assert response.status_code == 200, response.text
    return response.json()["data"]


async def one_body(client: httpx.AsyncClient, **fields: Any) -> Any:
    response = await client.post("/api/query", json={"message": "Hi", "stream": False, **fields})
    return response.json()["data"]


async def test_a_run_is_read_by_its_id_after_it_ended_waits_or_failed(folder: Path) -> None:
    script = {"turns": [{"text": "Hello."}, {"error": {"status": 400}}]}
    async with serving(make_application(folder, script=script)) as (client, _):
        done = await one_body(client, agentKey="plain", chatId="done")
        found = await data(client, f"/runs/{done['runId']}")
        assert (found["status"], found["answer"], found["interrupts"]) == ("completed", "Hello.", [])
        assert (found["threadId"], found["chatId"], found["agentKey"]) == ("done", "done", "plain")
        assert found["usage"]["modelCalls"] == 1 and found["checkpointId"] == done["checkpointId"]
        assert found["createdAt"] <= found["updatedAt"] == found["endedAt"]
        assert (await client.get(found["links"]["events"])).status_code == 200
        assert (await client.get(found["links"]["run"])).json()["data"] == found

        waits = await one_body(client, agentKey="ask", chatId="asks")
        found = await data(client, f"/runs/{waits['runId']}")
        assert (found["status"], found["endedAt"], "answer" in found) == ("waiting", None, False)
        assert found["interrupts"] == waits["interrupts"]

        failed = await one_body(client, agentKey="plain", chatId="done")
        found = await data(client, f"/runs/{failed['runId']}")
        assert (found["status"], found["error"]["code"]) == ("failed", failed["error"]["code"])


async def test_a_run_that_its_thread_has_left_behind_keeps_its_own_outcome(folder: Path) -> None:
    script = {"turns": [{"text": "One."}, {"text": "Two."}]}
    async with serving(make_application(folder, script=script)) as (client, _):
        first = await one_body(client, agentKey="plain", chatId="c")
        left = await one_body(client, agentKey="ask", chatId="d")
        await one_body(client, agentKey="plain", chatId="c")
        await one_body(client, agentKey="plain", chatId="d", onWaiting="cancel")
        assert (await data(client, f"/runs/{first['runId']}"))["answer"] == "One."
        found = await data(client, f"/runs/{left['runId']}")
        assert (found["status"], found["interrupts"]) == ("cancelled", [])


async def test_runs_that_run_now_or_are_queued_are_found(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(ask(client, agentKey="plain", chatId="busy"))
        while not await data(client, "/runs"):
            await asyncio.sleep(0.01)
        group.create_task(ask(client, agentKey="plain", chatId="busy", onBusy="enqueue"))
        while len(lines := await data(client, "/runs?threadId=busy")) < 2:
            await asyncio.sleep(0.01)
        assert [line["status"] for line in lines] == ["queued", "running"]
        for line in lines:
            found = await data(client, f"/runs/{line['runId']}")
            assert (found["status"], found["endedAt"]) == (line["status"], None)
        gate.open()
    assert [line["status"] for line in await data(client, "/runs?threadId=busy")] == ["completed", "completed"]


async def test_runs_are_listed_newest_first_by_status_thread_and_agent_page_by_page(folder: Path) -> None:
    script = {"turns": [{"text": f"{n}"} for n in range(6)]}
    async with serving(make_application(folder, script=script)) as (client, _):
        ids = [(await one_body(client, agentKey="plain", chatId=f"c{n % 2}"))["runId"] for n in range(4)]
        ids.append((await one_body(client, agentKey="ask", chatId="asks"))["runId"])
        pages, cursor = [], ""
        while True:
            body = (await client.get(f"/api/runs?limit=2{cursor}")).json()
            pages.append([line["runId"] for line in body["data"]])
            if "cursor" not in body:
                break
            cursor = f"&cursor={body['cursor']}"
        assert [run for page in pages for run in page] == ids[::-1]
        assert [line["runId"] for line in await data(client, "/runs?status=waiting")] == ids[4:]
        assert [line["runId"] for line in await data(client, "/runs?agentKey=plain&threadId=c1")] == [ids[3], ids[1]]
        assert await data(client, "/runs?status=failed") == await data(client, "/runs?threadId=none") == []
        for wrong in ("status=done", "cursor=%20", "limit=0", "state=failed"):
            assert (await client.get(f"/api/runs?{wrong}")).status_code == 400


async def test_another_users_run_is_as_if_it_did_not_exist(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        body = {"message": "hi", "agentKey": "ask", "chatId": "hers", "stream": False}
        run = (await client.post("/api/query", json=body, headers=ANN)).json()["data"]["runId"]
        hers = await client.get(f"/api/runs/{run}", headers=BOB)
        unknown = await client.get("/api/runs/none", headers=BOB)
        assert hers.status_code == unknown.status_code == 404
        assert hers.json()["msg"] == unknown.json()["msg"].replace("none", run)
        assert hers.json()["data"]["error"]["code"] == "run_not_found"
        assert await data(client, "/runs", headers=BOB) == await data(client, "/runs?threadId=hers", headers=BOB) == []
        for headers in (ANN, OPS):
            assert [line["runId"] for line in await data(client, "/runs", headers=headers)] == [run]
        for strange, status in (("none", 404), ("x" * 300, 400), ("a b", 400), ("%252e%252e", 400)):
            assert (await client.get(f"/api/runs/{strange}", headers=OPS)).status_code == status


# --- several servers


@pytest.fixture
async def servers(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Swarm]:
    with postgres.database() as url:
        async with swarm(tmp_path, [url], server_take_over="false") as made:
            yield made


async def status(server: Server, run_id: str) -> str:
    found = await data(server.client, f"/runs/{run_id}")
    assert [line["status"] for line in await data(server.client, "/runs") if line["runId"] == run_id] == [
        found["status"]
    ]
    return str(found["status"])


async def test_a_run_is_running_on_every_server_and_stopped_when_its_own_was_killed(servers: Swarm) -> None:
    async with asyncio.timeout(PATIENCE_S):
        a, b = await servers.start(2)
        servers.hold()
        run = Stream(a, "x", "t", "held")
        await run.until("content.delta")
        assert await status(a, run.run_id) == await status(b, run.run_id) == "running"
        await a.end(signal.SIGKILL)
        assert await status(b, run.run_id) == "stopped"
        servers.let_go()
        resumed: Any = await b.client.post("/api/threads/t/resume", json={"stream": False})
        assert resumed.json()["data"]["runId"] == run.run_id
        assert await status(b, run.run_id) == "completed"
