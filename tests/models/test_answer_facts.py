"""What an answer reports beside its text: the model that served it, the request id, cached and written tokens, the cost."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.messages import HumanMessage
from graphflow.models.chat_model import complete
from graphflow.models.openai.stream_reader import read_usage
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
