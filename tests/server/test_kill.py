"""`kill -9` of a real server in the midst of a run: nothing finished runs twice, no client is left with a gap."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.server.conftest import Process, frames, take, upstream
from tests.service.clients import Client, fold

STORY = {
    "graphflow": "1",
    "providerKey": "auto",
    "state": {
        "type": "object",
        "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}},
    },
    "start": "one",
    "nodes": {
        name: {"use": "model", "set": {"messages": "[out.message]"}, "next": following}
        for name, following in (("one", "two"), ("two", "three"), ("three", "end"))
    },
}
SCRIPT = {
    "turns": [
        {"text": "alpha beta gamma", "piece": 4},
        {"text": "delta epsilon zeta", "piece": 4},
        {"text": "eta theta iota", "piece": 4},
    ]
}
BASH = {"turns": [{"tool_calls": [{"name": "bash", "arguments": {"command": "pwd"}, "id": "c1"}]}, {"text": "done"}]}


@pytest.fixture(autouse=True)
def agents(folder: Path) -> None:
    (folder / "graphs" / "story.json").write_text(json.dumps(STORY), encoding="utf-8")
    for key in ("ask", "hurry"):
        (folder / "graphs" / f"{key}.json").unlink()


@pytest.mark.parametrize("deltas", [2, 6, 11])
async def test_a_killed_run_goes_on_from_the_last_finished_node_and_clients_rejoin_exactly(
    processes: Callable[[str], Process], deltas: int
) -> None:
    async with upstream(SCRIPT) as model, asyncio.timeout(PATIENCE_S):
        model.gate.release(deltas)
        server = processes(model.url)
        client = await server.start()
        old = Client()
        async with client.stream("POST", "/api/query", json={"message": "go", "chatId": "k", "agentKey": "story"}) as r:
            async for sse_id, event in frames(r):
                old.take(sse_id, event)
                if sum(e["type"] == "content.delta" for e in old.events) == deltas:
                    break
        await server.kill()
        run_id = old.events[2]["runId"]
        client = await server.start()
        assert (await client.get("/api/threads/k")).json()["data"]["status"] == "stopped"
        model.gate.release_all()
        resumed = await take(client, "POST", "/api/threads/k/resume")
        assert resumed.events[-1]["type"] == "run.complete"
        rejoined = Client(old.events)
        headers = {"Last-Event-ID": old.last_id or ""}
        await take(client, "GET", f"/api/runs/{run_id}/events", rejoined, headers=headers)
        whole = (await take(client, "GET", f"/api/runs/{run_id}/events")).events
        assert fold(rejoined.events) == whole
        finished = [e["node"] for e in whole if e["type"] == "node.end"]
        assert finished == ["one", "two", "three"]
        done_before = [e for e in old.events if e["type"] == "checkpoint.create" and e["step"]]
        begun_after = [e["node"] for e in resumed.events if e["type"] == "node.start"]
        durable = range(len(done_before), len(finished))  # what was acknowledged, and perhaps more that was not yet
        assert begun_after in [finished[n:] for n in durable]
        assert [e["node"] for e in whole if e["type"] == "node.start"] == finished, "no finished node begins again"
        texts = [e["text"] for e in whole if e["type"] == "content.snapshot"]
        assert texts == ["alpha beta gamma", "delta epsilon zeta", "eta theta iota"]


async def test_an_approval_outlives_a_kill_and_is_answered_once(
    processes: Callable[[str], Process], folder: Path
) -> None:
    async with upstream(BASH) as model, asyncio.timeout(PATIENCE_S):
        model.gate.release_all()
        server = processes(model.url)
        client = await server.start()
        old = Client()
        async with client.stream(
            "POST", "/api/query", json={"message": "where?", "chatId": "a", "agentKey": "react"}
        ) as r:
            async for sse_id, event in frames(r):
                old.take(sse_id, event)
                if event["type"] == "interrupt.request":
                    break
        await server.kill()
        client = await server.start()
        (line,) = (await client.get("/api/inbox")).json()["data"]
        asked = old.events[-1]
        assert line["interruptId"] == asked["interruptId"]
        body = {"chatId": "a", "runId": asked["runId"], "toolId": asked["toolId"], "payload": {"decision": "perhaps"}}
        wrong = (await client.post("/api/submit", json=body)).json()["data"]
        assert (wrong["accepted"], wrong["status"]) == (False, "invalid")
        assert (await client.get("/api/inbox")).json()["data"] == [line], "a wrong-typed answer changes nothing"
        body["payload"] = {"decision": "edit", "arguments": {"command": "ls"}}
        right = (await client.post("/api/submit", json=body)).json()["data"]
        assert (right["accepted"], right["status"]) == (True, "accepted")
        again = (await client.post("/api/submit", json=body)).json()["data"]
        assert (again["accepted"], again["status"]) == (False, "stale")
        headers = {"Last-Event-ID": old.last_id or ""}
        await take(client, "GET", f"/api/runs/{asked['runId']}/events", old, headers=headers)
        if old.events[-1]["type"] != "run.complete":
            await take(
                client, "GET", f"/api/runs/{asked['runId']}/events", old, headers={"Last-Event-ID": old.last_id or ""}
            )
        kinds = [e["type"] for e in old.events]
        assert kinds.index("request.submit") < kinds.index("interrupt.resolve") < kinds.index("tool.result")
        assert kinds.count("tool.result") == 1
        assert "graphs" in next(e["result"] for e in old.events if e["type"] == "tool.result"), "the edited command ran"
        whole = (await take(client, "GET", f"/api/runs/{asked['runId']}/events")).events
        assert fold(old.events) == whole


async def test_a_stopping_server_tells_its_clients_to_rejoin(processes: Callable[[str], Process], folder: Path) -> None:
    async with upstream(SCRIPT) as model, asyncio.timeout(PATIENCE_S):
        model.gate.release(6)
        server = processes(model.url)
        client = await server.start()
        async with client.stream("POST", "/api/query", json={"message": "go", "chatId": "s", "agentKey": "story"}) as r:
            text = ""
            async for piece in r.aiter_text():
                text += piece
                if text.count("content.delta") == 6 and server.process is not None and "retry" not in text:
                    server.process.send_signal(signal.SIGTERM)
        assert "retry: 1000" in text and text.rstrip().endswith("Last-Event-ID")
        assert '"run.complete"' not in text and '"run.cancel"' not in text
        await server.kill()
        client = await server.start()
        model.gate.release_all()
        assert (await take(client, "POST", "/api/threads/s/resume")).events[-1]["type"] == "run.complete"
