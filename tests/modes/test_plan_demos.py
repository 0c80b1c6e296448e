"""The demo agents for a plan and for a team answer offline, in the language of the question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.models.scripted.model import ScriptedModel

GRAPHS = Path(__file__).parents[2] / "graphs"


async def played(agent: str, query: str) -> list[Any]:
    graph = load_graph(GRAPHS / f"{agent}.json", model=ScriptedModel())
    return [event async for event in graph.stream(query)]


def said(events: list[Any], kind: str = "content") -> str:
    return "".join(event.delta for event in events if event.type == f"{kind}.delta")


@pytest.mark.parametrize("agent", ["demo_plan_execute", "demo_react_team"])
@pytest.mark.parametrize(
    ("query", "words"), [("What is the weather in Paris tomorrow?", ("Paris", "°C")), ("北京明天天气怎么样?", ("北京", "湿度"))]
)  # fmt: skip
async def test_a_demo_asks_its_tools_and_answers(agent: str, query: str, words: tuple[str, ...]) -> None:
    events = await played(agent, query)
    called = [event.tool_name for event in events if event.type == "tool.start"]
    assert called[:2] == ["city_datetime", "mock_city_weather"]
    assert all(word in said(events) for word in words)
    assert events[-1].type == "run.complete"


async def test_the_plan_of_the_demo_has_two_tasks() -> None:
    events = await played("demo_plan_execute", "What is the weather in Paris?")
    starts = [event.task_name for event in events if event.type == "task.start"]
    assert starts == ["What is the weather in Paris?", "Check the findings"]
    assert "This is what the steps have given" in said(events)


async def test_a_request_that_breaks_the_demos_plan_is_one_task() -> None:
    events = await played("demo_plan_execute", 'Say "hi"')
    assert [event.task_name for event in events if event.type == "task.start"] == ['Say "hi"']


async def test_the_team_of_the_demo_thinks_aloud_and_ends_its_work() -> None:
    events = await played("demo_react_team", "hello")
    assert 'The request is "hello"' in said(events, "reasoning")
    assert events[-1].finish_reason == "task_done"
