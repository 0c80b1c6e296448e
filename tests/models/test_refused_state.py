"""State that its own provider refuses, after a change of key, account or server: one more request, without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, Message, ProviderState, ToolCall, ToolMessage
from graphflow.models.anthropic.model import AnthropicModel
from graphflow.models.chat_model import ChatOptions, complete
from graphflow.models.gemini.model import GeminiModel
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import PROFILES
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.replay.refusals import STATE_REFUSALS
from graphflow.models.responses.model import ResponsesModel
from tests.models.anthropic import service as anthropic
from tests.models.gemini import service as gemini
from tests.models.raw_server import DONE, Answer, Connection, body, delta, raw_server, stream
from tests.models.responses import service as responses
from tests.models.turns import spec

SECRET = "0paque-" + "x" * 30


def thread(provider: str, model: str, message: dict[str, Any], call: dict[str, Any] | None = None) -> list[Message]:
    """A tool loop with state of this model."""
    state = ProviderState(provider=provider, model=model, data=message) if message else None
    of_call = ProviderState(provider=provider, model=model, data=call) if call else None
    called = ToolCall(id="call_1", name="weather", provider_state=of_call)
    said = AIMessage(reasoning="hm", tool_calls=(called,), provider_state=state)
    return [HumanMessage(content="?"), said, ToolMessage(tool_call_id="call_1", name="weather", content="21")]


CASES: dict[str, tuple[str, str, list[Message], list[bytes], str]] = {
    "responses": (
        "openai", "gpt-5.5",
        thread("openai", "gpt-5.5", {"output": [{"type": "reasoning", "id": "rs", "encrypted_content": SECRET}, {"type": "function_call", "position": 0}]}),
        responses.turn(responses.text("Sunny.")),
        "The encrypted content gAAA...DQ== could not be verified.",
    ),
    "anthropic": (
        "anthropic", "claude-opus-5",
        thread("anthropic", "claude-opus-5", {"content": [{"type": "thinking", "characters": 2, "signature": SECRET}, {"type": "tool_use"}], "thinking": True}),
        anthropic.turn("end_turn", anthropic.text(0, "Sunny.")),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "gemini": (
        "gemini", "gemini-3.8-flash",
        thread("gemini", "gemini-3.8-flash", {"parts": [{"call": 0, "signature": SECRET}]}),
        [gemini.chunk(gemini.text("Sunny."), finish="STOP")],
        "Corrupted thought signature.",
    ),
    "openai": (
        "openrouter", "anthropic/claude-sonnet-4.5",
        thread("openrouter", "anthropic/claude-sonnet-4.5", {"reasoning_details": [{"type": "reasoning.encrypted", "data": SECRET}]}),
        [delta(content="Sunny."), delta("stop"), DONE],
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
}  # fmt: skip


def error_body(why: str, *, gateway: bool) -> bytes:
    """As a service words it, or a gateway that passes it on: https://github.com/bytedance/deer-flow/issues/1790."""
    error: dict[str, Any] = {"type": "error", "error": {"message": why, "type": "invalid_request_error"}}
    if gateway:
        raw = {"raw": json.dumps(error), "provider_name": "Somebody"}
        error = {"error": {"message": "Provider returned error", "code": 400, "metadata": raw}}
    return json.dumps(error).encode()


def refusing(why: str, turn: list[bytes], *, when: Callable[[bytes], bool]) -> Answer:
    async def answer(connection: Connection) -> None:
        if when(connection.request.body):
            gateway = b'"anthropic/' in connection.request.body
            await body(400, error_body(why, gateway=gateway))(connection)
        else:
            await stream(*turn)(connection)

    return answer


def opened(protocol: str, key: str, model: str, url: str) -> Any:
    provider = Provider(key=key, profile=PROFILES[key], base_url=url, api_key="sk-secret-0123456789")
    clients = {"responses": ResponsesModel, "anthropic": AnthropicModel, "gemini": GeminiModel}
    return clients.get(protocol, OpenAICompatibleModel)(provider, model, limits=Limits(max_retries=0))


