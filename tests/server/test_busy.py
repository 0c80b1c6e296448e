"""`onBusy`, the queue and signals over HTTP (spec 3.1, 3.2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE_S
from tests.server.conftest import ask, frames, serving, take
from tests.service.conftest import Gate, make_application

STORY = {"message": "x", "chatId": "b", "agentKey": "story"}
WAIT = {
    "graphflow": "1",
    "state": {
        "type": "object",
        "properties": {"got": {"type": "array", "default": [], "x-reducer": "append"}},
    },
    "start": "rest",
    "nodes": {
        "rest": {"use": "wait", "with": {"signal": "go", "for": "${input.params.for}"}, "set": {"got": "[out.by]"}, "next": "end"}
    },
}  # fmt: skip


@pytest.fixture
async def client(folder: Path, gate: Gate) -> AsyncIterator[httpx.AsyncClient]:
    (folder / "graphs" / "wait.json").write_text(json.dumps(WAIT), encoding="utf-8")
    async with serving(make_application(folder, gate=gate)) as (made, _):
        yield made


async def queue(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await client.get("/api/threads/b/queue")).json()["data"]
    return listed


async def test_an_enqueued_query_streams_its_run_when_its_turn_comes(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    async with (
        asyncio.timeout(PATIENCE_S),
        client.stream("POST", "/api/query", json=STORY) as first,
        client.stream("POST", "/api/query", json={**STORY, "requestId": "mine", "onBusy": "enqueue"}) as second,
    ):
        assert second.headers["graphflow-queue-position"] == "1"
        assert [(line["position"], line["requestId"], line["message"]) for line in await queue(client)] == [
            (1, "mine", "x")
        ]
        run_id = second.headers["graphflow-run-id"]
        whole = asyncio.ensure_future(take(client, "GET", f"/api/runs/{run_id}/events"))  # noqa: TID251 - awaited below
        one = asyncio.ensure_future(  # noqa: TID251 - awaited below
            client.post("/api/query", json={**STORY, "onBusy": "enqueue", "stream": False})
        )
        while len(await queue(client)) < 2:
            await asyncio.sleep(0.01)
        gate.open()
        assert [event["type"] async for _, event in frames(first)][-1] == "run.complete"
        events = [event async for _, event in frames(second)]
        assert [e["type"] for e in events[:2]] == ["request.query", "run.start"] and events[0]["requestId"] == "mine"
        assert events[1]["runId"] == run_id and events[-1]["type"] == "run.complete"
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
        assert [e["type"] for e in (await whole).events] == [e["type"] for e in events], (
            "who joined early missed nothing"
        )
        body = (await one).json()["data"]
        assert body["status"] == "completed" and body["answer"] and not await queue(client)


async def test_leaving_keeps_an_input_in_the_queue_unless_it_was_to_be_cancelled(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    gate.close()
    async with asyncio.timeout(PATIENCE_S), client.stream("POST", "/api/query", json=STORY) as first:
        async with client.stream("POST", "/api/query", json={**STORY, "onBusy": "enqueue"}) as kept:
            run_id = kept.headers["graphflow-run-id"]
        body = {**STORY, "onBusy": "enqueue", "onDisconnect": "cancel"}
        async with client.stream("POST", "/api/query", json=body) as left:
            assert left.headers["graphflow-queue-position"] == "2"
        while [line["runId"] for line in await queue(client)] != [run_id]:
            await asyncio.sleep(0.01)
        gate.open()
        assert [event["type"] async for _, event in frames(first)][-1] == "run.complete"
        rejoined = await take(client, "GET", f"/api/runs/{run_id}/events")
        assert rejoined.events[-1]["type"] == "run.complete"
        gone = await client.get(f"/api/runs/{left.headers['graphflow-run-id']}/events")
        assert gone.status_code == 404


async def test_an_input_that_can_not_run_is_refused_before_it_is_queued(client: httpx.AsyncClient, gate: Gate) -> None:
    gate.close()
    async with asyncio.timeout(PATIENCE_S), client.stream("POST", "/api/query", json=STORY) as first:
        for wrong in ({"budget": {"maxStps": 1}}, {"agentKey": "nobody"}, {"message": " "}):
            refused = await client.post("/api/query", json={**STORY, "onBusy": "enqueue", **wrong})
            assert refused.status_code == 400, refused.text
        assert not await queue(client)
        gate.open()
        assert [event["type"] async for _, event in frames(first)][-1] == "run.complete"


async def test_a_rollback_over_http_takes_the_run_back(client: httpx.AsyncClient, gate: Gate) -> None:
    await ask(client, **STORY)
    gate.close()
    async with (
        asyncio.timeout(PATIENCE_S),
        client.stream("POST", "/api/query", json={**STORY, "message": "wrong"}) as first,
    ):
        wrong = frames(first)
        async for _, event in wrong:
            if event["type"] == "node.start":
                break
        body = {**STORY, "message": "right", "onBusy": "rollback"}
        second = asyncio.ensure_future(take(client, "POST", "/api/query", json=body))  # noqa: TID251 - awaited below
        async for _, event in wrong:
            if event["type"] == "run.cancel":  # before that the gate would let the run complete
                break
        gate.open()
        assert (await second).events[-1]["type"] == "run.complete"
    state = (await client.get("/api/threads/b/state")).json()["data"]
    assert [m["content"] for m in state["values"]["messages"] if m["role"] == "user"] == ["x", "right"]


async def test_a_signal_wakes_a_wait_and_a_time_ends_it(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        body = {"message": "x", "chatId": "w", "agentKey": "wait", "params": {"for": "P1D"}}
        async with client.stream("POST", "/api/query", json=body) as held:
            async for _, event in frames(held):
                if event["type"] == "interrupt.request":
                    assert event["kind"] == "signal" and event["expiresAt"]
                    break
        assert (await client.get("/api/inbox")).json()["data"] == [], "no person is asked"
        while (await client.get("/api/threads/w")).json()["data"]["status"] != "waiting":
            await asyncio.sleep(0.01)
        sent = await client.post("/api/threads/w/signal", json={"name": "go", "payload": {"a": 1}})
        assert sent.json()["data"] == {"threadId": "w", "name": "go", "woken": True}
        while (await client.get("/api/threads/w")).json()["data"]["status"] != "idle":
            await asyncio.sleep(0.01)
        late = await client.post("/api/threads/w/signal", json={"name": "go"})
        assert late.status_code == 409 and late.json()["data"]["error"]["code"] == "nothing_to_resume"
        timed = await ask(client, chatId="w", agentKey="wait", params={"for": "PT0.2S"})
        assert timed.events[-1]["type"] == "run.complete", "a short time passes while the stream is open"
        state = (await client.get("/api/threads/w/state")).json()["data"]
        assert state["values"]["got"] == ["signal", "timer"]


async def test_broken_signals_are_refused(client: httpx.AsyncClient) -> None:
    for chat, body, status in (
        ("nobody", {"name": "go"}, 404),
        ("nobody", {}, 400),
        ("nobody", {"name": ""}, 400),
        ("nobody", {"name": "go", "extra": 1}, 400),
    ):
        response = await client.post(f"/api/threads/{chat}/signal", json=body)
        assert response.status_code == status, response.text
    assert (await client.get("/api/threads/nobody/queue")).status_code == 404
    gone = await client.delete("/api/threads/b/queue/nothing")
    assert (gone.status_code, gone.json()["data"]["error"]["code"]) == (404, "thread_not_found")
