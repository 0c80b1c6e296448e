"""A request chooses a model, options and prompt variables where the agent allows it, and nowhere else (spec 3.1)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.models.deltas import Finish, TextDelta
from graphflow.models.options import ChatOptions
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.server.conftest import serving

ALLOWED = {
    "models": ["fast", "smart"], "options": ["temperature", "maxTokens"],
    "variables": {"tone": {"type": "string", "enum": ["dry", "warm"], "default": "dry"}, "n": {"type": "integer"}},
}  # fmt: skip
AGENTS: dict[str, Any] = {
    "free": {
        "graphflow": "1", "providerKey": "auto", "model": "fast", "options": {"temperature": 0.5}, "perRequest": ALLOWED, "start": "say",
        "state": {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}},
        "nodes": {"say": {"use": "model", "with": {"systemPrompt": "Be ${input.variables.tone}."}, "set": {"messages": "[out.message]"}, "next": "end"}},
    },
    "mode": {"mode": "PLAIN", "providerKey": "auto", "perRequest": {"models": ["smart"]}, "plain": {"systemPrompt": "Answer."}},
    "shut": {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Answer."}},
}  # fmt: skip


class Spoken:
    """Models that note what they are asked."""

    provider = "auto"

    def __init__(self, calls: list[Any], model: str | None) -> None:
        self.calls, self.model = calls, model or "default"

    async def stream(
        self, messages: Any, tools: Any = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Any, None]:
        self.calls.append((self.model, options.temperature, options.max_tokens, messages[0].content))
        yield TextDelta(text="yes")
        yield Finish(reason="stop")

    async def aclose(self) -> None: ...


@pytest.fixture
def calls() -> list[Any]:
    return []


def application(folder: Path, calls: list[Any], **environ: str) -> Application:
    (folder / "graphs").mkdir(exist_ok=True)
    for key, document in AGENTS.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(document), encoding="utf-8")
    opener: Any = lambda provider, model: Spoken(calls, model)  # noqa: E731
    return Application(load_settings(folder, environ=environ), models=opener)


@pytest.fixture
async def client(tmp_path: Path, calls: list[Any]) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(application(tmp_path, calls)) as (made, _):
        yield made


async def asked(client: httpx.AsyncClient, agent: str, **fields: Any) -> httpx.Response:
    body = {"message": "hi", "agentKey": agent, "chatId": "t", "stream": False, **fields}
    return await client.post("/api/query", json=body)


async def test_what_the_agent_allows_is_used_recorded_and_gone_with_the_next_input(
    client: httpx.AsyncClient, calls: list[Any]
) -> None:
    chosen = {"model": "smart", "options": {"temperature": 0, "maxTokens": 9}, "variables": {"tone": "warm"}}
    run = (await asked(client, "free", **chosen)).json()["data"]["runId"]
    assert calls == [("smart", 0, 9, "Be warm.")]
    # Answered anew, the run has what its request chose.
    assert (await client.post(f"/api/threads/t/messages/{run}/regenerate", json={"stream": False})).status_code == 200
    assert calls[1] == calls[0]
    await asked(client, "free")
    assert calls[2] == ("fast", 0.5, None, "Be dry.")
    assert (await asked(client, "mode", chatId="m", model="smart")).status_code == 200
    assert calls[3][0] == "smart"


@pytest.mark.parametrize(
    ("agent", "field", "value", "named"),
    [
        ("free", "model", "huge", "fast, smart"), ("free", "options", {"topP": 0.1}, "temperature, maxTokens"),
        ("free", "options", {"temperature": 3}, "temperature"), ("free", "options", {"maxTokens": 0}, "maxTokens"),
        ("free", "variables", {"mood": "x"}, "tone, n"), ("free", "variables", {"tone": "loud"}, "tone"),
        ("free", "variables", {"n": "1"}, "n"), ("shut", "model", "smart", "perRequest.models"),
        ("shut", "options", {"temperature": 0}, "perRequest.options"), ("shut", "variables", {"tone": "dry"}, "perRequest.variables"),
        ("mode", "options", {"temperature": 0}, "perRequest.options"),
    ],
)  # fmt: skip
async def test_everything_else_is_refused_with_what_is_allowed(
    client: httpx.AsyncClient, calls: list[Any], agent: str, field: str, value: Any, named: str
) -> None:
    refused = await asked(client, agent, **{field: value})
    assert (refused.status_code, refused.json()["data"]["error"]["code"]) == (400, "invalid_input")
    assert named in refused.json()["data"]["fields"][field] and calls == []


async def test_a_queued_input_and_a_resumed_run_keep_what_the_request_chose(tmp_path: Path, calls: list[Any]) -> None:
    async with serving(application(tmp_path, calls)) as (client, _):
        stopped = await asked(client, "free", model="smart", variables={"tone": "warm"}, interruptBefore=["say"])
        assert stopped.json()["data"]["status"] == "waiting" and calls == []
    # Another process goes on with it.
    async with serving(application(tmp_path, calls)) as (client, _):
        interrupt = (await client.get("/api/threads/t")).json()["data"]["interrupts"][0]["interruptId"]
        body = {"answers": {interrupt: {"decision": "continue"}}, "stream": False}
        assert (await client.post("/api/threads/t/resume", json=body)).status_code == 200
        assert calls == [("smart", 0.5, None, "Be warm.")]


async def test_settings_only_take_away(tmp_path: Path, calls: list[Any]) -> None:
    async with serving(application(tmp_path, calls, GRAPHFLOW_AGENTS_PER_REQUEST="options,variables")) as (client, _):
        refused = await asked(client, "free", model="smart")
        assert refused.status_code == 400 and "agents.per_request" in refused.json()["msg"]
        assert (await asked(client, "free", options={"temperature": 1})).status_code == 200
        assert (await asked(client, "shut", options={"temperature": 1}, chatId="s")).status_code == 400
        shown = (await client.get("/api/agent?agentKey=free")).json()["data"]["policies"]["perRequest"]
        assert (shown["models"], shown["options"], sorted(shown["variables"])) == (
            [],
            ["temperature", "maxTokens"],
            ["n", "tone"],
        )
