"""What graphflow sends to a provider beside what the provider's own SDK sends, for twenty conversations."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, ToolCall, ToolMessage, to_wire
from graphflow.models.gemini import request as gemini_request
from graphflow.models.options import ChatOptions, OneTool, fits_strict
from graphflow.models.profiles import PROFILES
from graphflow.models.replay.replay import Replay
from graphflow.models.responses.request import request_body
from tests.models.conversations import CONVERSATIONS, Conversation
from tests.needs import need

pytestmark = pytest.mark.web
HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv" / "web" / "bin" / "python"
"""The environment of the SDKs, which `make test-web` installs."""


async def by_sdk(script: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bodies that the SDK sends for these cases, once its types have accepted `body` of each."""
    need(PYTHON.exists(), "the SDKs, which `make test-web` installs")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        PYTHON, HERE / script, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate(json.dumps(cases).encode())
    assert process.returncode == 0, out.decode()
    bodies: list[dict[str, Any]] = json.loads(out.splitlines()[-1])
    return bodies


def options_of(options: ChatOptions) -> dict[str, Any]:
    choice = options.tool_choice
    return {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "schema": options.schema,
        "parallel_tool_calls": options.parallel_tool_calls,
        "tool_choice": {"type": "function", "name": choice.name} if isinstance(choice, OneTool) else choice,
    }


def responses_case(conversation: Conversation) -> dict[str, Any]:
    replay = Replay("openai", "gpt-4.1")
    parts = (conversation.messages, conversation.tools, conversation.options)
    tools = []
    for tool in conversation.tools:
        parameters = {"type": "object", "properties": {}} | tool.parameters
        about = {"name": tool.name, "description": tool.description, "parameters": parameters}
        tools.append(about | {"strict": fits_strict(parameters)})
    return {
        "body": msgspec.json.decode(request_body(PROFILES["openai"], replay, *parts, lambda *_, **__: None)),
        "messages": [to_wire(message) for message in conversation.messages],
        "tools": tools,
        "options": options_of(conversation.options),
    }


async def test_responses_requests_are_those_of_the_openai_sdk_and_fit_its_types() -> None:
    cases = {name: responses_case(conversation) for name, conversation in CONVERSATIONS.items()}
    bodies = await by_sdk("sdk_responses.py.txt", list(cases.values()))
    for (name, case), body in zip(cases.items(), bodies, strict=True):
        assert case["body"] == body, name


async def test_reasoning_that_goes_back_fits_the_types_of_the_openai_sdk() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAA"}
    kept = [
        reasoning,
        {"type": "message", "characters": 2, "phase": "commentary"},
        {"type": "function_call", "position": 0},
    ]
    replay = Replay("openai", "gpt-5.5")
    said = AIMessage(
        content="Hm", tool_calls=(ToolCall(id="c", name="weather"),), provider_state=replay.stamped({"output": kept})
    )
    messages = (HumanMessage(content="?"), said, ToolMessage(tool_call_id="c", content="21"))
    case = responses_case(Conversation(messages))
    body = request_body(PROFILES["openai"], replay, messages, (), ChatOptions(compute="HIGH"), lambda *_, **__: None)
    case["body"] = msgspec.json.decode(body)
    assert [item["type"] for item in case["body"]["input"]][1:4] == ["reasoning", "message", "function_call"]
    await by_sdk("sdk_responses.py.txt", [case])


def gemini_case(conversation: Conversation) -> dict[str, Any]:
    replay = Replay("gemini", "gemini-2.0-flash")
    parts = (conversation.messages, conversation.tools, conversation.options)
    tools: list[dict[str, Any]] = []
    for tool in conversation.tools:
        schema = {"parameters_json_schema": tool.parameters} if tool.parameters.get("properties") else {}
        tools.append({"name": tool.name, "description": tool.description or tool.name} | schema)
    return {
        "body": msgspec.json.decode(
            gemini_request.request_body(PROFILES["gemini"], replay, *parts, lambda *_, **__: None)
        ),
        "messages": [to_wire(message) for message in conversation.messages],
        "tools": tools,
        "options": options_of(conversation.options),
    }


async def test_gemini_requests_are_those_of_the_google_sdk_and_fit_its_types() -> None:
    cases = {name: gemini_case(conversation) for name, conversation in CONVERSATIONS.items()}
    bodies = await by_sdk("sdk_gemini.py.txt", list(cases.values()))
    for (name, case), body in zip(cases.items(), bodies, strict=True):
        assert case["body"] == body, name


async def test_parts_that_go_back_to_gemini_fit_the_types_of_the_google_sdk() -> None:
    kept: list[dict[str, Any]] = [
        {"part": {"text": "Hm.", "thought": True}, "signature": "c2ln"},
        {"characters": 2, "signature": "c2ln"},
        {"part": {"executableCode": {"language": "PYTHON", "code": "1"}}, "signature": "c2ln"},
        {"part": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}},
        {"media": 0, "signature": "c2ln"},
        {"call": 0, "id": "a1", "signature": "c2ln"},
    ]
    replay = Replay("gemini", "gemini-3.8-flash")
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    said = AIMessage(
        content=(TextPart(text="Hm"), picture),
        tool_calls=(ToolCall(id="c", name="weather"),),
        provider_state=replay.stamped({"parts": kept}),
    )
    result = ToolMessage(tool_call_id="c", content=(TextPart(text="21"), picture))
    messages = (HumanMessage(content="?"), said, result)
    body = gemini_request.request_body(
        PROFILES["gemini"], replay, messages, (), ChatOptions(compute="HIGH"), lambda *_, **__: None
    )
    case = gemini_case(Conversation(messages[:1])) | {"body": msgspec.json.decode(body)}
    contents = case["body"]["contents"]
    assert [next(iter(part)) for part in contents[1]["parts"]] == [
        "text", "text", "executableCode", "codeExecutionResult", "inlineData", "functionCall",
    ]  # fmt: skip
    assert contents[2]["parts"][0]["functionResponse"]["parts"]
    await by_sdk("sdk_gemini.py.txt", [case])
