"""The hard rule of 1.4 for PLAN_EXECUTE and REACT_TEAM, over real sockets: no delta waits for the one after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from graphflow.models.deltas import Delta, TextDelta, ThinkingDelta, ToolCallDelta
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.models.scripted.server import DeltaGate
from tests.modes.conftest import Watched, call
from tests.modes.test_streaming import Shown, agent_over_sockets, shown

Way = Literal["content", "reasoning", "hidden"]
"""Where the text of a turn goes."""
LOOK = {"tool_calls": [call()]}
DONE = {"tool_calls": [call("task_done", 2, finishContent="Ein „Graph“.")]}
AGENTS: dict[str, tuple[dict[str, Any], list[tuple[dict[str, Any], Way]]]] = {
    "plan": (
        {
            "mode": "PLAN_EXECUTE",
            "verify": "NONE",
            "planExecute": {"planSystemPrompt": "P", "executeSystemPrompt": "E", "exposeReasoningToUser": True},
        },
        [
            ({"reasoning": "Let me see.", "text": '{"steps": [{"title": "Look"}]}'}, "hidden"),
            ({"reasoning": "So.", "text": "I look it up.", **LOOK}, "content"),
            ({"text": "Ein „Graph“ ist \U0001f600 ein Ding.\n"}, "content"),
            ({"reasoning": "Hm.", "text": " \tDone."}, "content"),
        ],
    ),
    "plan with a second pass": (
        {
            "mode": "PLAN_EXECUTE",
            "planExecute": {"planSystemPrompt": "P", "executeSystemPrompt": "E"},
        },
        [
            ({"text": '["Look"]'}, "hidden"),
            ({"text": "Looked."}, "content"),
            ({"text": "A candidate."}, "hidden"),
            ({"text": "The answer."}, "content"),
        ],
    ),
    "team": (
        {"mode": "REACT_TEAM", "reactTeam": {"exposeReasoningToUser": True}},
        [
            ({"reasoning": "Let me see.", "text": "Look it up."}, "reasoning"),
            ({"text": "I look.", **LOOK}, "reasoning"),
            ({"text": "Ein \U0001f600 Ding."}, "reasoning"),
            ({"text": "Finished."}, "reasoning"),
            (DONE, "reasoning"),
            ({"text": "Ein „Graph“ ist ein Ding.\n\tDone."}, "content"),
        ],
    ),
    "team whose answer another agent gives": (
        {"mode": "REACT_TEAM", "reactTeam": {"final": {"agent": "speaker"}}},
        [
            ({"text": "Finished."}, "hidden"),
            (DONE, "hidden"),
            ({"text": "I look.", **LOOK}, "content"),
            ({"text": "Ein „Graph“ ist ein Ding.\n\tDone."}, "content"),
        ],
    ),
    "team that keeps its work to itself": (
        {"mode": "REACT_TEAM", "reactTeam": {}},
        [({"text": "Finished."}, "hidden"), ({"text": "So.", **DONE}, "hidden"), ({"text": "The answer."}, "content")],
    ),
}


SPEAKER = {"mode": "REACT", "tools": ["look_up"], "react": {"systemPrompt": "S"}}


def expected(delta: Delta, way: Way, exposes: bool) -> Shown:
    """What a delta has to show at once."""
    if isinstance(delta, ThinkingDelta):
        return [("reasoning.delta", delta.text)] if exposes else []
    if isinstance(delta, TextDelta):
        return [] if way == "hidden" else [(f"{way}.delta", delta.text)]
    assert isinstance(delta, ToolCallDelta)
    begun: Shown = [] if delta.id is None else [("tool.start", delta.id)]
    return [*begun, ("tool.args", delta.arguments)] if delta.arguments else begun


@pytest.mark.parametrize("name", AGENTS)
async def test_what_a_delta_gives_is_with_the_client_before_the_next_delta_is_sent(name: str, tmp_path: Path) -> None:
    agent, turns = AGENTS[name]
    exposes = any(way == "reasoning" or "reasoning" in turn for turn, way in turns)
    gate, model = DeltaGate(), Watched([{**turn, "piece": 3} for turn, _ in turns])
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "speaker.json").write_text(json.dumps(SPEAKER), encoding="utf-8")
    async with agent_over_sockets(tmp_path, model, gate, {**agent, "tools": ["look_up"]}) as (client, upstream):
        body = {"message": "go", "agentKey": "agent"}
        async with client.stream("POST", "/api/query", json=body) as response:
            got, sent = shown(response), 0
            for turn, way in turns:
                play = ScriptedModel(msgspec.convert({"turns": [{**turn, "piece": 3}]}, Script)).perform([])
                for delta in play.deltas:
                    gate.release()
                    sent += 1
                    for event in expected(delta, way, exposes):
                        assert await anext(got) == event
                    assert upstream.sent <= sent, "the next delta has not been sent yet"
            assert [event async for event in got] == [], "and nothing comes after the last"
