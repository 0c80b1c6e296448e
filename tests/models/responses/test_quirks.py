"""What services and gateways send over the Responses protocol, each case with its page or report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from graphflow.content import CitationPart
from graphflow.models.chat_model import Finish, PartDelta, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from tests.models.raw_server import DONE, body, raw_server, stream
from tests.models.responses.service import USAGE, call, created, ended, event, reasoning, text, turn
from tests.models.turns import OpenClient, hear

ARGS = '{"city":"Paris"}'


@dataclass
class Quirk:
    """A stream, and what is heard of it; `source` says who sends it."""

    source: str
    blocks: list[bytes]
    text: str = ""
    thought: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    reason: str = "stop"
    profile: dict[str, Any] = field(default_factory=dict)


def changed(blocks: list[bytes], kind: str, **fields: Any) -> list[bytes]:
    """The blocks with these fields of each event of this kind changed; `...` leaves a field out."""
    out = []
    for block in blocks:
        name, _, data = block.decode().partition("\ndata: ")
        if name == f"event: {kind}":
            payload = {k: v for k, v in (json.loads(data) | fields).items() if v is not ...}
            block = f"{name}\ndata: {json.dumps(payload)}\n\n".encode()
        out.append(block)
    return out


def without(blocks: list[bytes], *kinds: str) -> list[bytes]:
    return [block for block in blocks if block.split(b"\n")[0].removeprefix(b"event: ").decode() not in kinds]


ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ARGS_DELTA, ARGS_DONE = "response.function_call_arguments.delta", "response.function_call_arguments.done"
TEXT_DELTA = "response.output_text.delta"
CALL = call("weather", ARGS, "call_1", pieces=lambda whole: [whole[:5], whole[5:]])
WEATHER = [("call_1", "weather", ARGS)]
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
CALL_ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": ARGS}

QUIRKS = {
    "arguments that come whole only": Quirk(
        "https://github.com/BerriAI/litellm/issues/27144", turn(without(CALL, ARGS_DELTA)), calls=WEATHER, reason="tool_calls"
    ),
    "a call that comes in its last event only": Quirk(
        "https://github.com/lidge-jun/opencodex/pull/4652",
        turn(without(CALL, ADDED, ARGS_DELTA, ARGS_DONE)),
        calls=WEATHER,
        reason="tool_calls",
    ),
    "arguments whose end comes with the whole only": Quirk(
        "https://github.com/vllm-project/vllm/pull/44348", turn([*CALL[:2], *CALL[3:]]), calls=WEATHER, reason="tool_calls"
    ),
    "an empty piece of arguments": Quirk(
        "https://github.com/BerriAI/litellm/pull/39288",
        turn([CALL[0], event(ARGS_DELTA, delta="", item_id="fc_call_1", output_index=0), *CALL[1:]]),
        calls=WEATHER,
        reason="tool_calls",
    ),
    "arguments as an object": Quirk(
        "https://github.com/crewAIInc/crewAI/pull/6657",
        turn([event(ITEM_DONE, output_index=0, item=CALL_ITEM | {"arguments": {"city": "Paris"}})]),
        calls=WEATHER,
        reason="tool_calls",
    ),
    "no arguments": Quirk(
        "https://github.com/openai/openai-python/issues/488",
        turn([event(ITEM_DONE, output_index=0, item=CALL_ITEM | {"arguments": ""})]),
        calls=[("call_1", "weather", "{}")],
        reason="tool_calls",
    ),
    "arguments before their item": Quirk(
        "https://github.com/BerriAI/litellm/pull/36375", turn([CALL[1], CALL[0], *CALL[2:]]), calls=WEATHER, reason="tool_calls"
    ),
    "another item id with each event": Quirk(
        "https://github.com/EricLBuehler/mistral.rs/issues/1944",
        turn(changed(changed(CALL, ARGS_DELTA, item_id="fc_b"), ARGS_DONE, item_id="fc_c")),
        calls=WEATHER,
        reason="tool_calls",
    ),
    "one index for a text and a call": Quirk(
        "https://github.com/teabranch/open-responses-server/pull/63",
        turn(text("Wait."), call("weather", ARGS, "call_1", index=0)),
        text="Wait.",
        calls=WEATHER,
        reason="tool_calls",
    ),
    "one index for two calls": Quirk(
        "https://github.com/teabranch/open-responses-server/pull/63",
        turn(call("weather", ARGS, "call_1"), call("time", "{}", "call_2")),
        calls=[*WEATHER, ("call_2", "time", "{}")],
        reason="tool_calls",
    ),
    "no index at all": Quirk(
        "https://github.com/RESMP-DEV/ccr-rust/pull/25",
        changed(changed(turn(text("Hi.")), ADDED, output_index=...), ITEM_DONE, output_index=...),
        text="Hi.",
    ),
    "calls whose pieces are interleaved": Quirk(
        "https://platform.openai.com/docs/api-reference/responses-streaming",
        turn(
            [
                block
                for pair in zip(CALL, call("time", "{}", "call_2", index=1, pieces=lambda w: [w[:1], w[1:]]), strict=True)
                for block in pair
            ]
        ),
        calls=[*WEATHER, ("call_2", "time", "{}")],
        reason="tool_calls",
    ),
    "indexes with holes that run backwards": Quirk(
        "https://github.com/BerriAI/litellm/pull/36375",
        turn(call("time", "{}", "call_2", index=7), call("weather", ARGS, "call_1", index=3)),
        calls=[("call_2", "time", "{}"), *WEATHER],
        reason="tool_calls",
    ),
    "one id for two calls": Quirk(
        "https://github.com/vllm-project/vllm/pull/36445",
        turn(
            [event(ITEM_DONE, output_index=0, item=CALL_ITEM)],
            [event(ITEM_DONE, output_index=1, item=CALL_ITEM | {"id": "fc_2", "name": "time"})],
        ),
        calls=WEATHER,
        reason="tool_calls",
    ),
    "a text that comes whole only": Quirk(
        "https://github.com/agentgateway/agentgateway/pull/3326", turn(without(text("Hi."), TEXT_DELTA)), text="Hi."
    ),
    "a message that comes in its last event only": Quirk(
        "https://github.com/BerriAI/litellm/pull/32718", turn([event(ITEM_DONE, output_index=0, item=MESSAGE)]), text="Hi."
    ),
    "an output that comes with the end only": Quirk(
        "https://github.com/ENTERPILOT/GoModel/pull/831",
        [created(), ended(output=[MESSAGE, CALL_ITEM])],
        text="Hi.",
        calls=WEATHER,
        reason="tool_calls",
    ),
    "an end without output and usage": Quirk(
        "https://github.com/decolua/9router/issues/705",
        [*turn(text("Hi."))[:-1], event("response.completed", response={"id": "r", "status": "completed", "error": None})],
        text="Hi.",
    ),
    "a finished message whose last event is empty": Quirk(
        "https://github.com/agentgateway/agentgateway/pull/2281",
        turn(changed(text("Hi."), ITEM_DONE, item={"type": "message", "content": []})),
        text="Hi.",
    ),
    "keepalive events": Quirk(
        "https://github.com/openai/openai-node/issues/1964",
        [created(), event("keepalive"), *turn(text("H", "i."))[2:5], event("response.keep_alive"), *turn(text("H", "i."))[5:]],
        text="Hi.",
    ),
    "a first event without a response": Quirk(
        "https://github.com/diegosouzapw/OmniRoute/issues/14330",
        [b'data: {"type":"response.in_progress"}\n\n', *turn(text("Hi."))],
        text="Hi.",
    ),
    "unknown events, items and fields": Quirk(
        "https://github.com/openai/openai-java/issues/767",
        turn(
            [event("response.compaction.compacting", x=1), event("response.new.delta", delta="x", output_index=0)],
            [event(ITEM_DONE, output_index=0, item={"type": "brand_new_call", "id": "n"})],
            text("Hi.", index=1),
        ),
        text="Hi.",
    ),
    "[DONE] behind the end": Quirk(
        "https://openrouter.ai/docs/api/reference/responses/basic-usage", [*turn(text("Hi.")), DONE], text="Hi."
    ),
    "events without their names": Quirk(
        "https://openrouter.ai/docs/api/reference/responses/basic-usage",
        [b"data: " + block.partition(b"\ndata: ")[2] for block in turn(text("Hi."))],
        text="Hi.",
    ),
    "a type that only the event's name says": Quirk(
        "https://platform.openai.com/docs/api-reference/responses-streaming", changed(turn(text("Hi.")), TEXT_DELTA, type=...), text="Hi."
    ),
    "the last event under its name from before": Quirk(
        "https://github.com/Soju06/codex-lb/pull/2396",
        [*turn(text("Hi."))[:-1], event("response.done", response={"usage": USAGE})],
        text="Hi.",
    ),
    "no last event, from a profile that allows it": Quirk(
        "https://github.com/moeru-ai/airi/pull/2589", turn(text("Hi."))[:-1], text="Hi.", profile={"finish_optional": True}
    ),
    "reasoning in full, of open models": Quirk(
        "https://github.com/vllm-project/vllm/pull/24788",
        turn(
            [
                event(ADDED, output_index=0, item={"id": "m", "type": "reasoning", "summary": [], "content": None}),
                event("response.content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": ""}),
                event("response.reasoning_text.delta", output_index=0, content_index=0, delta="The"),
                event("response.reasoning_text.delta", output_index=0, content_index=0, delta=" user"),
                event("response.reasoning_text.done", output_index=0, content_index=0, text="The user"),
            ],
            text("Hi.", index=1),
        ),
        thought="The user",
        text="Hi.",
    ),
    "parts of a summary that nothing separates": Quirk(
        "https://github.com/zendev-sh/goai/pull/129",
        turn(reasoning("e", "**A**", "**B**"), text("Hi.", index=1)),
        thought="**A**\n\n**B**",
        text="Hi.",
    ),
    "a summary that comes in its last event only": Quirk(
        "https://github.com/diegosouzapw/OmniRoute/pull/9527",
        turn(
            without(
                reasoning("e", "**A**", "**B**"),
                "response.reasoning_summary_text.delta",
                "response.reasoning_summary_text.done",
            ),
            text("Hi.", index=1),
        ),
        thought="**A**\n\n**B**",
        text="Hi.",
    ),
    "reasoning and a summary of it": Quirk(
        "https://github.com/ogx-ai/ogx/pull/5451",
        turn(
            [
                event("response.reasoning_text.delta", output_index=0, content_index=0, delta="long"),
                event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="short"),
            ],
            text("Hi.", index=1),
        ),
        thought="long",
        text="Hi.",
    ),
    "a refusal": Quirk(
        "https://platform.openai.com/docs/api-reference/responses-streaming/response/refusal",
        turn(
            [
                event("response.refusal.delta", output_index=0, content_index=0, delta="I can"),
                event("response.refusal.delta", output_index=0, content_index=0, delta="'t."),
                event("response.refusal.done", output_index=0, content_index=0, refusal="I can't."),
            ]
        ),
        text="I can't.",
        reason="content_filter",
    ),
    "an end for the limit of tokens": Quirk(
        "https://platform.openai.com/docs/api-reference/responses-streaming/response/incomplete",
        turn(text("Hi"), end=ended("incomplete", incomplete_details={"reason": "max_output_tokens"})),
        text="Hi",
        reason="length",
    ),
    "an end for the content filter": Quirk(
        "https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/responses",
        turn(text("Hi"), end=ended("incomplete", incomplete_details={"reason": "content_filter"})),
        text="Hi",
        reason="content_filter",
    ),
    "an incomplete response that is called completed": Quirk(
        "https://github.com/farion1231/cc-switch/issues/4535",
        turn(CALL, end=event("response.completed", response={"status": "incomplete", "incomplete_details": None})),
        calls=WEATHER,
        reason="length",
    ),
    "half characters in two events": Quirk(
        "https://github.com/openai/codex/issues/41895",
        turn(
            [
                b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"rain \\ud83c"}\n\n',
                b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\\udf27"}\n\n',
            ]
        ),
        text="rain 🌧",
    ),
    "numbers as texts": Quirk(
        "https://github.com/diegosouzapw/OmniRoute/issues/14330",
        turn(changed(text("Hi."), TEXT_DELTA, sequence_number="3", output_index="0", logprobs=None)),
        text="Hi.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIRKS)
async def test_what_is_sent_is_heard_once_and_whole(opened: OpenClient, name: str) -> None:
    quirk = QUIRKS[name]
    async with raw_server(stream(*quirk.blocks)) as server:
        heard = await hear(opened(server.url, **quirk.profile))
    assert heard.finish.reason == quirk.reason
    assert ("".join(heard.texts), heard.turn.reasoning) == (quirk.text, quirk.thought)
    if name == "one id for two calls":
        assert [call[1] for call in heard.calls] == ["weather", "time"]
        assert len({call[0] for call in heard.calls}) == 2
    else:
        assert heard.calls == quirk.calls


def test_every_quirk_has_a_source() -> None:
    assert len(QUIRKS) >= 25
    assert all(quirk.source.startswith("https://") for quirk in QUIRKS.values())


async def test_each_event_gives_one_delta_at_once_and_none_is_merged(opened: OpenClient) -> None:
    parts = (reasoning("e", "Hm"), text("S", "un", index=1), call("f", "{}", "c", index=2))
    async with raw_server(stream(b"".join(turn(*parts)))) as server:
        heard = await hear(opened(server.url))
    assert heard.deltas[:6] == [
        ThinkingDelta("Hm"),
        TextDelta("S"),
        TextDelta("un"),
        ToolCallDelta(0, "c", "f", ""),
        ToolCallDelta(0, None, None, "{"),
        ToolCallDelta(0, None, None, "}"),
    ]
    assert heard.deltas[-1] == Finish(
        "tool_calls", "completed", Usage(prompt_tokens=12, completion_tokens=5, reasoning_tokens=3, cached_tokens=4)
    )


async def test_citations_follow_the_text_that_they_support(opened: OpenClient) -> None:
    """https://platform.openai.com/docs/guides/tools-web-search#output-and-citations; the finished item repeats them."""
    note = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 0, "end_index": 3}
    file = {"type": "file_citation", "file_id": "f_1", "filename": "a.pdf", "index": 2}
    said = text("Sun.", index=1)
    at = {"output_index": 1, "content_index": 0}
    added = [
        event("response.output_text.annotation.added", annotation=n, annotation_index=i, **at)
        for i, n in enumerate([note, file])
    ]
    part = {"type": "output_text", "text": "Sun.", "annotations": [note, file]}
    whole = changed(said, ITEM_DONE, item={"type": "message", "content": [part]})
    for blocks in (turn(text("Hm. "), [*said[:3], *added, *whole[3:]]), turn(text("Hm. "), whole)):
        async with raw_server(stream(*blocks)) as server:
            heard = await hear(opened(server.url))
        assert [d.part for d in heard.deltas if isinstance(d, PartDelta)] == [
            CitationPart(url="https://e.org", title="E", start=4, end=7),
            CitationPart(source="a.pdf"),
        ]
        assert heard.turn.message().text == "Hm. Sun."


