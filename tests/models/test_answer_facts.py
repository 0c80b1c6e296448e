"""What an answer reports beside its text: the model that served it, the request id, cached and written tokens, the cost."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.messages import HumanMessage
from graphflow.models.chat_model import complete
from graphflow.models.openai.stream_reader import read_usage
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.providers import open_provider
from tests.models.raw_server import DONE, body, event, raw_server, stream
from tests.models.turns import OpenClient

ASK = (HumanMessage(content="hi"),)
CHOICE = {"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    "completion_tokens_details": {"reasoning_tokens": 5},
    "cost": 0.0125,
}


async def test_an_answer_says_who_served_it_and_what_it_cost(open_client: OpenClient) -> None:
    chunk = event({"id": "c", "model": "vendor/model-0923", "choices": [CHOICE], "usage": USAGE})
    async with raw_server(stream(chunk, DONE, x_request_id="req_123")) as server:
        done = await complete(open_client(server.url), ASK)
    assert (done.served_model, done.request_id) == ("vendor/model-0923", "req_123")
    usage = done.usage
    assert usage is not None
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (60, 30, 5)
    assert usage.cost_usd == 0.0125


async def test_an_answer_that_says_nothing_of_it_has_none(open_client: OpenClient) -> None:
    async with raw_server(stream(event({"choices": [CHOICE]}), DONE)) as server:
        done = await complete(open_client(server.url), ASK)
    assert (done.served_model, done.request_id, done.usage) == (None, None, None)


async def test_a_whole_body_says_it_too(open_client: OpenClient) -> None:
    message = {"message": {"content": "fine"}, "finish_reason": "stop"}
    async with raw_server(body(200, b'{"model": "m", "choices": [%s]}' % _json(message))) as server:
        assert (await complete(open_client(server.url), ASK)).served_model == "m"


def _json(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("said", "cost"),
    [
        ({"cost": 0}, 0.0),
        ({"cost": 1}, 1.0),
        ({"cost_in_usd_ticks": 12_500_000}, 0.00125),
        ({"cost": -1}, None),
        ({"cost": float("inf")}, None),
        ({"cost": float("nan")}, None),
        ({"cost": 10**400}, None),
        ({"cost": True}, None),
        ({"cost": "0.1"}, None),
        ({"cost": None}, None),
    ],
)
def test_a_cost_is_a_number_from_0_up(said: dict[str, Any], cost: float | None) -> None:
    usage = read_usage({"prompt_tokens": 1, **said})
    assert usage is not None and usage.cost_usd == cost


# --- every protocol ------------------------------------------------------------------------------


def named(*events: dict[str, Any]) -> list[bytes]:
    return [b"event: " + e["type"].encode() + b"\n" + event(e) for e in events]


CLAUDE = named(
    {"type": "message_start", "message": {"model": "claude-0923", "usage": {
        "input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "fine"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {
        "output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}}},
    {"type": "message_stop"},
)  # fmt: skip
RESPONSE = {"model": "gpt-0923", "status": "completed", "output": [], "usage": {
    "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}}}  # fmt: skip
RESPONSES = named(
    {"type": "response.created", "response": {"model": "gpt-0923", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "fine"},
    {"type": "response.completed", "response": RESPONSE},
)
GEMINI = [
    event({"modelVersion": "gemini-0923", "responseId": "answer-1", "candidates": [
        {"content": {"parts": [{"text": "fine"}]}, "finishReason": "STOP"}], "usageMetadata": {
        "promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 15, "thoughtsTokenCount": 5}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "blocks", "header", "served", "asked", "written"),
    [
        ("openai", [event({"model": "", "choices": []}), event({"model": "gpt-0923", "choices": [CHOICE], "usage": USAGE})],
         "x_request_id", "gpt-0923", "req_123", 30),
        ("anthropic", CLAUDE, "request_id", "claude-0923", "req_123", 30),
        ("responses", RESPONSES, "x_request_id", "gpt-0923", "req_123", 30),
        ("gemini", GEMINI, "x_other", "gemini-0923", "answer-1", 0),
    ],
)  # fmt: skip
async def test_each_protocol_says_who_served_it_under_which_id_and_for_which_tokens(
    protocol: Any, blocks: list[bytes], header: str, served: str, asked: str, written: int
) -> None:
    async with raw_server(stream(*blocks, **{header: "req_123"})) as server:
        provider = Provider(key="mine", profile=Profile(protocol=protocol), base_url=server.url, api_key="k-123456")
        model = open_provider(provider, "asked-for", {})
        done = await complete(model, ASK)
        await model.aclose()
    assert (done.served_model, done.request_id) == (served, asked)
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (100, 20)
    assert (done.usage.cached_tokens, done.usage.cache_write_tokens, done.usage.reasoning_tokens) == (60, written, 5)


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "responses", "gemini"])
@pytest.mark.parametrize("odd", [7, ["x"], {"model": 7}, "HALF"])
async def test_a_name_that_is_none_spoils_no_answer(protocol: Any, odd: Any) -> None:
    blocks: dict[str, list[bytes]] = {
        "openai": [event({"model": odd, "choices": [CHOICE]})],
        "anthropic": [*named({"type": "message_start", "message": {"model": odd}}), *CLAUDE[1:]],
        "responses": [*named({"type": "response.created", "response": {"model": odd}}), *RESPONSES[1:3], *named(
            {"type": "response.completed", "response": {**RESPONSE, "model": odd}})],
        "gemini": [event({"modelVersion": odd, "candidates": [{"content": {"parts": [{"text": "fine"}]}, "finishReason": "STOP"}]})],
    }  # fmt: skip
    async with raw_server(stream(*(block.replace(b"HALF", b"\\ud83d") for block in blocks[protocol]))) as server:
        provider = Provider(key="mine", profile=Profile(protocol=protocol), base_url=server.url, api_key="k-123456")
        model = open_provider(provider, "asked-for", {})
        done = await complete(model, ASK)
        await model.aclose()
    assert (done.message.text, done.served_model) == ("fine", None)
