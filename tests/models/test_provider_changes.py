"""A tool loop that changes its provider at each request, between all protocols: what one began another ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

from graphflow.messages import AIMessage, HumanMessage, Message, ToolMessage
from graphflow.models.anthropic.model import AnthropicModel
from graphflow.models.chat_model import ChatOptions, complete
from graphflow.models.gemini.model import GeminiModel
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import PROFILES
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from graphflow.models.responses.model import ResponsesModel
from tests.models import strict_providers as strict
from tests.models.anthropic import service as anthropic
from tests.models.gemini import service as gemini
from tests.models.raw_server import DONE, Answer, call, delta, raw_server
from tests.models.responses import service as responses
from tests.models.turns import spec

ASK: list[Message] = [HumanMessage(content="What is the weather in Paris and Rome?")]


@dataclass(frozen=True)
class Side:
    """A provider: its client, and its service, which calls `weather` once and answers from then on."""

    kind: Any
    key: str
    model: str
    secret: str
    """What it wants back, and nobody else may get."""
    answers: Sequence[Answer]


def claude(model: str) -> Side:
    called = anthropic.turn(
        "tool_use",
        anthropic.thinking(0, f"sig-{model}", "Let me look."),
        anthropic.redacted(1, "sig-hidden"),
        anthropic.text(2, "I look."),
        anthropic.call(3, "toolu_1", "weather", '{"city": "Paris"}'),
    )
    service = anthropic.Service(called, anthropic.turn("end_turn", anthropic.text(0, "Sunny.")), model=model)
    return Side(AnthropicModel, "anthropic", model, f"sig-{model}", [service.answer])


def native_gemini() -> Side:
    calls = [gemini.call("weather", {"city": c}, s, id=f"g-{c}") for c, s in (("Paris", "sig-gemini"), ("Rome", None))]
    called = [gemini.chunk({"text": "hm", "thought": True}), gemini.chunk(*calls), gemini.STOP]
    then = [gemini.chunk(gemini.text("Sunny."), finish="STOP")]
    answers = gemini.service(called, then, issued=["sig-gemini"])
    return Side(GeminiModel, "gemini", "gemini-3.8-flash", "sig-gemini", answers)


def openai() -> Side:
    called = responses.turn(responses.reasoning("sig-openai", "hm"), responses.call("weather", "{}", "call_1", index=1))
    answers = responses.service(called, responses.turn(responses.text("Sunny.")), issued=["sig-openai"])
    return Side(ResponsesModel, "openai", "gpt-5.5", "sig-openai", answers)


def chat(key: str, model: str, secret: str, rule: strict.Rule, *before: bytes, **signed: Any) -> Side:
    called = [*before, delta(tool_calls=[call(0, f"{key}:0/x", "weather", "{}", **signed)]), delta("tool_calls"), DONE]
    then = [delta(content="Sunny."), delta("stop"), DONE]
    answers = [strict.strict(lambda _: None, *called), strict.strict(rule, *then)]
    return Side(OpenAICompatibleModel, key, model, secret, answers)


def openrouter() -> Side:
    item = {"type": "reasoning.text", "text": "hm", "signature": "sig-router", "index": 0}
    rule = strict.openrouter([item])
    return chat("openrouter", "anthropic/claude-sonnet-4.5", "sig-router", rule, delta(reasoning_details=[item]))


SIDES = {
    "claude": lambda: claude("claude-opus-5"),
    "claude with a budget": lambda: claude("claude-sonnet-4-5"),
    "gemini": native_gemini,
    "openai": openai,
    "openrouter": openrouter,
    "gemini by the OpenAI protocol": lambda: chat(
        "gemini", "gemini-3-pro", "sig-google", strict.gemini("sig-google"), extra_content={"google": {"thought_signature": "sig-google"}}
    ),
    "deepseek": lambda: chat("deepseek", "deepseek-v4-pro", "deep-thought", strict.deepseek("deep-thought"), delta(reasoning_content="deep-thought")),
    "kimi": lambda: chat("moonshot", "kimi-k2.6", "kimi-thought", strict.kimi("kimi-thought"), delta(reasoning_content="kimi-thought")),
    "mistral": lambda: chat("mistral", "mistral-medium-3-5", "mistral-thought", strict.mistral, delta(content=[{"type": "thinking", "thinking": "mistral-thought"}])),
}  # fmt: skip


def opened(side: Side, url: str) -> Any:
    # The fake of Anthropic knows its key only, and its client adds the version to the address by itself.
    url = url.removesuffix("/v1") if side.kind is AnthropicModel else url
    provider = Provider(key=side.key, profile=PROFILES[side.key], base_url=url, api_key=anthropic.KEY)
    return side.kind(provider, side.model, limits=Limits(max_retries=0))


async def one(model: Any, messages: list[Message]) -> list[Message]:
    done = (await complete(model, messages, spec("weather"), ChatOptions(compute="HIGH"))).message
    results = [ToolMessage(tool_call_id=c.id, name=c.name, content="21°C") for c in done.tool_calls]
    return [*messages, done, *results]


@pytest.mark.parametrize("side", ["claude", "gemini", "openai"])
async def test_the_same_provider_under_the_openai_protocol_gets_a_conversation_that_it_can_read(side: str) -> None:
    """State of one protocol is nothing to the other, though provider and model are the same."""
    one_side = SIDES[side]()
    async with raw_server(*one_side.answers) as server:
        model = opened(one_side, server.url)
        messages = await one(model, ASK)
        await model.aclose()
    rule = strict.gemini() if one_side.key == "gemini" else lambda sent: strict.foreign(sent, ["extra_content"])
    async with raw_server(strict.strict(rule, delta(content="Sunny."), delta("stop"), DONE)) as server:
        provider = Provider(key=one_side.key, profile=PROFILES[one_side.key], base_url=server.url)
        client = OpenAICompatibleModel(provider, one_side.model, limits=Limits(max_retries=0))
        assert (await one(client, messages))[-1].text == "Sunny."
        await client.aclose()
        contents = [message["content"] for message in server.requests[0].json["messages"]]
    assert all(content is None or isinstance(content, str) for content in contents)


@pytest.mark.parametrize(("first", "second"), [*permutations(SIDES, 2)])
async def test_a_tool_loop_may_go_to_another_provider_and_back(first: str, second: str) -> None:
    """Each gets its own state back, in the midst of the loop and later, and never the other's; nothing is sent twice."""
    one_side, other_side = SIDES[first](), SIDES[second]()
    async with raw_server(*one_side.answers) as server, raw_server(*other_side.answers) as other_server:
        model, other = opened(one_side, server.url), opened(other_side, other_server.url)
        messages = await one(other, await one(model, ASK))
        messages = await one(model, messages)
        messages = await one(other, [*messages, HumanMessage(content="And tomorrow?")])
        await model.aclose()
        await other.aclose()
        bodies, other_bodies = ([r.body.decode() for r in s.requests] for s in (server, other_server))
    assert [isinstance(m, AIMessage) and m.text for m in messages][-1] == "Sunny."
    assert [one_side.secret in sent for sent in bodies] == [False, True]
    assert [other_side.secret in sent for sent in other_bodies] == [False, True]
    assert not any(other_side.secret in sent for sent in bodies)
    assert not any(one_side.secret in sent for sent in other_bodies)