async def test_a_whole_response_in_one_body_is_a_turn(opened: OpenClient) -> None:
    """https://github.com/QuantumNous/new-api/issues/4362: gateways answer without a stream."""
    whole = {"object": "response", "status": "completed", "error": None, "output": [MESSAGE, CALL_ITEM], "usage": USAGE}
    async with raw_server(body(200, json.dumps(whole).encode())) as server:
        heard = await hear(opened(server.url))
    assert (heard.texts, heard.calls, heard.finish.reason) == (["Hi."], WEATHER, "tool_calls")


# --- errors --------------------------------------------------------------------------------------

LIMIT = "Rate limit reached for gpt-5.5 on tokens per min (TPM): Limit 30000, Used 25265. Please try again in 6.57s."


@pytest.mark.parametrize(
    ("source", "blocks", "code", "retryable", "says"),
    [
        (
            "https://github.com/zendev-sh/goai/pull/88",
            [event("error", error={"type": "tokens", "code": "rate_limit_exceeded", "message": LIMIT, "param": None})],
            "rate_limit", True, "tokens per min",
        ),
        (
            "https://platform.openai.com/docs/api-reference/responses-streaming/error",
            [event("error", code="server_shutting_down", message="Server is shutting down.", param=None)],
            "provider_error", True, "shutting down",
        ),
        (
            "https://github.com/zendev-sh/goai/pull/89",
            [event("error", message="Flat text.", code=None, error={"code": "rate_limit_exceeded", "message": ""})],
            "rate_limit", True, "Flat text.",
        ),
        (
            "https://github.com/Effect-TS/effect/pull/7262",
            [event("error", error={"type": "insufficient_quota", "code": "credit_balance_exhausted", "message": "No credits."})],
            "provider_error", False, "No credits.",
        ),
        (
            "https://github.com/raine/claude-code-proxy/pull/139",
            [event("error", status_code=429, error={"type": "usage_limit_reached", "message": "The usage limit has been reached"})],
            "provider_error", False, "usage limit",
        ),
        (
            "https://platform.openai.com/docs/api-reference/responses-streaming/response/failed",
            [created(), ended("failed", error={"code": "server_error", "message": "The model failed."})],
            "provider_error", True, "The model failed.",
        ),
        (
            "https://platform.openai.com/docs/api-reference/responses-streaming/response/failed",
            [created(), ended("failed", error={"code": "invalid_prompt", "message": "Flagged."})],
            "provider_error", False, "Flagged.",
        ),
        (
            "https://github.com/smallmain/vscode-unify-chat-provider/issues/178",
            [created(), ended("failed", error={"code": "context_length_exceeded", "message": "Too long."})],
            "provider_error", False, "Too long.",
        ),
        ("https://github.com/openai/openai-dotnet/issues/881", [ended("failed")], "provider_error", True, "failed"),
        ("https://platform.openai.com/docs/guides/background", [ended("cancelled")], "provider_error", True, "cancelled"),
        (
            "https://github.com/router-for-me/CLIProxyAPI/issues/1407",
            turn(text("Hi."))[:-1], "stream_truncated", True, "without a finish reason",
        ),
        (
            "https://github.com/Wei-Shaw/sub2api/issues/3038",
            [b'data: {"error":{"message":"Upstream request failed","type":"upstream_error"}}\n\n'],
            "provider_error", True, "Upstream request failed",
        ),
        (
            "https://github.com/openai/codex/issues/22472",
            [CALL[0], b'data: {"type":"response.function_call_arguments.delta","delta":"{\\"ci\n\n'],
            "provider_error", None, "unreadable among the arguments",
        ),
    ],
)  # fmt: skip
async def test_errors_in_a_stream_that_began_well(
    opened: OpenClient, source: str, blocks: list[bytes], code: str, retryable: bool | None, says: str
) -> None:
    assert source.startswith("https://")
    async with raw_server(stream(*blocks)) as server:
        failure = (await hear(opened(server.url))).failure
    assert (failure.code, says in failure.message) == (code, True), failure.message
    assert retryable is None or failure.retryable == retryable


