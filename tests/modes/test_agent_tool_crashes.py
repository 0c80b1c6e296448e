"""Agents as tools after a crash: whatever event a process died at, another one goes on within the called agent (E1)."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graphflow.events import event_dict
from graphflow.messages import ToolMessage
from graphflow.service.application import Application
from graphflow.testing.stream_grammar import StreamRules
from tests.modes.test_plan_crashes import followed, resumed
from tests.service.clients import begin, query_of
from tests.service.conftest import at_event, copy_store, make_application

AGENTS: dict[str, Any] = {
    "boss": {
        "mode": "PLAIN_TOOLING",
        "tools": ["agent:clock"],
        "plainTooling": {"systemPrompt": "Ask."},
    },
    "clock": {"mode": "REACT", "tools": ["city_datetime"], "react": {"systemPrompt": "Look."}},
}
SCRIPT: dict[str, Any] = {
    "rules": [
        {
            "match": "the clock",
            "steps": [
                {"tool": "agent__clock", "arguments": {"query": "Paris now"}},
            ],
            "answer": "That is what they say.",
        },
        {
            "match": "Paris now",
            "steps": [{"tool": "city_datetime", "arguments": {"city": "Paris"}}],
            "answer": "It is now.",
        },
    ]
}


def write(folder: Path) -> Path:
    (folder / "graphs").mkdir(parents=True, exist_ok=True)
    for key, data in AGENTS.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(data | {"providerKey": "auto"}), encoding="utf-8")
    return folder


@pytest.fixture
async def apps() -> AsyncIterator[list[Application]]:
    opened: list[Application] = []
    yield opened
    for app in opened:
        await app.aclose()


async def opened(apps: list[Application], folder: Path) -> Application:
    app = make_application(write(folder), script=SCRIPT, durability="sync")
    apps.append(await app.__aenter__())
    return app


def replies(state: Any) -> list[str]:
    return [message.text for message in state.values.messages if isinstance(message, ToolMessage)]


def results(events: Any) -> list[str]:
    return sorted(event["toolId"] for event in events if event["type"] == "tool.result")


@pytest.mark.parametrize("number", [12, 27, 42])
async def test_after_a_crash_the_run_goes_on_within_the_agents(apps: Any, tmp_path: Path, number: int) -> None:
    dead = await opened(apps, tmp_path / "dead")
    write(tmp_path / "copy")
    begun = await begin(dead, query_of(message="Ask the clock", chat_id="t", agent_key="boss"))
    at_event(begun.run, number, functools.partial(copy_store, dead, tmp_path / "copy"))
    whole = await followed(begun)
    assert whole[-1]["type"] == "run.complete"
    assert len(whole) > number
    app = await opened(apps, tmp_path / "copy")
    assert await resumed(app) in (None, "nothing_to_resume")
    graph = await app.graph_of_thread("t")
    events = [event for event, _ in await graph.thread("t").events(begun.run.run_id)]
    rules = StreamRules(whole=False)
    for event in events:
        rules.take(event)
    assert rules.ended
    log = [event_dict(event) for event in events]
    assert results(log) == results(whole)
    assert sorted(replies(await graph.thread("t").state())) == ["It is now."]
