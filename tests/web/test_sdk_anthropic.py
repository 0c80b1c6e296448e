"""What graphflow sends to Anthropic beside what `anthropic` sends, and every form of it against the SDK's types."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.content import content_of
from graphflow.messages import AIMessage, HumanMessage, ToolCall, ToolMessage, to_wire
from graphflow.models.anthropic.claude_rules import rule_of
from graphflow.models.anthropic.request import RequestWriter
from graphflow.models.anthropic.schema import structured_schema
from graphflow.models.options import ChatOptions
from graphflow.models.profiles import PROFILES
from graphflow.models.remote.loose_json import encode_body, read_json
from graphflow.models.replay.replay import Replay
from tests.models.conversations import CONVERSATIONS, WEATHER, Conversation
from tests.web.test_sdk_requests import by_sdk, options_of

pytestmark = pytest.mark.web
MODEL, MAX_TOKENS = "claude-sonnet-5-5", 128_000


def case(conversation: Conversation, model: str = MODEL, *, compare: bool = True) -> dict[str, Any]:
    writer = RequestWriter(
        PROFILES["anthropic"],
        Replay("anthropic", model),
        rule_of(model),
        max_tokens=MAX_TOKENS,
        structured=True,
        warn=_quiet,
    )
    fields = writer.fields(conversation.messages, conversation.tools, conversation.options, Replay("anthropic", model))
    tools = []
    for tool in conversation.tools:
        about = {"description": tool.description} if tool.description else {}
        tools.append(
            {"name": tool.name, **about, "input_schema": {"properties": {}} | tool.parameters | {"type": "object"}}
        )
    return {
        "body": read_json(encode_body(fields)),
        "messages": [to_wire(message) for message in conversation.messages] if compare else None,
        "tools": tools,
        "options": options_of(conversation.options),
        "model": model,
        "max_tokens": MAX_TOKENS,
    }


def _quiet(*_: Any, **__: Any) -> None:
    pass


async def test_requests_are_those_of_the_anthropic_sdk_and_fit_its_types() -> None:
    cases = {name: case(conversation) for name, conversation in CONVERSATIONS.items()}
    bodies = await by_sdk("sdk_anthropic.py.txt", list(cases.values()))
    for (name, one), body in zip(cases.items(), bodies, strict=True):
        assert one["body"] == body, name


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-6", "claude-opus-5-5", "claude-fable-5-1"])
async def test_thinking_results_and_what_its_tools_did_fit_the_types_of_the_sdk(model: str) -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "characters": 2, "signature": "sig"},
        {"type": "redacted_thinking", "data": "Emw"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "characters": 2},
        {"type": "tool_use"},
    ]
    state = Replay("anthropic", model).stamped({"content": content, "thinking": True})
    said = AIMessage(
        content="Hm", reasoning="hm", tool_calls=(ToolCall(id="a/b", name="weather"),), provider_state=state
    )
    talk = (HumanMessage(content="?"), said, ToolMessage(tool_call_id="a/b", content=content_of(()), error=True))
    cases = [
        case(Conversation(talk, (WEATHER,), ChatOptions(compute=c)), model, compare=False) for c in ("LOW", "HIGH")
    ]
    assert [b["type"] for b in cases[0]["body"]["messages"][1]["content"]] == [b["type"] for b in content]
    await by_sdk("sdk_anthropic.py.txt", cases)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "pattern": "^a"}}, "required": ["a"]},
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "additionalProperties": False},
    {"type": "object", "properties": {"l": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$defs": {"t": {"type": "object", "properties": {"x": {"type": "number"}}}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_schema_has_the_form_that_the_sdk_gives_it(schema: dict[str, Any]) -> None:
    """The form, not the words in which limits are said."""
    talk = Conversation((HumanMessage(content="?"),), (), ChatOptions(schema=schema))
    body = (await by_sdk("sdk_anthropic.py.txt", [case(talk)]))[0]
    assert _without_words(structured_schema(schema)) == _without_words(body["output_config"]["format"]["schema"])


def _without_words(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_words(value) for name, value in schema.items() if name != "description"}
    return [_without_words(value) for value in schema] if isinstance(schema, list) else schema
