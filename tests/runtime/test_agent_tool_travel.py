"""Agents as tools over time: cancelled, killed, rewound, forked, exported, and under new versions of their files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import MemoryCheckpointer, load_graph, tool
from graphflow.graph.definition.document import decode_document
from graphflow.graph.drawing.render import draw_text
from graphflow.messages import ToolMessage
from graphflow.modes.agent_calls import with_agent_calls
from tests.runtime.called_agents import Company, agent, asks

AGENTS = {"boss": agent("boss", "agent:writer"), "writer": agent("writer", "note")}
ACTED: list[str] = []


@tool(effects="write")
def note(word: str) -> str:
    """Writes a word down."""
    ACTED.append(word)
    return f"noted {word}"


@pytest.fixture(autouse=True)
def nothing_acted() -> None:
    ACTED.clear()


PARTS: dict[str, list[Any]] = {
    "boss": [asks(("writer", "a")), {"text": "Done."}],
    "writer": [{"tool_calls": [{"name": "note", "arguments": {"word": "pond"}, "id": "n1"}]}, {"text": "Noted."}],
}


def replies(messages: Any) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


async def test_cancelling_ends_the_agent_inside_and_a_resume_goes_on_within_it(tmp_path: Path) -> None:
    hangs = {"text": "Hm", "hang": True}
    company = Company(
        tmp_path, "boss", AGENTS, {**PARTS, "writer": [PARTS["writer"][0], hangs, {"text": "Noted."}]}, tools=[note]
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(company.play())
        while len(company.model.asked) < 3:
            await asyncio.sleep(0)
        assert await company.graph.thread("t").cancel()
    assert company.events[-1]["type"] == "run.cancel"
    done = await company.graph.resume("t")
    assert done.status == "completed"
    assert replies((await company.state()).messages) == ["Noted."]
    assert ACTED == ["pond"]


async def test_another_process_goes_on_within_the_agent_after_a_question(tmp_path: Path) -> None:
    store = MemoryCheckpointer()
    agents = {
        **AGENTS,
        "writer": agent("writer", "note", approval={"note": "REQUIRE_APPROVAL"}, budget={"maxModelCalls": 2}),
    }
    first = Company(
        tmp_path, "boss", agents, {"boss": PARTS["boss"][:1], "writer": PARTS["writer"][:1]}, tools=[note], store=store
    )
    await first.play()
    (asked,) = first.of("interrupt.request")
    assert asked["path"].startswith("agents#1[0]/agent_writer#1")
    # The file has changed meanwhile: the run keeps the version that it began with.
    later = {**agents, "writer": agent("other", "note")}
    second = Company(
        tmp_path, "boss", later, {"boss": PARTS["boss"][1:], "writer": PARTS["writer"][1:]}, tools=[note], store=store
    )
    assert second.graph.version != first.graph.version
    done = await second.graph.answer("t", {asked["interruptId"]: {"decision": "approve"}})
    assert done.status == "completed"
    assert replies((await second.state()).messages) == ["Noted."]
    assert (await second.usage())["modelCalls"] == 4
    assert (await second.usage())["toolCalls"] == 2


async def test_a_rewind_into_the_agent_runs_only_what_follows(tmp_path: Path) -> None:
    company = Company(
        tmp_path,
        "boss",
        AGENTS,
        {**PARTS, "writer": [*PARTS["writer"], {"text": "Anew."}], "boss": [*PARTS["boss"], {"text": "Done."}]},
        tools=[note],
    )
    await company.play()
    thread = company.graph.thread("t")
    # The boss's own `tools` came before the writer's.
    tools = next(point for point in await thread.history(limit=100) if point.node == "tools")
    await thread.rewind(tools.id)
    done = await company.graph.resume("t")
    assert done.status == "completed"
    assert replies((await company.state()).messages) == ["Anew."]
    assert ACTED == ["pond"]


def lowered(**fields: Any) -> Any:
    node = {"use": "tools", "set": {"messages": "out.messages"}, "next": "answer"}
    messages = {"type": "object", "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}}}
    answer = {"use": "model", "with": {"systemPrompt": "a"}, "set": {"messages": "out.messages"}}
    nodes = {
        "answer": {**answer, "next": [{"if": "size(out.toolCalls) > 0", "to": "tools"}, {"to": "end"}]},
        "tools": node,
    }
    return {
        "graphflow": "1",
        "state": messages,
        "budget": {"maxRounds": 3, "maxModelCalls": 9},
        "start": "answer",
        "nodes": nodes,
        **fields,
    }


def test_a_document_that_has_the_nodes_stays_as_it_is() -> None:
    once = with_agent_calls(lowered(tools=["agent:writer"]))
    assert with_agent_calls(once) is once
    plain = lowered(tools=["note"])
    assert with_agent_calls(plain) is plain


def test_names_that_are_taken_get_a_number() -> None:
    document = lowered(tools=["agent:writer"])
    document["nodes"]["agents"] = document["nodes"]["answer"]
    assert "agents_2" in with_agent_calls(document)["nodes"]


def test_the_drawing_shows_the_agents_behind_the_tools(snapshot: Any) -> None:
    document = decode_document(dict(with_agent_calls(lowered(tools=["agent:writer", "agent:a-b.c", "note"]))))
    assert draw_text(document) == snapshot


async def test_an_exported_agent_has_the_same_version(tmp_path: Path) -> None:
    company = Company(tmp_path, "boss", AGENTS, PARTS, tools=[note])
    (tmp_path / "saved.json").write_text(
        json.dumps(dict(company.graph.host.documents.checked().data)), encoding="utf-8"
    )
    again = load_graph(tmp_path / "saved.json", tools=[note], model=company.model)
    assert again.version == company.graph.version


async def test_an_agent_that_does_not_exist_is_refused_at_its_tool(tmp_path: Path) -> None:
    from graphflow.errors import DefinitionError

    with pytest.raises(DefinitionError) as refused:
        Company(tmp_path, "boss", {"boss": agent("boss", "agent:writr"), "writer": AGENTS["writer"]}, {}, tools=[note])
    (issue,) = refused.value.errors
    assert (issue.pointer, issue.message) == ("/tools/0", "no agent is named 'writr'")
