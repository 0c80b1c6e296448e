"""`kill -9` of a real server in the midst of every mode: the resumed log is whole, and hardly a model call is lost (E1)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.models.scripted.server import DeltaGate, ScriptedServer, serve_scripted
from tests.patience import PATIENCE_S
from tests.server.conftest import Process, frames, take
from tests.service.clients import Client, fold
from tests.service.test_mode_crashes import MODES, said

TOOL = "mock_city_weather"
ARGUMENTS = {"city": "Beijing", "date": "2030-01-01"}
TERMINALS = ("run.complete", "run.error", "run.cancel")


def in_the_world(turns: list[Any]) -> list[Any]:
    """The turns with a tool that every server has."""

    def played(turn: Any) -> Any:
        if "tool_calls" not in turn or turn["tool_calls"][0]["name"] != "look":
            return turn
        return {**turn, "tool_calls": [{"name": TOOL, "arguments": ARGUMENTS}]}

    return [played(turn) for turn in turns]


def write_agent(folder: Path, agent: dict[str, Any]) -> None:
    tools = {} if agent["mode"] in ("PLAIN", "THINKING") else {"tools": [TOOL]}
    text = json.dumps({"providerKey": "auto", **agent, **tools})
    (folder / "graphs" / "agent.json").write_text(text, encoding="utf-8")


class Watched(DeltaGate):
    """A gate that knows how many deltas have come to it, and when one is held."""

    def __init__(self) -> None:
        super().__init__()
        self.came = 0
        self.holds = asyncio.Event()

    async def __call__(self, number: int) -> None:
        self.came += 1
        if number >= self._open:
            self.holds.set()
        await super().__call__(number)

    def hold_after(self, count: int) -> None:
        """Lets `count` more deltas through, whatever was let through before."""
        self._open = self.came + count


def calls_of(model: ScriptedServer) -> int:
    return sum(request.path.endswith("/chat/completions") for request in model.requests)


def query_of(chat: str) -> dict[str, Any]:
    return {"message": "How is the weather?", "chatId": chat, "agentKey": "agent"}


async def until_held(client: httpx.AsyncClient, gate: Watched) -> Client:
    """What a client has of a run that stands still in the midst of a model's turn."""
    seen = Client()
    async with client.stream("POST", "/api/query", json=query_of("killed")) as response:
        async for sse_id, event in frames(response):
            seen.take(sse_id, event)
            if event["type"] == "node.start":
                break
        await gate.holds.wait()
    return seen


@pytest.mark.parametrize("mode", MODES)
async def test_a_run_of_any_mode_that_was_killed_is_whole_after_its_resume(
    processes: Callable[[str], Process], folder: Path, mode: str
) -> None:
    agent, turns = MODES[mode]
    write_agent(folder, agent)
    script, gate = msgspec.convert({"turns": in_the_world(turns)}, Script), Watched()
    async with serve_scripted(ScriptedModel(script), gate=gate) as model, asyncio.timeout(PATIENCE_S):
        gate.release_all()
        process = processes(model.url)
        process.env["GRAPHFLOW_STORE_DURABILITY"] = "sync"  # so that what was said to be done is never done again
        client = await process.start()
        whole = (await take(client, "POST", "/api/query", json=query_of("whole"))).events
        assert whole[-1]["type"] == "run.complete", whole[-1]
        calls = calls_of(model)
        gate.hold_after(gate.came // 2)
        old = await until_held(client, gate)
        await process.kill()
        client = await process.start()
        gate.release_all()
        await take(client, "POST", "/api/threads/killed/resume")
        url = f"/api/runs/{old.events[2]['runId']}/events"
        await take(client, "GET", url, old, headers={"Last-Event-ID": old.last_id or ""})
        log = (await take(client, "GET", url)).events
        assert fold(old.events) == log
        assert said(log) == said(fold(whole))
        assert [e["type"] for e in log if e["type"] in TERMINALS] == ["run.complete"]
        assert set(Counter(e["toolId"] for e in log if e["type"] == "tool.result").values()) <= {1}
        assert calls_of(model) - calls <= calls + 1
