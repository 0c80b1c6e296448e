"""The demo agents with the scripted model, offline: each does with its tools what it says that it does."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graphflow.events import event_dict
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.service.application import Application
from graphflow.settings import load_settings

GRAPHS = Path(__file__).parents[2] / "graphs"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Application]:
    shutil.copytree(GRAPHS, tmp_path / "graphs")
    async with Application(load_settings(tmp_path, environ={})) as opened:
        yield opened


async def events_of(app: Application, agent: str, message: str) -> list[dict[str, Any]]:
    return [event_dict(event) async for event in app.graph(agent).stream(message, "t")]


async def answer_of(app: Application, agent: str, message: str) -> str:
    result = await app.graph(agent).run(message)
    assert result.status == "completed", result.error
    return str(result.output)


def test_every_demo_file_is_good_and_every_form_has_its_viewport(app: Application):
    assert app.errors() == []
    assert app.agents.invalid() == ()
    made = {tool.name: tool for tool in app.toolbox.files.tools}
    assert made["switch_theme"].kind == "action"
    assert app.toolbox.viewports.get(str(made["leave_form"].viewport)) is not None


@pytest.mark.parametrize(
    ("message", "name", "param"),
    [
        ("Switch to dark mode, please.", "switch_theme", {"theme": "dark"}),
        ("换成浅色模式", "switch_theme", {"theme": "light"}),
        ("放烟花!", "launch_fireworks", {}),
        ("Show a modal", "show_modal", {"title": "graphflow", "content": "Show a modal"}),
    ],
)
async def test_the_actions_demo_acts_in_the_client(app: Application, message: str, name: str, param: Any):
    events = await events_of(app, "demo_actions", message)
    told = {event["type"]: event for event in events if event["type"].startswith("action.")}
    assert told["action.start"]["actionName"] == name
    assert (told["action.param"]["param"], told["action.result"]["result"]) == (param, "OK")
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("Where is parcel SF1234567890?", "SF1234567890"),
        ("我的快递 SF1234567890 到哪了", "SF1234567890"),
        ("Alert: the disk array is slow", "`df -h`"),
        ("Is this sensitive? call 13812345678", "1 × phone number"),
    ],
)
async def test_the_service_desk_looks_things_up(app: Application, message: str, part: str):
    answer = await answer_of(app, "demo_service_desk", message)
    assert part in answer
    assert "13812345678" not in answer


async def test_the_weather_demo_counts_tomorrow_from_the_citys_own_date(app: Application):
    events = await events_of(app, "demo_react", "What is the weather in Tokyo tomorrow?")
    results = [json.loads(event["result"]) for event in events if event["type"] == "tool.result"]
    assert [result.get("city") for result in results] == ["Tokyo", "Tokyo"]
    assert results[1]["date"] > results[0]["date"]


async def test_the_form_demo_waits_and_repeats_what_was_entered(app: Application):
    graph = app.graph("demo_form")
    waiting = await graph.run("I need sick leave", "t")
    (question,) = waiting.interrupts
    assert (question.kind, question.tool_name, dict(question.arguments)) == ("frontend", "leave_form", {"kind": "sick"})
    assert question.schema is not None and list(question.schema["required"]) == ["kind", "start", "days"]
    entered = {"kind": "sick", "start": "2030-01-31", "days": 2, "reason": "flu"}
    done = await graph.answer("t", entered)
    assert done.output == "Noted: sick leave, 2 day(s) from 2030-01-31."


async def ask_for_a_poet(app: Application) -> CompiledGraph:
    """The agent creator, waiting for a person, with nothing written."""
    graph = app.graph("demo_agent_creator")
    waiting = await graph.run("Create an agent named poet that writes haiku", "t")
    (question,) = waiting.interrupts
    assert (waiting.status, question.kind, question.tool_name) == ("waiting", "approval", "agent_file_create")
    assert question.arguments["agentId"] == "poet"
    assert not poet(app).exists()
    return graph


def poet(app: Application) -> Path:
    return app.settings.folder / "graphs" / "poet.json"


async def test_the_agent_creator_makes_an_agent_that_then_runs_once_a_person_approves(app: Application):
    graph = await ask_for_a_poet(app)
    done = await graph.answer("t", {"decision": "approve"})
    assert done.output == "The agent poet is in graphs/poet.json."
    app.agents.reload()
    assert await answer_of(app, "poet", "hello")


async def test_a_rejected_agent_is_not_written_and_the_run_goes_on(app: Application):
    graph = await ask_for_a_poet(app)
    done = await graph.answer("t", {"decision": "reject", "reason": "no poets"})
    assert (done.status, poet(app).exists()) == ("completed", False)


async def test_no_standing_rule_approves_agents_in_a_persons_place(app: Application):
    await app.rules.add(
        tool="agent_file_create", decision="allow", args='args.mode == "PLAIN"', agent_key="demo_agent_creator"
    )
    await ask_for_a_poet(app)
