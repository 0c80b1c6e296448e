"""What the model is told of its tools in the system prompt (spec 8.1), checked on what it is really sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from graphflow import load_graph
from graphflow.graph.definition.document import decode_document
from graphflow.memory.prompt_snapshot import system_of
from graphflow.messages import Message, SystemMessage
from graphflow.models.deltas import Delta
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.modes.definition import decode_definition
from graphflow.modes.registry import compile_agent
from graphflow.tools.port import tool


@tool(effects="read", prompt="Give the word\n  in lower case.", after_call_hint="Quote what it says.")
async def lookup(word: str) -> str:
    """Looks a word up."""
    return word


@tool(effects="read", prompt="Only for numbers.")
async def count(word: str) -> int:
    """Counts."""
    return len(word)


@tool(effects="read")
async def plain(word: str) -> str:
    """Says nothing of itself."""
    return word


class Listening(ScriptedModel):
    """Keeps the system prompts that it is sent."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.systems: list[str] = []

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), options: ChatOptions = ChatOptions()
    ) -> AsyncGenerator[Delta, None]:
        self.systems += [message.content for message in messages if isinstance(message, SystemMessage)]
        async for delta in super().stream(messages, tools, options):
            yield delta


CALL = {"tool_calls": [{"name": "lookup", "arguments": {"word": "a"}}]}


async def systems_of(mode: str, block: str, tools: list[str], **more: Any) -> list[str]:
    agent = {
        "key": "a",
        "mode": mode,
        "providerKey": "auto",
        "tools": tools,
        block: {"systemPrompt": "Be kind."},
        **more,
    }
    turns = [CALL, {"text": "done"}, {"text": "done"}] if tools else [{"text": "done"}]
    model = Listening(msgspec.convert({"turns": turns}, Script))
    result = await load_graph(agent, model=model, tools=[lookup, count, plain]).run("hi")
    assert result.status == "completed"
    return model.systems


NOTES = (
    "Be kind.\n\nTool notes:\n- lookup: Give the word in lower case.\n- count: Only for numbers."
    "\n\nAfter a tool was called:\n- lookup: Quote what it says."
)


@pytest.mark.parametrize(("mode", "block"), [("REACT", "react"), ("PLAIN_TOOLING", "plainTooling")])
async def test_notes_and_hints_stand_once_behind_the_prompt_the_same_in_every_turn(mode: str, block: str):
    assert await systems_of(mode, block, ["lookup", "plain", "count"]) == [NOTES, NOTES]


async def test_the_last_turn_at_a_limit_has_the_same_system_prompt_although_it_offers_no_tools():
    agent_budget = {"react": {"systemPrompt": "Be kind.", "maxSteps": 1}}
    assert await systems_of("REACT", "react", ["lookup", "count"], **agent_budget) == [NOTES, NOTES]


async def test_a_tool_without_notes_and_an_agent_without_tools_add_nothing():
    assert (await systems_of("PLAIN", "plain", []))[0] == "Be kind."


async def test_tools_of_a_keyword_are_noted_in_every_turn_and_in_the_record_too():
    agent = {
        "key": "a", "mode": "REACT", "providerKey": "auto", "keywords": ["Words"],
        "react": {"systemPrompt": "Be kind.", "maxSteps": 1},
    }  # fmt: skip
    model = Listening(msgspec.convert({"turns": [CALL, {"text": "done"}]}, Script))
    graph = load_graph(agent, model=model)
    registry = graph.host.services["tool"].registry
    for bound in (lookup, count):
        registry.register(bound, keywords={"words"})
    await graph.run("hi")
    assert model.systems == [NOTES, NOTES]
    document = decode_document(compile_agent(decode_definition(agent), agent).data)
    system = system_of(document, registry, lambda *_: None)
    assert system is not None
    assert system["messages"] == [{"role": "system", "content": NOTES}]
    assert [tool["name"] for tool in system["tools"]] == ["lookup", "count"]
