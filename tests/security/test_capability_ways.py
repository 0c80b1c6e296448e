"""What a run may do is what its starter may: in the background, behind others in the queue, with webhooks, over several servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow import PostgresCheckpointer
from graphflow.runtime.runs import live_runs
from graphflow.service.runs import webhooks
from tests.patience import PATIENCE_S
from tests.postgres import Schemas
from tests.security.test_capabilities import STATE, fetch, ran, set_agent
from tests.server.conftest import serving
from tests.server.test_webhooks import SETTINGS, Receiver
from tests.service.conftest import make_application


def calling(name: str, following: str) -> dict[str, Any]:
    given = {"calls": [{"name": name, "arguments": {}}]}
    return {"use": "tools", "with": given, "set": {"texts": "[out.results[0].text]"}, "next": following}


DOCUMENT: dict[str, Any] = {
    "graphflow": "1", "state": STATE, "tools": ["fetch", "set_agent"], "start": "both",
    "nodes": {
        "both": {"parallel": {"ask": "who", "work": "hold"}, "next": "fetch"},
        "who": {"ask": {"message": "Who?", "schema": {"type": "string"}}, "next": "end"},
        "hold": {"use": "node:hold", "next": "end"},
        "fetch": calling("fetch", "again"),
        "again": {"parallel": {"change": "change", "work": "hold_again"}, "next": "end"},
        "change": calling("set_agent", "end"),
        "hold_again": {"use": "node:hold_again", "next": "end"},
    },
}  # fmt: skip
BODY = {"message": "go", "agentKey": "mixed", "chatId": "t"}
Json = dict[str, Any]


class Servers:
    """Two servers over one store; each is a client, and tokens name who calls."""

    def __init__(self, first: httpx.AsyncClient, second: httpx.AsyncClient, gates: dict[str, asyncio.Event]) -> None:
        self.first, self.second, self.gates = first, second, gates

    async def post(self, server: httpx.AsyncClient, path: str, who: str, **body: Any) -> Json:
        answer = await server.post(path, json=body, headers={"Authorization": f"Bearer {who}-secret"})
        return dict(answer.json()["data"])

    async def start(self, who: str, **more: Any) -> str:
        """The run's id; it is driven by the first server, in the background."""
        return str((await self.post(self.first, "/api/query", who, **BODY, background=True, **more))["runId"])

    async def run(self, run_id: str) -> Json:
        found = await self.second.get(f"/api/runs/{run_id}", headers={"Authorization": "Bearer ann-secret"})
        return dict(found.json()["data"])

    async def asked(self, kind: str) -> Json:
        """The open question of this kind, as the second server has it."""
        while True:
            lines = await self.second.get("/api/inbox", headers={"Authorization": "Bearer ann-secret"})
            for line in lines.json()["data"]:
                if line["kind"] == kind:
                    return dict(line)

    async def answer(self, asked: Json, payload: Any, who: str) -> str:
        """What becomes of an answer that the second server is given."""
        named = {"chatId": "t", "runId": asked["runId"], "toolId": asked["interruptId"], "payload": payload}
        return str((await self.post(self.second, "/api/submit", who, **named))["status"])

    async def ended(self, run_id: str) -> Json:
        for gate in self.gates.values():
            gate.set()
        while (found := await self.run(run_id))["status"] not in ("completed", "failed"):
            pass
        return found