@pytest.mark.parametrize("protocol", CASES)
async def test_a_thread_goes_on_without_the_state_that_was_refused(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `max_retries=0`: it is another request, which no limit of retries counts. The log says so."""
    key, model, messages, turn, why = CASES[protocol]
    async with raw_server(refusing(why, turn, when=lambda sent: SECRET.encode() in sent)) as server:
        client = opened(protocol, key, model, server.url)
        done = await complete(client, messages, spec("weather"))
        await client.aclose()
        assert [SECRET.encode() in request.body for request in server.requests] == [True, False]
        assert all(b"weather" in request.body and b"21" in request.body for request in server.requests)
    assert done.message.text == "Sunny."
    logged = capsys.readouterr().err
    assert logged.count("model.state_left_out") == 1 and "model.retry" not in logged
    assert SECRET not in logged


async def test_a_loop_that_lacks_thinking_goes_on_without_being_asked_to_think() -> None:
    """A call of another model, sent to Claude behind a gateway: https://github.com/OpenRouterTeam/ai-sdk-provider/issues/245"""
    key, model, messages, turn, _ = CASES["openai"]
    called = AIMessage(tool_calls=(ToolCall(id="call_1", name="weather"),))
    why = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    async with raw_server(refusing(why, turn, when=lambda sent: b"reasoning_effort" in sent)) as server:
        client = opened("openai", key, model, server.url)
        done = await complete(client, [messages[0], called, messages[2]], spec("weather"), ChatOptions(compute="HIGH"))
        await client.aclose()
        assert ["reasoning_effort" in request.json for request in server.requests] == [True, False]
    assert done.message.text == "Sunny."


@pytest.mark.parametrize("protocol", CASES)
async def test_a_second_refusal_and_one_of_a_request_without_state_are_errors(protocol: str) -> None:
    key, model, messages, turn, why = CASES[protocol]
    for sent, requests in ((messages, 2), (messages[:1], 1)):
        async with raw_server(refusing(why, turn, when=lambda _: True)) as server:
            client = opened(protocol, key, model, server.url)
            with pytest.raises(ModelError, match="answered 400"):
                await complete(client, sent, spec("weather"))
            await client.aclose()
            assert len(server.requests) == requests


@pytest.mark.parametrize("protocol", CASES)
async def test_any_other_refusal_is_the_error_that_it_is(protocol: str) -> None:
    key, model, messages, turn, _ = CASES[protocol]
    async with raw_server(refusing("temperature is too high", turn, when=lambda _: True)) as server:
        client = opened(protocol, key, model, server.url)
        with pytest.raises(ModelError, match="temperature"):
            await complete(client, messages, spec("weather"))
        await client.aclose()
        assert len(server.requests) == 1


def test_every_wording_has_its_source_and_date() -> None:
    for row in STATE_REFUSALS:
        assert row.source.startswith("https://") and len(row.checked) == len("2026-01-01"), row


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ('{"error":{"message":"tools.0.name: too long","type":"invalid_request_error"}}', "tools.0.name: too long"),
        ({"error": {"message": "tools.0.name: too long"}}, "tools.0.name: too long"),
        ("upstream timed out sk-secret-0123456789", "upstream timed out ***"),
        ('{"error":{"message":"outer","metadata":{"raw":"{}"}}}', "outer"),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
async def test_what_the_service_behind_a_gateway_said_is_in_the_error(raw: Any, told: str) -> None:
    """Without it the error says "Provider returned error" and no more."""
    error = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}
    async with raw_server(body(400, json.dumps(error).encode())) as server:
        client = opened("openai", "openrouter", "a/b", server.url)
        with pytest.raises(ModelError) as caught:
            await complete(client, [HumanMessage(content="?")])
        await client.aclose()
    assert caught.value.detail["excerpt"] == "Provider returned error" + (f": {told}" if told else "")
