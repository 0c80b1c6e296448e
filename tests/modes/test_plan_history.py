"""Plans and teams behind the gateway: what was shown live is what memory and history tell; ejected they stay what they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from graphflow.agents.loader import load_agent
from graphflow.nodes.kinds import NodeKinds
from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.tools.registry import ToolRegistry
from tests.server.conftest import serving

GRAPHS = Path(__file__).parents[2] / "graphs"
DEMOS = ("demo_plan_execute", "demo_react_team")


def live_events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data:")]


def texts(events: list[dict[str, Any]], kind: str) -> list[str]:
    """The texts of the blocks of one kind, in the order in which they were opened."""
    found: dict[str, str] = {}
    for event in events:
        key = event.get(f"{kind}Id", "")
        if event["type"] == f"{kind}.delta":
            found[key] = found.get(key, "") + event["delta"]
        elif event["type"] == f"{kind}.snapshot":
            found[key] = event["text"]
    return list(found.values())


def tasks(events: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["type"], event.get("taskId")) for event in events if event["type"].startswith(("plan.", "task."))]


@pytest.mark.parametrize("key", DEMOS)
async def test_what_was_shown_live_is_what_memory_and_history_tell(key: str, tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    shutil.copy(GRAPHS / f"{key}.json", tmp_path / "graphs")
    async with serving(Application(load_settings(tmp_path, environ={}))) as (client, _):
        body = {"message": "What is the weather in Paris tomorrow?", "agentKey": key, "chatId": "c"}
        live = live_events((await client.post("/api/query", json=body)).text)
        told = (await client.get("/api/chat?chatId=c&includeRawMessages=true")).json()["data"]
    history, memory = told["events"], told["rawMessages"]
    assert live[-1]["type"] == history[-1]["type"] == "run.complete"
    for kind in ("content", "reasoning"):
        assert texts(history, kind) == texts(live, kind)
    said = [message["content"] for message in memory if message["role"] == "assistant" and message.get("content")]
    assert said == texts(live, "content")
    assert tasks(history) == tasks(live)
    results = [event["result"] for event in live if event["type"] == "tool.result"]
    assert [message["content"] for message in memory if message["role"] == "tool"] == results


@pytest.mark.parametrize("key", DEMOS)
def test_an_ejected_demo_is_the_same_version(key: str, tmp_path: Path) -> None:
    kinds = NodeKinds(ToolRegistry())
    agent = load_agent(GRAPHS / f"{key}.json", kinds=kinds)
    saved = tmp_path / f"{key}.json"
    saved.write_text(json.dumps(agent.data), encoding="utf-8")
    ejected = load_agent(saved, kinds=kinds)
    assert ejected.mode == "GRAPH" and ejected.version == agent.version
    assert ejected.instructions and not [issue for issue in ejected.warnings if issue.severity == "error"]