@pytest.fixture(params=["sqlite", "postgres"])
async def servers(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Servers]:
    ran.clear()
    monkeypatch.setattr(live_runs, "WATCH_S", 0.01)
    monkeypatch.setattr(webhooks, "INTERVAL_S", 0.02)
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "mixed.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    tokens = "bob:read+run+answer:bob-secret,ann:*:ann-secret"
    environ = {
        **SETTINGS,
        "GRAPHFLOW_TOOLS_HOLD_MS": "0",
        "GRAPHFLOW_TOKENS": tokens,
        "GRAPHFLOW_SERVER_CAPABILITIES": "bob=shell",
    }
    schemas: Schemas | None = request.getfixturevalue("schemas") if request.param == "postgres" else None
    schema = schemas.take() if schemas else ""
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        apps = [
            make_application(
                tmp_path,
                environ=environ,
                tools=[fetch, set_agent],
                checkpointer=PostgresCheckpointer(schemas.url, schema=schema) if schemas else None,
            )
            for _ in range(2)
        ]
        gates = {"hold": asyncio.Event(), "hold_again": asyncio.Event()}
        for app in apps:
            for name, gate in gates.items():
                app.kinds.node(name, holding(gate))
        first, second = [(await stack.enter_async_context(serving(app)))[0] for app in apps]
        yield Servers(first, second, gates)
        for gate in gates.values():
            gate.set()
    if schemas:
        schemas.empty()


def holding(gate: asyncio.Event) -> Any:
    async def hold(state: Any) -> None:
        await gate.wait()

    return hold


async def test_an_answer_on_another_server_does_not_widen_a_run_in_the_background(servers: Servers) -> None:
    run_id = await servers.start("bob")
    assert await servers.answer(await servers.asked("ask"), "Ann", "ann") == "accepted"
    assert (await servers.ended(run_id))["status"] == "completed"
    assert ran == []


async def test_an_input_in_the_queue_may_do_what_its_own_starter_may(servers: Servers) -> None:
    first = await servers.start("ann")
    asked = await servers.asked("ask")
    queued = await servers.post(servers.second, "/api/query", "bob", **BODY, background=True, onBusy="enqueue")
    assert queued["status"] == "queued"
    assert await servers.answer(asked, "Ann", "ann") == "accepted"
    servers.gates["hold"].set()
    assert await servers.answer(await servers.asked("approval"), {"decision": "approve"}, "ann") == "accepted"
    assert (await servers.ended(first))["status"] == "completed"
    assert ran == ["fetch u", "set_agent n"]
    assert await servers.answer(await servers.asked("ask"), "Ann", "ann") == "accepted"
    assert (await servers.ended(queued["runId"]))["status"] == "completed"
    assert ran == ["fetch u", "set_agent n"]


async def test_what_changes_agents_takes_the_scope_admin_on_every_server(servers: Servers) -> None:
    run_id = await servers.start("ann")
    servers.gates["hold"].set()
    assert await servers.answer(await servers.asked("ask"), "Ann", "bob") == "accepted"
    asked = await servers.asked("approval")
    for payload in (
        {"decision": "approve"},
        {"decision": "edit", "arguments": {"name": "x"}},
        {"decision": "terminate"},
    ):
        assert await servers.answer(asked, payload, "bob") == "invalid"
    assert ran == ["fetch u"]
    assert await servers.answer(asked, {"decision": "approve"}, "ann") == "accepted"
    assert (await servers.ended(run_id))["status"] == "completed"
    assert ran == ["fetch u", "set_agent n"]


async def told(receiver: Receiver, kind: str) -> Json:
    """The question of this kind, once a webhook tells of it; it may tell of the same twice."""
    count = 1
    while True:
        for run in await receiver.wait(count):
            for asked in run["interrupts"]:
                if asked["kind"] == kind:
                    return dict(asked)
        count = len(receiver.got) + 1


async def test_what_a_webhook_tells_lets_nobody_do_more(servers: Servers) -> None:
    receiver = Receiver()
    taking = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{taking.sockets[0].getsockname()[1]}"
    async with taking:
        for gate in servers.gates.values():
            gate.set()
        run_id = await servers.start("ann", webhook=f"{receiver.url}/hook")
        asked = await told(receiver, "ask")
        assert await servers.answer({**asked, "runId": run_id}, "Ann", "bob") == "accepted"
        asked = {**await told(receiver, "approval"), "runId": run_id}
        assert await servers.answer(asked, {"decision": "approve"}, "bob") == "invalid"
        assert await servers.answer(asked, {"decision": "approve"}, "ann") == "accepted"
        assert (await servers.ended(run_id))["status"] == "completed"
    assert ran == ["fetch u", "set_agent n"]
