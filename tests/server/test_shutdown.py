"""Stopping: no new runs, running nodes get their time, streams say that there is more to come (spec 3.5)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow.server.app import stop
from graphflow.server.sse import REJOIN
from graphflow.service.runs import input_queue
from tests.patience import PATIENCE_S
from tests.server.conftest import Process, frames, serving, take, upstream
from tests.server.test_kill import SCRIPT, STORY
from tests.service.clients import Client, fold
from tests.service.conftest import Gate, make_application


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]


async def test_while_it_stops_nothing_begins_and_what_runs_has_its_time(folder: Path, gate: Gate) -> None:
    gate.open(2)
    async with asyncio.timeout(PATIENCE_S), serving(make_application(folder, gate=gate)) as (client, server):
        app = server.application
        body = {"message": "x", "agentKey": "story", "chatId": "s"}
        async with client.stream("POST", "/api/query", json=body) as response, asyncio.TaskGroup() as group:
            stream = response.aiter_bytes()
            data = await anext(stream)
            stopping = group.create_task(stop(app))
            while not app.stopping:
                await asyncio.sleep(0)
            for method, url, content in (
                ("POST", "/api/query", {"message": "x", "agentKey": "plain"}),
                ("POST", "/api/threads/s/resume", {}),
                ("POST", "/api/submit", {"chatId": "s", "runId": "r", "toolId": "t", "payload": 1}),
                ("GET", "/api/ready", None),
            ):
                refused = await client.request(method, url, json=content)
                assert refused.status_code == 503, url
            assert (await client.get("/api/health")).status_code == 200
            assert not stopping.done(), "the node has its grace time"
            gate.open()
            async for chunk in stream:
                data += chunk
        kinds = [event["type"] for event in events_of(data)]
        assert kinds[-1] == "run.complete" and kinds.count("node.end") == 3, "its time was enough"
        assert (await client.get("/api/threads/s")).json()["data"]["status"] == "idle"


async def test_who_waits_for_a_turn_is_told_to_rejoin_and_the_input_stays(folder: Path, gate: Gate) -> None:
    gate.close()
    async with asyncio.timeout(PATIENCE_S), serving(make_application(folder, gate=gate)) as (client, server):
        body = {"message": "x", "agentKey": "plain", "chatId": "q"}
        later = {**body, "message": "later", "onBusy": "enqueue"}
        async with (
            client.stream("POST", "/api/query", json=body) as first,
            client.stream("POST", "/api/query", json=later) as waiting,
            asyncio.TaskGroup() as group,
        ):
            await anext(first.aiter_bytes())
            assert waiting.headers["graphflow-queue-position"] == "1"
            one_body = group.create_task(client.post("/api/query", json={**later, "stream": False}))
            while len((await client.get("/api/threads/q/queue")).json()["data"]) < 2:
                await asyncio.sleep(0)
            gate.open()
            await stop(server.application)
            assert (await waiting.aread()).endswith(REJOIN)
            assert (await one_body).status_code == 503
        queued = (await client.get("/api/threads/q/queue")).json()["data"]
        assert [line["message"] for line in queued] == ["later", "later"]


async def test_an_input_that_gets_into_the_queue_while_it_closes_keeps_nobody_waiting(folder: Path, gate: Gate) -> None:
    (folder / ".env").write_text(
        "GRAPHFLOW_SERVER_SHUTDOWN_GRACE_S=0\n", encoding="utf-8"
    )  # the model is held for ever
    gate.close()
    async with asyncio.timeout(PATIENCE_S), serving(make_application(folder, gate=gate)) as (client, server):
        body = {"message": "x", "agentKey": "plain", "chatId": "q"}
        async with client.stream("POST", "/api/query", json=body) as first:
            await anext(first.aiter_bytes())
            await input_queue.close(server.application)
            later = await client.post("/api/query", json={**body, "onBusy": "enqueue", "stream": False})
            assert later.status_code == 503 and later.json()["data"]["error"]["code"] == "shutting_down"
            assert len((await client.get("/api/threads/q/queue")).json()["data"]) == 1


@pytest.mark.parametrize("deltas", [3, 8])
async def test_after_a_sigterm_clients_rejoin_on_the_next_process_without_a_gap(
    processes: Callable[[str], Process], folder: Path, deltas: int
) -> None:
    (folder / "graphs" / "story.json").write_text(json.dumps(STORY), encoding="utf-8")
    for key in ("ask", "hurry"):
        (folder / "graphs" / f"{key}.json").unlink()
    async with upstream(SCRIPT) as model, asyncio.timeout(PATIENCE_S):
        model.gate.release(deltas)
        server = processes(model.url)
        client = await server.start()
        assert server.process is not None
        seen, said = Client(), 0
        body = {"message": "go", "chatId": "s", "agentKey": "story"}
        async with client.stream("POST", "/api/query", json=body) as response:
            async for sse_id, event in frames(response):
                seen.take(sse_id, event)
                said += event["type"] == "content.delta"
                if said == deltas and event["type"] == "content.delta":
                    server.process.send_signal(signal.SIGTERM)
        assert seen.events[-1]["type"] not in ("run.complete", "run.cancel", "run.error", "run.waiting")
        assert await asyncio.to_thread(server.process.wait) in (0, -signal.SIGTERM)
        await server.kill()
        run_id = next(e["runId"] for e in seen.events if e["type"] == "run.start")
        client = await server.start()
        model.gate.release_all()
        resumed = await take(client, "POST", "/api/threads/s/resume")
        assert resumed.events[-1]["type"] == "run.complete"
        await take(client, "GET", f"/api/runs/{run_id}/events", seen, headers={"Last-Event-ID": seen.last_id or ""})
        whole = (await take(client, "GET", f"/api/runs/{run_id}/events")).events
        assert fold(seen.events) == whole
        assert [e["node"] for e in whole if e["type"] == "node.end"] == ["one", "two", "three"]
