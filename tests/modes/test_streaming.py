"""The hard rule of 1.4 in every mode, over real sockets: the upstream sends its next delta only when the client has what
the last one gave.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from graphflow.models.deltas import Delta, TextDelta, ThinkingDelta, ToolCallDelta
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.models.scripted.server import DeltaGate, ScriptedServer, serve_scripted
from graphflow.modes.definition import BLOCKS
from graphflow.nodes.reasoning_summary import SummaryReader
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.modes.conftest import EVERY_MODE, Watched, call, look_up, summary
from tests.patience import PATIENCE_S
from tests.server.conftest import frames, serving

Shown = list[tuple[str, str]]
"""Events by type and text."""
KINDS = {"content.delta": "delta", "reasoning.delta": "delta", "tool.start": "toolId", "tool.args": "delta"}
ANSWER = "Ein „Graph“ ist \U0001f600 ein Ding.\n\tDone."
HIDDEN = "A candidate."


def form(mode: str, output: str, text: str) -> str:
    """The text in the form that the mode asks for, every character beyond ASCII escaped."""
    asked = output or ("REASONING_SUMMARY" if mode.startswith("THINKING") else "PLAIN")
    return json.dumps({"reasoningSummary": "Weil: \U0001f914.", "finalText": text}) if asked != "PLAIN" else text


def turns_of(mode: str, output: str, verify: str) -> list[tuple[dict[str, Any], bool]]:
    """Recorded turns in pieces of three characters, and whether each one's text is a candidate."""
    turns: list[tuple[dict[str, Any], bool]] = []
    secret = verify == "SECOND_PASS_FIX"
    if mode in ("PLAIN_TOOLING", "THINKING_TOOLING", "REACT"):
        turns.append(({"reasoning": "Let me see.", "text": "I look it up.", "tool_calls": [call()]}, secret))
    if secret:
        turns.append(({"reasoning": "Hm.", "text": form(mode, output, HIDDEN)}, True))
    turns.append(({"reasoning": "So.", "text": form(mode, output, ANSWER)}, False))
    return [({**turn, "piece": 3}, held) for turn, held in turns]


class Expectation:
    """What each delta of a turn has to show at once."""

    def __init__(self, *, held: bool, is_summary: bool) -> None:
        self._held, self._reader = held, SummaryReader() if is_summary else None
        self._kept: list[str] = []

    def of(self, delta: Delta) -> Shown:
        if isinstance(delta, ThinkingDelta):
            return [("reasoning.delta", delta.text)]
        if isinstance(delta, TextDelta):
            return self._text(delta.text)
        assert isinstance(delta, ToolCallDelta)
        shown: Shown = [] if delta.id is None else [*self._let_go(), ("tool.start", delta.id)]
        return [*shown, ("tool.args", delta.arguments)] if delta.arguments else shown

    def _text(self, text: str) -> Shown:
        pieces = [("finalText", text)] if self._reader is None else self._reader.feed(text)
        if self._held:
            self._kept += [text for field, text in pieces if field == "finalText"]
            return []
        return [("content.delta" if f == "finalText" else "reasoning.delta", text) for f, text in pieces]

    def _let_go(self) -> Shown:
        kept, self._kept = "".join(self._kept), []
        return [("content.delta", kept)] if kept else []