async def test_a_limit_that_says_when_to_come_back_is_waited_for(opened: OpenClient, pauses: list[float]) -> None:
    """https://github.com/openai/codex/issues/303: an error in the stream has no header, its text says how long."""
    limited = [created(), ended("failed", error={"code": "rate_limit_exceeded", "message": LIMIT})]
    async with raw_server(stream(*limited), stream(*turn(text("Hi.")))) as server:
        assert (await hear(opened(server.url, retries=1))).texts == ["Hi."]
    assert pauses == [6.57]


async def test_a_limit_of_minutes_is_no_limit_of_seconds(opened: OpenClient, pauses: list[float]) -> None:
    """https://github.com/openai/codex/issues/797: "try again in 7m12s", which is longer than any pause: the error is raised."""
    text_ = "Rate limit reached on requests per day (RPD): Limit 200. Please try again in 7m12s."
    limited = [ended("failed", error={"code": "rate_limit_exceeded", "message": text_})]
    async with raw_server(stream(*limited)) as server:
        failure = (await hear(opened(server.url, retries=2))).failure
    assert (failure.detail["retry_after_s"], pauses) == (432, [])


async def test_an_error_names_the_request_and_never_the_key(opened: OpenClient) -> None:
    """https://platform.openai.com/docs/api-reference/debugging-requests: support asks for `x-request-id`."""
    said = json.dumps(
        {"error": {"message": "Incorrect API key provided: sk-secret-0123456789", "code": "invalid_api_key"}}
    )
    async with raw_server(body(401, said.encode(), x_request_id="req_123")) as server:
        failure = (await hear(opened(server.url))).failure
    assert (failure.detail["status"], failure.detail["request_id"]) == (401, "req_123")
    assert "sk-secret" not in json.dumps([failure.message, failure.detail])


async def test_the_headers_of_a_limit_say_when_to_come_back(opened: OpenClient, pauses: list[float]) -> None:
    """https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers; used where `retry-after` is missing."""
    limit = body(
        429,
        b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}',
        x_ratelimit_remaining_tokens="0",
        x_ratelimit_reset_tokens="1m2.5s",
        x_ratelimit_remaining_requests="9",
        x_ratelimit_reset_requests="6h",
    )
    async with raw_server(limit, stream(*turn(text("Hi.")))) as server:
        assert (await hear(opened(server.url, retries=1))).texts == ["Hi."]
    assert pauses == [62.5]
