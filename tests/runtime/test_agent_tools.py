"""Agents as tools of other agents: `"tools": ["agent:KEY"]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphflow import tool
from graphflow.messages import ToolMessage
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import ToolRunner
from graphflow.tools.running.standing_rules import StandingRule
from tests.runtime.called_agents import Company, agent, asks


@tool(effects="read")
def look_up(word: str) -> str:
    """What a word means."""
    return f"{word}: a thing"


WRITER = agent("writer", description="Writes short texts.")


async def test_the_model_is_offered_the_agent_and_gets_its_answer(tmp_path: Path) -> None:
    company = Company(
        tmp_path,
        "boss",
        {"boss": agent("boss", "agent:writer"), "writer": WRITER},
        {"boss": [asks(("writer", "haiku")), {"text": "Here it is."}], "writer": [{"text": "Old pond."}]},
    )
    events = await company.play()
    assert events[-1]["type"] == "run.complete", events[-1]
    spec = company.model.asked[0][2][0]
    assert (spec.name, spec.description) == ("agent__writer", "Writes short texts.")
    assert spec.parameters["properties"] == {"query": {"type": "string"}}
    assert company.model.asked[1][0] == "writer"
    assert company.model.asked[1][1][-1].text == "haiku"
    reply = (await company.state()).messages[2]
    assert isinstance(reply, ToolMessage)
    assert (reply.tool_call_id, reply.name, reply.text, reply.error) == (
        "call_haiku",
        "agent:writer",
        "Old pond.",
        False,
    )
    assert [event["toolName"] for event in company.of("tool.start")] == ["agent:writer"]
    assert [event["result"] for event in company.of("tool.result")] == ["Old pond."]
    assert "agents#1[0]/agent_writer#1" in {event.get("path") for event in events}


def both(*boss: Any, writer: tuple[Any, ...] = (), **fields: Any) -> dict[str, Any]:
    """A boss with the tools `agent:writer` and `look_up`, and what both models say."""
    return {
        "agents": {
            "boss": agent("boss", "agent:writer", "agent:critic", "look_up", mode="PLAIN_TOOLING", **fields),
            "writer": WRITER,
            "critic": agent("critic", "look_up"),
        },
        "parts": {"boss": boss, "writer": writer, "critic": [{"text": "Too long."}] * 3},
        "tools": [look_up],
    }


async def test_the_results_of_a_mixed_turn_come_in_call_order(tmp_path: Path) -> None:
    turn = asks(("critic", "a"), ("look_up", "b"), ("writer", "c"), ("look_up", "d"))
    company = Company(tmp_path, "boss", **both(turn, {"text": "Done."}, writer=({"text": "Old pond."},)))
    await company.play()
    replies = [message for message in (await company.state()).messages if isinstance(message, ToolMessage)]
    assert [(reply.name, reply.text) for reply in replies] == [
        ("agent:critic", "Too long."),
        ("look_up", "b: a thing"),
        ("agent:writer", "Old pond."),
        ("look_up", "d: a thing"),
    ]
    assert len(company.of("tool.result")) == 4
    usage = await company.usage()
    assert (usage["modelCalls"], usage["toolCalls"]) == (4, 4)


async def test_a_turn_without_calls_of_agents_runs_in_the_tools_node_alone(tmp_path: Path) -> None:
    company = Company(tmp_path, "boss", **both(asks(("look_up", "b")), {"text": "Done."}))
    await company.play()
    assert [event["node"] for event in company.of("node.start")] == ["decide", "tools", "answer"]


async def test_one_call_a_round_is_kept_for_agents_too(tmp_path: Path) -> None:
    parts = {"boss": [asks(("writer", "a"), ("look_up", "b")), {"text": "Done."}], "writer": [{"text": "Old pond."}]}
    agents = {"boss": agent("boss", "agent:writer", "look_up"), "writer": WRITER}
    company = Company(tmp_path, "boss", agents, parts, tools=[look_up])
    await company.play()
    replies = [message for message in (await company.state()).messages if isinstance(message, ToolMessage)]
    assert [reply.error for reply in replies] == [False, True]
    assert "one tool per round" in replies[1].text


async def test_arguments_that_do_not_fit_the_agents_input_are_an_error_result(tmp_path: Path) -> None:
    turn = {"tool_calls": [{"name": "agent__writer", "arguments": {"question": "?"}, "id": "c"}]}
    company = Company(tmp_path, "boss", **both(turn, {"text": "Done."}))
    await company.play()
    reply = (await company.state()).messages[2]
    assert reply.error
    assert "query" in reply.text
    assert [key for key, _, _ in company.model.asked] == ["boss", "boss"]


async def test_an_agents_own_input_schema_is_the_tools(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
    node = {
        "use": "model",
        "with": {"systemPrompt": "poet sings.", "prompt": "${input.topic}"},
        "set": {"said": "out.text"},
    }
    said = {"type": "object", "properties": {"said": {"type": "string", "default": ""}}}
    poet = {
        "graphflow": "1",
        "input": schema,
        "state": said,
        "result": "{'verse': state.said}",
        "start": "a",
        "nodes": {"a": node},
    }
    turn = {"tool_calls": [{"name": "agent__poet", "arguments": {"topic": "frogs"}, "id": "c"}]}
    company = Company(
        tmp_path,
        "boss",
        {"boss": agent("boss", "agent:poet"), "poet": poet},
        {"boss": [turn, {"text": "Done."}], "poet": [{"text": "Splash."}]},
    )
    await company.play()
    assert company.model.asked[0][2][0].parameters == schema
    assert (await company.state()).messages[2].text == '{"verse":"Splash."}'


async def test_a_failure_inside_is_an_error_result_for_the_caller(tmp_path: Path) -> None:
    broken = {"error": {"status": 400, "message": "no such thing"}}
    company = Company(tmp_path, "boss", **both(asks(("writer", "a")), {"text": "Without it, then."}, writer=(broken,)))
    events = await company.play()
    assert events[-1]["type"] == "run.complete"
    reply = (await company.state()).messages[2]
    assert reply.error
    assert "agent:writer has failed (provider_error)" in reply.text


async def test_a_budget_of_its_own_ends_the_agent_and_not_the_caller(tmp_path: Path) -> None:
    agents = {
        "boss": agent("boss", "agent:writer"),
        "writer": agent("writer", "look_up", budget={"maxModelCalls": 1}),
    }
    parts = {
        "boss": [asks(("writer", "a")), {"text": "Done."}],
        # Its one call is spent on a tool; the wrap-up has one in reserve.
        "writer": [asks(("look_up", "b")), {"text": "As far as I came."}],
    }
    company = Company(tmp_path, "boss", agents, parts, tools=[look_up])
    events = await company.play()
    assert events[-1]["type"] == "run.complete", events[-1]
    assert (await company.state()).messages[2].text == "As far as I came."
    assert (await company.usage())["modelCalls"] == 4


async def test_a_spent_budget_without_a_wrap_up_is_an_error_result(tmp_path: Path) -> None:
    node = {
        "use": "model",
        "with": {"systemPrompt": "writer does."},
        "next": [{"if": "visits.a < 3", "to": "a"}, {"to": "end"}],
    }
    messages = {"type": "object", "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}}}
    writer = {
        "graphflow": "1", "state": messages, "budget": {"maxModelCalls": 1, "maxSteps": 9}, "start": "a", "nodes": {"a": node},
    }  # fmt: skip
    agents = {"boss": agent("boss", "agent:writer"), "writer": writer}
    company = Company(
        tmp_path, "boss", agents, {"boss": [asks(("writer", "a")), {"text": "Done."}], "writer": [{"text": "1"}]}
    )
    events = await company.play()
    assert events[-1]["type"] == "run.complete", events[-1]
    reply = (await company.state()).messages[2]
    assert reply.error
    assert "modelCalls" in reply.text


async def test_a_limit_of_the_run_holds_inside_the_agent(tmp_path: Path) -> None:
    agents = {"boss": agent("boss", "agent:writer", budget={"maxModelCalls": 2}), "writer": agent("writer", "look_up")}
    parts = {"boss": [asks(("writer", "a")), {"text": "Wrapped up."}], "writer": [asks(("look_up", "b"))]}
    company = Company(tmp_path, "boss", agents, parts, tools=[look_up])
    events = await company.play()
    assert (events[-1]["type"], events[-1].get("finishReason")) == ("run.complete", "budget")
    assert [key for key, _, _ in company.model.asked] == ["boss", "writer", "boss"]


async def test_agents_that_call_each_other_stop_at_the_depth(tmp_path: Path) -> None:
    agents = {"ping": agent("ping", "agent:pong"), "pong": agent("pong", "agent:ping")}
    parts = {
        "ping": [asks(("pong", str(number))) for number in range(3)] + [{"text": "ping done"}] * 3,
        "pong": [asks(("ping", f"p{number}")) for number in range(3)] + [{"text": "pong done"}] * 3,
    }
    company = Company(tmp_path, "ping", agents, parts)
    events = await company.play(budget={"maxModelCalls": 100})
    assert events[-1]["type"] == "run.complete", events[-1]
    deepest = max(company.of("node.start"), key=lambda event: event.get("path", "").count("agent_"))
    assert deepest["path"].count("agent_") == 5
    refused = [m for _, messages, _ in company.model.asked for m in messages if isinstance(m, ToolMessage) and m.error]
    assert "would be at depth 6" in refused[0].text


async def test_an_approval_of_the_call_names_the_agent(tmp_path: Path) -> None:
    company = Company(
        tmp_path,
        "boss",
        **both(
            asks(("writer", "a")),
            {"text": "Done."},
            writer=({"text": "Old pond."},),
            approval={"agent:writer": "REQUIRE_APPROVAL"},
        ),
    )
    await company.play()
    (asked,) = company.of("interrupt.request")
    assert (asked["toolName"], asked["arguments"]) == ("agent:writer", {"query": "a"})
    done = await company.graph.answer("t", {asked["interruptId"]: {"decision": "edit", "arguments": {"query": "b"}}})
    assert done.status == "completed"
    assert company.model.asked[1][1][-1].text == "b"


async def test_approvals_inside_two_agents_at_once_are_answered_in_any_order(tmp_path: Path) -> None:
    @tool(effects="write", approval_hint="it publishes")
    def publish_it(word: str) -> str:
        """Publishes."""
        return f"published {word}"

    agents = {
        "boss": agent("boss", "agent:writer", "agent:critic", mode="PLAIN_TOOLING"),
        "writer": agent("writer", "publish_it"),
        "critic": agent("critic", "publish_it"),
    }
    parts = {
        "boss": [asks(("writer", "a"), ("critic", "b")), {"text": "Done."}],
        "writer": [asks(("publish_it", "x")), {"text": "W."}],
        "critic": [asks(("publish_it", "y")), {"text": "C."}],
    }
    company = Company(tmp_path, "boss", agents, parts, tools=[publish_it])
    events = await company.play()
    assert events[-1]["type"] == "run.waiting"
    asked = {event["arguments"]["word"]: event["interruptId"] for event in company.of("interrupt.request")}
    half = await company.graph.answer("t", {asked["y"]: {"decision": "approve"}})
    assert half.status == "waiting"
    done = await company.graph.answer("t", {asked["x"]: {"decision": "reject", "reason": "no"}})
    assert done.status == "completed"
    replies = [message.text for message in (await company.state()).messages if isinstance(message, ToolMessage)]
    assert replies == ["W.", "C."]


class Kept:
    """A rule source with these rules."""

    def __init__(self, *rules: StandingRule) -> None:
        self.rules = rules

    async def standing(self) -> Sequence[StandingRule]:
        return self.rules


@pytest.mark.parametrize(("of", "ends"), [("boss", "run.waiting"), ("writer", "run.complete")])
async def test_a_standing_rule_of_the_caller_allows_nothing_inside_the_agent(
    tmp_path: Path, of: str, ends: str
) -> None:
    @tool(effects="write", approval_hint="it publishes")
    def publish_it(word: str) -> str:
        """Publishes."""
        return f"published {word}"

    agents = {"boss": agent("boss", "agent:writer"), "writer": agent("writer", "publish_it")}
    parts = {"boss": [asks(("writer", "a")), {"text": "Done."}], "writer": [asks(("publish_it", "x")), {"text": "W."}]}
    company = Company(tmp_path, "boss", agents, parts, tools=[publish_it])
    rule = StandingRule(id="r", tool="publish_it", decision="allow", created_at=0, created_by="local", agent_key=of)
    services: Any = company.graph.host.services
    services["tool"] = ToolRunner(ToolRegistry([publish_it]), rules=Kept(rule))
    assert (await company.play())[-1]["type"] == ends