@asynccontextmanager
async def agent_over_sockets(
    folder: Path, model: ScriptedModel, gate: DeltaGate, agent: dict[str, Any]
) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedServer]]:
    """A server with this agent, whose model is behind a gate and a socket of its own."""
    (folder / "graphs").mkdir(exist_ok=True)
    (folder / "graphs" / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    async with serve_scripted(model, gate=gate) as upstream, asyncio.timeout(PATIENCE_S):
        environ = {"LLM_BASE_URL": upstream.url, "OPENAI_API_KEY": "key-of-nobody", "LLM_MODEL_ID": "m"}
        application = Application(load_settings(folder, environ=environ), tools=(look_up,))
        async with serving(application) as (client, _):
            yield client, upstream


async def shown(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """The events of blocks as they reach the client."""
    async for _, event in frames(response):
        if event["type"] in KINDS:
            yield event["type"], event[KINDS[event["type"]]]


@pytest.mark.parametrize("verify", ["NONE", "SECOND_PASS_FIX"])
@pytest.mark.parametrize("output", ["PLAIN", "REASONING_SUMMARY"])
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_what_a_delta_gives_is_with_the_client_before_the_next_delta_is_sent(
    mode: str, output: str, verify: str, tmp_path: Path
) -> None:
    turns = turns_of(mode, output, verify)
    gate, model = DeltaGate(), Watched([turn for turn, _ in turns])
    agent = {
        "mode": mode, "output": output, "verify": verify, BLOCKS[mode]: {"systemPrompt": "Help.", "exposeReasoningToUser": True},
        "tools": ["look_up"] if len(turns) > (verify != "NONE") + 1 else [],
    }  # fmt: skip
    async with agent_over_sockets(tmp_path, model, gate, agent) as (client, upstream):
        body = {"message": "go", "agentKey": "agent"}
        async with client.stream("POST", "/api/query", json=body) as response:
            got, sent = shown(response), 0
            for turn, held in turns:
                expectation = Expectation(held=held, is_summary=output == "REASONING_SUMMARY")
                for delta in ScriptedModel(msgspec.convert({"turns": [turn]}, Script)).perform([]).deltas:
                    gate.release()
                    sent += 1
                    for expected in expectation.of(delta):
                        assert await anext(got) == expected
                    assert upstream.sent <= sent, "the next delta has not been sent yet"
            assert [event async for event in got] == [], "and nothing comes after the last"


async def test_thinking_in_tags_is_reasoning_as_it_comes(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    agent = {"mode": "REACT", "providerKey": "tags", "react": {"systemPrompt": "Help.", "exposeReasoningToUser": True}}
    (tmp_path / "graphs" / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    gate, model = DeltaGate(), Watched([{"text": "<think>Hm, so.</think>Yes.", "piece": 2}])
    async with serve_scripted(model, gate=gate) as upstream, asyncio.timeout(PATIENCE_S):
        provider = f'[providers.tags]\nbase_url = "{upstream.url}"\nmodel = "m"\nthink_tags = true\n'
        (tmp_path / "graphflow.toml").write_text(provider, encoding="utf-8")
        async with (
            serving(Application(load_settings(tmp_path, environ={}))) as (client, _),
            client.stream("POST", "/api/query", json={"message": "go", "agentKey": "agent"}) as response,
        ):
            gate.release(4)
            got = shown(response)
            assert await anext(got) == ("reasoning.delta", "H")
            assert upstream.sent == 4
            gate.release_all()
            rest = [event async for event in got]
    said = {kind: "".join(text for k, text in rest if k == kind) for kind, _ in rest}
    assert said == {"reasoning.delta": "m, so.", "content.delta": "Yes."}


@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_hidden_reasoning_is_in_no_stream_and_no_history_but_in_the_state(mode: str, tmp_path: Path) -> None:
    gate = DeltaGate()
    gate.release_all()
    text = summary("SECRET why.", "Yes.") if mode.startswith("THINKING") else "Yes."
    agent = {"mode": mode, BLOCKS[mode]: {"systemPrompt": "Help.", "exposeReasoningToUser": False}}
    model = Watched([{"reasoning": "SECRET thought. ", "text": text}])
    async with agent_over_sockets(tmp_path, model, gate, agent) as (client, _):
        live = (await client.post("/api/query", json={"message": "go", "agentKey": "agent", "chatId": "c"})).text
        history = (await client.get("/api/chat?chatId=c")).text
        state = (await client.get("/api/threads/c/state")).json()["data"]
    assert "Yes." in live and "SECRET" not in live
    assert "Yes." in history and "SECRET" not in history
    last = state["values"]["messages"][-1]
    assert last["content"] == "Yes." and last["reasoning"].startswith("SECRET thought. ")
