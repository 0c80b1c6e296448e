"""What Gemini and gateways send, each case with its page or report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from graphflow.content import CitationPart, ImagePart
from graphflow.models.chat_model import (
    Finish,
    OneTool,
    PartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from tests.models.gemini.service import STOP, USAGE, call, chunk, service, text, thought
from tests.models.raw_server import DONE, body, raw_server, stream
from tests.models.turns import OpenClient, hear

PARIS = {"city": "Paris"}
WEATHER = [("weather", '{"city":"Paris"}')]


def raw(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


@dataclass
class GeminiQuirk:
    """A stream, and what is heard of it; `source` says who sends it."""

    source: str
    blocks: list[bytes]
    text: str = ""
    thought: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    reason: str = "stop"


QUIRKS = {
    "a last chunk without content": GeminiQuirk(
        "https://github.com/agentjido/req_llm/issues/638", [chunk(text("Hi.")), raw({"candidates": [{"finishReason": "STOP"}], "usageMetadata": USAGE})], "Hi."
    ),
    "a content without parts": GeminiQuirk(
        "https://github.com/pydantic/pydantic-ai/pull/2631",
        [chunk(call("weather", PARIS)), raw({"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}]})],
        calls=WEATHER, reason="tool_calls",
    ),
    "a finish reason in every chunk": GeminiQuirk(
        "https://github.com/BerriAI/litellm/issues/2195", [chunk(text("Hi"), finish="STOP"), chunk(text("."), finish="STOP")], "Hi."
    ),
    "a finish reason before the text": GeminiQuirk(
        "https://github.com/Chevey339/kelivo/issues/1003", [chunk(finish="STOP"), chunk(text("Hi")), chunk(text(".")), chunk(finish="STOP")], "Hi."
    ),
    "an answer that is empty": GeminiQuirk("https://github.com/AstrBotDevs/AstrBot/pull/6735", [chunk(finish="STOP")]),
    "an empty part in the middle": GeminiQuirk(
        "https://github.com/GoogleCloudPlatform/kubectl-ai/pull/611", [chunk(text("Hi")), chunk(text("")), chunk({}), chunk(text(".")), STOP], "Hi."
    ),
    "the end for the limit of tokens without content": GeminiQuirk(
        "https://github.com/envoyproxy/ai-gateway/pull/2107", [chunk(text("Hi")), raw({"candidates": [{"content": {}, "finishReason": "MAX_TOKENS"}]})], "Hi", reason="length"
    ),
    "a call in a turn that was cut": GeminiQuirk(
        "https://ai.google.dev/api/generate-content#FinishReason", [chunk(call("weather", PARIS), finish="MAX_TOKENS")], calls=WEATHER, reason="length"
    ),
    "thoughts": GeminiQuirk(
        "https://ai.google.dev/gemini-api/docs/thinking#summaries", [chunk(thought("**A**\n")), chunk(thought("b")), chunk(text("Hi.")), STOP], "Hi.", "**A**\nb"
    ),
    "thoughts and text in one chunk": GeminiQuirk(
        "https://github.com/google/adk-java/pull/511", [chunk(thought("hm"), text("Hi"), text("."), finish="STOP")], "Hi.", "hm"
    ),
    "several calls in one chunk": GeminiQuirk(
        "https://ai.google.dev/gemini-api/docs/function-calling#parallel", [chunk(call("weather", PARIS), call("ping", {})), STOP],
        calls=[*WEATHER, ("ping", "{}")], reason="tool_calls",
    ),
    "two calls of one function": GeminiQuirk(
        "https://github.com/quarkiverse/quarkus-langchain4j/pull/1271", [chunk(call("ping", {})), chunk(call("ping", {})), STOP],
        calls=[("ping", "{}"), ("ping", "{}")], reason="tool_calls",
    ),
    "a call with STOP": GeminiQuirk(
        "https://github.com/smallnest/pigo/pull/65", [chunk(call("weather", PARIS), finish="STOP")], calls=WEATHER, reason="tool_calls"
    ),
    "a call without arguments": GeminiQuirk(
        "https://github.com/google-gemini/gemini-cli/issues/1481", [chunk({"functionCall": {"name": "ping"}}), STOP], calls=[("ping", "{}")], reason="tool_calls"
    ),
    "arguments null": GeminiQuirk(
        "https://github.com/google-gemini/gemini-cli/issues/1481", [chunk(call("ping", None)), STOP], calls=[("ping", "{}")], reason="tool_calls"
    ),
    "an id that is empty": GeminiQuirk(
        "https://github.com/smallnest/pigo/issues/30", [chunk(call("ping", {}, id="")), STOP], calls=[("ping", "{}")], reason="tool_calls"
    ),
    "an end for safety": GeminiQuirk(
        "https://ai.google.dev/gemini-api/docs/safety-settings", [chunk(text("Hi")), raw({"candidates": [{"finishReason": "SAFETY", "safetyRatings": []}]})], "Hi", reason="content_filter"
    ),
    "a recitation": GeminiQuirk(
        "https://github.com/BerriAI/litellm/pull/40864", [raw({"candidates": [{"finishReason": "RECITATION", "index": 0}]})], reason="content_filter"
    ),
    "a prompt that is blocked": GeminiQuirk(
        "https://github.com/decolua/9router/pull/2462", [raw({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE})], reason="content_filter"
    ),
    "an end that nobody knows": GeminiQuirk(
        "https://ai.google.dev/api/generate-content#FinishReason", [chunk(text("Hi."), finish="BRAND_NEW")], "Hi."
    ),
    "usage in a chunk of its own": GeminiQuirk(
        "https://github.com/agentjido/req_llm/issues/638", [chunk(text("Hi.")), STOP, raw({"usageMetadata": USAGE, "modelVersion": "m"})], "Hi."
    ),
    "a second candidate": GeminiQuirk(
        "https://ai.google.dev/api/generate-content#candidate",
        [raw({"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}}]}), chunk(text("Hi."), finish="STOP")], "Hi.",
    ),
    "[DONE] at the end": GeminiQuirk("https://github.com/MartialBE/one-hub/issues/418", [chunk(text("Hi."), finish="STOP"), DONE], "Hi."),
    "unknown parts and fields": GeminiQuirk(
        "https://ai.google.dev/gemini-api/docs/code-execution",
        [chunk({"executableCode": {"language": "PYTHON", "code": "1"}}), chunk({"codeExecutionResult": {"outcome": "OUTCOME_OK"}}), chunk(text("Hi."), new=1), STOP], "Hi.",
    ),
    "half characters in two chunks": GeminiQuirk(
        "https://github.com/google-gemini/gemini-cli/issues/5443",
        [b'data: {"candidates":[{"content":{"parts":[{"text":"rain \\ud83c"}]}}]}\n\n', b'data: {"candidates":[{"content":{"parts":[{"text":"\\udf27"}]}}]}\n\n', STOP],
        "rain 🌧",
    ),
    "numbers as texts": GeminiQuirk(
        "https://github.com/envoyproxy/ai-gateway/pull/2107",
        [raw({"candidates": [{"index": "0", "content": {"parts": {"text": "Hi."}}, "finishReason": "STOP"}], "usageMetadata": []})], "Hi.",
    ),
    "unreadable data among the text": GeminiQuirk(
        "https://github.com/smallnest/pigo/pull/65", [chunk(text("Hi")), b"data: {cut\n\n", chunk(text(".")), STOP], "Hi."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIRKS)
async def test_what_is_sent_is_heard_once_and_whole(opened: OpenClient, name: str) -> None:
    quirk = QUIRKS[name]
    async with raw_server(stream(*quirk.blocks)) as server:
        heard = await hear(opened(server.url))
    assert heard.finish.reason == quirk.reason
    assert ("".join(heard.texts), heard.turn.reasoning) == (quirk.text, quirk.thought)
    assert [called[1:] for called in heard.calls] == quirk.calls
    assert len({called[0] for called in heard.calls} - {""}) == len(quirk.calls)


def test_every_quirk_has_a_source() -> None:
    assert len(QUIRKS) >= 25
    assert all(quirk.source.startswith("https://") for quirk in QUIRKS.values())


async def test_each_part_gives_one_delta_at_once_and_none_is_merged(opened: OpenClient) -> None:
    blocks = [
        chunk(thought("Hm")),
        chunk(text("S")),
        chunk(text("un")),
        chunk(call("f", {"a": 1}, id="c"), finish="STOP"),
    ]
    async with raw_server(stream(b"".join(blocks))) as server:
        heard = await hear(opened(server.url))
    usage = Usage(prompt_tokens=12, completion_tokens=5, reasoning_tokens=3, cached_tokens=4)
    assert heard.deltas[:4] == [
        ThinkingDelta("Hm"),
        TextDelta("S"),
        TextDelta("un"),
        ToolCallDelta(0, "c", "f", '{"a":1}'),
    ]
    assert heard.deltas[-1] == Finish("tool_calls", "STOP", usage, served_model="m", request_id="r")


async def test_sources_and_pictures_are_parts_of_the_answer(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/google-search, https://ai.google.dev/gemini-api/docs/image-generation."""
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://e.org", "title": "E"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 0, "endIndex": 4, "text": "Sun."}, "groundingChunkIndices": [0]}
        ],
    }
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    last = {"candidates": [{"content": {"parts": [picture]}, "finishReason": "STOP", "groundingMetadata": grounding}]}
    async with raw_server(stream(chunk(text("Sun.")), raw(last))) as server:
        heard = await hear(opened(server.url))
    assert [d.part for d in heard.deltas if isinstance(d, PartDelta)] == [
        ImagePart(data=b"\x89PNG", media_type="image/png", size=4),
        CitationPart(url="https://e.org", title="E", text="Sun."),
    ]


