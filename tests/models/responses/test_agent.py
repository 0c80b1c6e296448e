"""An agent with tools over the Responses API, from the agent's file to its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphflow import MemoryCheckpointer, load_graph, tool
from graphflow.models.providers import open_provider, resolve_provider
from graphflow.models.responses.model import ResponsesModel
from tests.models.raw_server import raw_server
from tests.models.responses.service import call, reasoning, service, text, turn
from tests.models.turns import OpenClient


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}"


async def test_an_agent_calls_its_tools_over_two_turns_of_one_thread(opened: OpenClient, tmp_path: Path) -> None:
    agent = {"mode": "PLAIN_TOOLING", "tools": ["weather"], "plainTooling": {"systemPrompt": "Be short."}}
    (tmp_path / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    first = turn(reasoning("e1", "Look"), call("weather", '{"city":"Paris"}', "call_1", index=1))
    second = turn(reasoning("e2"), text("Sun", "ny.", index=1))
    third = turn(text("Yes."))
    async with raw_server(*service(first, second, third, issued=["e1", "e2"])) as server:
        model: Any = opened(server.url)
        graph = load_graph(tmp_path / "agent.json", checkpointer=MemoryCheckpointer(), tools=[weather], model=model)
        events: list[Any] = [event async for event in graph.stream("Weather?", "t")]
        assert [e.delta for e in events if e.type == "content.delta"] == ["Sun", "ny."]
        await graph.run("Sure?", "t")
        items = server.requests[-1].json["input"]
    said = [item.get("role") or item["type"] for item in items]
    assert said == ["user", "reasoning", "function_call", "function_call_output", "reasoning", "assistant", "user"]
    assert items[3]["output"] == "Sunny in Paris"


async def test_a_profile_opens_the_protocol() -> None:
    model = open_provider(
        resolve_provider("openai", {"OPENAI_API_KEY": "sk-1"}, {"openai": {"protocol": "responses"}}), "gpt-5.5"
    )
    assert isinstance(model, ResponsesModel)
    await model.aclose()
