"""A conversation that code has made is sent as every provider takes it: ids once, calls answered, results behind their calls."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from graphflow.content import ImagePart
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.providers import open_provider
from graphflow.models.remote.retry import Limits
from graphflow.models.replay.pairing import repaired
from tests.models.raw_server import body, raw_server
from tests.models.turns import hear

PROTOCOLS = ("openai", "responses", "anthropic", "gemini", "library")
REFUSED = body(400, b'{"error": {"message": "no"}}')


def turn(*ids: str) -> AIMessage:
    return AIMessage(tool_calls=tuple(ToolCall(id=call_id, name="look") for call_id in ids))


def result(call_id: str, text: str = "r") -> ToolMessage:
    return ToolMessage(tool_call_id=call_id, content=text)


def wrong(messages: Sequence[Message]) -> str | None:
    """Why a provider refuses the conversation."""
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return f"result of {message.tool_call_id!r} without its call"
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return f"calls without results: {waiting}"
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            if not call.id or call.id in seen:
                return f"the id {call.id!r} is empty or used twice"
            seen.add(call.id)
            waiting.append(call.id)
    return f"calls without results: {waiting}" if waiting else None


def test_results_stand_in_the_order_of_their_calls() -> None:
    """Gemini pairs results without ids by their place."""
    said: list[Message] = [HumanMessage(content="?"), turn("a", "b", "c"), result("c"), result("a"), result("b")]
    assert [m.tool_call_id for m in repaired(said) if isinstance(m, ToolMessage)] == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(200))
def test_what_code_makes_of_calls_and_results_becomes_a_conversation_that_providers_take(seed: int) -> None:
    draw = random.Random(seed)
    messages: list[Message] = []
    for number in range(draw.randrange(1, 9)):
        kind = draw.randrange(3)
        ids = [draw.choice(["", "a", "b", "a~12345678", "c_2"]) for _ in range(draw.randrange(1, 4))]
        said = (
            HumanMessage(content=f"q{number}")
            if kind == 0
            else turn(*ids)
            if kind == 1
            else result(ids[0], f"r{number}")
        )
        messages.append(said)
    sent = repaired(messages)
    assert wrong(sent) is None
    assert (sent is messages) == (repaired(sent) is sent and list(sent) == messages)
    told = "".join(message.text for message in sent)
    for message in messages:
        assert message.text in told  # nothing is lost


def test_results_of_calls_with_one_id_follow_in_the_order_of_the_calls() -> None:
    sent = repaired([turn("a", "a", ""), result("a", "first"), result("", "third"), result("a", "second")])
    calls = sent[0].tool_calls  # type: ignore[union-attr]
    assert [call.id for call in calls] == ["a", "a_2", "call"]
    assert [(m.tool_call_id, m.text) for m in sent[1:] if isinstance(m, ToolMessage)] == [
        ("a", "first"), ("a_2", "second"), ("call", "third"),
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_no_protocol_sends_a_result_without_its_call_as_one(protocol: Any) -> None:
    """Three protocols sent it as it was, and the whole request was refused."""
    lost = ToolMessage(tool_call_id="gone", content="21 degrees")
    shown = ToolMessage(tool_call_id="gone", content=(ImagePart(data=b"\x89PNG"),))
    async with raw_server(REFUSED) as server:
        provider = Provider(key="mine", profile=Profile(protocol=protocol), base_url=server.url, api_key="k-123456")
        model = open_provider(provider, "m", {}, limits=Limits(max_retries=0))
        await hear(model, [HumanMessage(content="hi"), lost, shown])
        await model.aclose()
    sent = json.dumps(server.requests[0].json)
    assert "Result of an earlier call:" in sent and "21 degrees" in sent
    assert '"gone"' not in sent and '"tool"' not in sent