async def test_an_answer_in_one_body_is_a_turn(opened: OpenClient) -> None:
    """https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent: a list of chunks without `alt=sse`."""
    parts = [
        {"content": {"parts": [{"text": said}]}, "finishReason": end} for said, end in (("Hi", None), (".", "STOP"))
    ]
    whole = [{"candidates": [part]} for part in parts]
    for said in (whole, {"candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}]}):
        async with raw_server(body(200, json.dumps(said).encode())) as server:
            assert "".join((await hear(opened(server.url))).texts) == "Hi."


# --- requests ------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = ToolSpec(name="weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.mark.parametrize(
    ("model", "options", "config"),
    [
        ("gemini-3.8-flash", {"compute": "LOW"}, {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}),
        ("gemini-3.8-pro", {"reasoning_effort": "none"}, {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}}),
        ("gemini-3.8-flash", {"reasoning_effort": "xhigh", "seed": 7}, {"seed": 7, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"}}),
        ("gemini-2.5-flash", {"reasoning_effort": "none"}, {"thinkingConfig": {"includeThoughts": False, "thinkingBudget": 0}}),
        ("gemini-2.5-pro", {"compute": "HIGH"}, {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 24576}}),
        ("gemini-2.5-flash", {}, {"thinkingConfig": {"includeThoughts": True}}),
        ("gemini-2.5-flash-lite", {}, None),
        ("gemini-2.0-flash", {"compute": "HIGH", "stop": ("x",), "max_tokens": 5}, {"maxOutputTokens": 5, "stopSequences": ["x"]}),
        ("gemini-2.0-flash", {"schema": SCHEMA}, {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}),
        ("gemini-2.0-flash", {"temperature": 0.5, "top_p": 0.9, "extra": {"generationConfig": {"topK": 3}}}, {"temperature": 0.5, "topP": 0.9, "topK": 3}),
    ],
)  # fmt: skip
async def test_options_become_what_the_model_takes(
    opened: OpenClient, model: str, options: dict[str, Any], config: dict[str, Any] | None
) -> None:
    async with raw_server(*service([chunk(text("Hi."), finish="STOP")])) as server:
        assert (await hear(opened(server.url, model), **options)).texts == ["Hi."]
        assert server.requests[0].json.get("generationConfig") == config
        assert server.requests[0].headers["x-goog-api-key"] == "AIza-secret-0123456789"


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (OneTool("weather"), {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
async def test_a_choice_of_tools_and_a_schema_beside_them(
    opened: OpenClient, choice: Any, calling: dict[str, Any]
) -> None:
    """https://github.com/googleapis/python-genai/issues/706: before Gemini 3 a schema beside tools goes into the prompt."""
    async with raw_server(*service([chunk(text("Hi."), finish="STOP")])) as server:
        heard = await hear(opened(server.url, "gemini-2.0-flash"), tools=[TOOL], tool_choice=choice, schema=SCHEMA)
        assert heard.texts == ["Hi."]
        request = server.requests[0].json
    assert request["toolConfig"] == {"functionCallingConfig": calling}


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "OTHER"])
async def test_a_turn_that_the_model_spoiled_is_tried_again(opened: OpenClient, reason: str) -> None:
    """https://github.com/google-gemini/gemini-cli/pull/12965, https://github.com/agentjido/req_llm/issues/944."""
    spoiled = raw({"candidates": [{"finishReason": reason, "index": 0}]})
    async with raw_server(stream(spoiled), stream(chunk(text("Hi."), finish="STOP"))) as server:
        assert (await hear(opened(server.url, retries=1))).texts == ["Hi."]


@pytest.mark.parametrize(
    ("source", "blocks", "code", "retryable"),
    [
        (
            "https://github.com/decolua/9router/pull/2462",
            [raw({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})], "provider_error", True,
        ),
        (
            "https://github.com/google-gemini/gemini-cli/issues/6454",
            [raw([{"error": {"code": 429, "message": "exhausted", "status": "RESOURCE_EXHAUSTED"}}])], "rate_limit", True,
        ),
        (
            "https://github.com/google-gemini/gemini-cli/issues/17208",
            [raw({"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}})], "provider_error", False,
        ),
        ("https://github.com/decolua/9router/pull/2462", [chunk(text("Hi"))], "stream_truncated", True),
    ],
)  # fmt: skip
async def test_errors_in_a_stream(
    opened: OpenClient, source: str, blocks: list[bytes], code: str, retryable: bool
) -> None:
    assert source.startswith("https://")
    async with raw_server(stream(*blocks)) as server:
        failure = (await hear(opened(server.url))).failure
    assert (failure.code, failure.retryable) == (code, retryable)


async def test_the_delay_that_an_error_names_is_waited_for(opened: OpenClient, pauses: list[float]) -> None:
    """https://github.com/googleapis/python-genai/pull/2114: there is no header, the body says how long."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "58.5s"}
    error = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [{"x": 1}, info]}}
    limit = body(429, json.dumps([error]).encode())
    async with raw_server(limit, stream(chunk(text("Hi."), finish="STOP"))) as server:
        assert (await hear(opened(server.url, retries=1))).texts == ["Hi."]
    assert pauses == [58.5]


async def test_a_wrong_key_is_reported_without_it(opened: OpenClient) -> None:
    """https://ai.google.dev/gemini-api/docs/troubleshooting."""
    said = {
        "error": {"code": 400, "message": "API key not valid: AIza-secret-0123456789", "status": "INVALID_ARGUMENT"}
    }
    async with raw_server(body(400, json.dumps(said).encode())) as server:
        failure = (await hear(opened(server.url))).failure
    assert "AIza-secret" not in json.dumps([failure.message, failure.detail])
