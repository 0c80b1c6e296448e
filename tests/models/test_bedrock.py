"""Bedrock through the library: what its models need back, against a fake of ConverseStream and the SDK's own validation."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, Message, SystemMessage, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.deltas import TextDelta
from graphflow.models.options import ChatOptions, OneTool, ToolSpec
from graphflow.models.providers import open_model
from tests.models.bedrock_service import BEGIN, called, converse, end, event, said, stop
from tests.models.raw_server import Answer, RawServer, raw_server
from tests.needs import need

ASK = (SystemMessage(content="Be brief."), HumanMessage(content="hi"))
TOOLS = (ToolSpec(name="look_up", description="Looks up."),)
CALL = called(2, "tooluse_a", "look_up", '{"q":', ' "x"}')
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import boto3
    except ImportError:
        boto3 = None
    need(boto3, "boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-a-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@asynccontextmanager
async def bedrock(*answers: Answer) -> AsyncIterator[tuple[RawServer, ChatModel]]:
    async with raw_server(*answers) as server:
        profile = {"protocol": "library", "base_url": server.url.removesuffix("/v1"), "needs_key": False}
        model = open_model("bedrock", "anthropic.claude-x", env={"LLM_MAX_RETRIES": "0"}, profiles={"bedrock": profile})
        try:
            yield server, model
        finally:
            await model.aclose()


def thought(index: int, *pieces: str, signature: str) -> list[bytes]:
    texts = [said(index, reasoningContent={"text": piece}) for piece in pieces]
    return [*texts, said(index, reasoningContent={"signature": signature}), stop(index)]


async def test_signed_and_redacted_thinking_goes_back_in_its_place() -> None:
    hidden = said(1, reasoningContent={"redactedContent": base64.b64encode(b"0paque").decode()})
    first = [BEGIN, *thought(0, "Let me ", "look.", signature="EtsB"), hidden, stop(1), *CALL, *end("tool_use")]
    async with bedrock(converse(*first), converse(BEGIN, said(0, text="done"), stop(0), *end("end_turn"))) as (
        server,
        model,
    ):
        one = (await complete(model, ASK, TOOLS)).message
        assert (one.reasoning, [call.arguments for call in one.tool_calls]) == ("Let me look.", ['{"q": "x"}'])
        done = await complete(model, [*ASK, one, ToolMessage(tool_call_id="tooluse_a", content="5")], TOOLS)
        sent = server.requests[1].json
    assert done.message.content == "done"
    assert sent["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Let me look.", "signature": "EtsB"}}},
        {"reasoningContent": {"redactedContent": base64.b64encode(b"0paque").decode()}},
        {"toolUse": {"toolUseId": "tooluse_a", "name": "look_up", "input": {"q": "x"}}},
    ]
    assert sent["messages"][2]["content"] == [{"toolResult": {"toolUseId": "tooluse_a", "content": [{"text": "5"}]}}]
    assert sent["system"] == [{"text": "Be brief."}]


async def test_the_usage_and_the_id_of_the_request_are_reported() -> None:
    async with bedrock(converse(BEGIN, said(0, text="hi"), stop(0), *end("end_turn"))) as (_, model):
        done = await complete(model, ASK)
    assert (done.request_id, done.served_model, done.finish_reason) == ("req-7", None, "stop")
    assert done.usage is not None and (done.usage.prompt_tokens, done.usage.completion_tokens) == (9, 12)


async def test_errors_images_and_empty_results_have_the_form_of_converse() -> None:
    calls = tuple(ToolCall(id=f"call.{n}", name="look_up") for n in range(3))
    results: list[Message] = [
        ToolMessage(tool_call_id="call.0", content="no such file", error=True),
        ToolMessage(tool_call_id="call.1", content=""),
        ToolMessage(tool_call_id="call.2", content=(TextPart(text="see"), ImagePart(data=PNG, media_type="image/png"))),
    ]
    asked = [*ASK, AIMessage(tool_calls=calls), *results, HumanMessage(content="go on")]
    async with bedrock(converse(BEGIN, said(0, text="hi"), stop(0), *end("end_turn"))) as (server, model):
        await complete(model, asked)
        await complete(model, asked, TOOLS, ChatOptions(tool_choice=OneTool("look_up")))
        first, second = (request.json for request in server.requests)
    written = first["messages"][2]["content"]
    assert [block["toolResult"]["content"] for block in written[:3]] == [
        [{"text": "no such file"}],
        [{"text": "(no output)"}],
        [{"text": "see"}, {"image": {"format": "png", "source": {"bytes": base64.b64encode(PNG).decode()}}}],
    ]
    assert [block["toolResult"].get("status") for block in written[:3]] == ["error", None, None]
    assert written[3] == {"text": "go on"}
    assert [tool["toolSpec"]["name"] for tool in first["toolConfig"]["tools"]] == ["look_up"]
    assert second["toolConfig"]["toolChoice"] == {"tool": {"name": "look_up"}}


@pytest.mark.parametrize(
    ("name", "code", "retryable"),
    [("throttlingException", "rate_limit", True), ("validationException", "provider_error", False)],
)
async def test_an_error_in_the_stream_is_the_ports(name: str, code: str, retryable: bool) -> None:
    fault = event(name, {"message": "Too many tokens"}, kind="exception")
    async with bedrock(converse(BEGIN, fault)) as (_, model):
        with pytest.raises(ModelError, match="Too many tokens") as caught:
            await complete(model, ASK)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


async def test_thinking_that_is_refused_is_left_out_once() -> None:
    def signed(request: dict[str, Any]) -> str | None:
        blocks = [block for turn in request["messages"] for block in turn["content"]]
        return "Invalid `signature` in `thinking` block" if any("reasoningContent" in b for b in blocks) else None

    first = [BEGIN, *thought(0, "Hm.", signature="old"), *CALL, *end("tool_use")]
    last = converse(BEGIN, said(0, text="done"), stop(0), *end("end_turn"), rule=signed)
    async with bedrock(converse(*first), last) as (server, model):
        one = (await complete(model, ASK, TOOLS)).message
        done = await complete(model, [*ASK, one, ToolMessage(tool_call_id="tooluse_a", content="r")], TOOLS)
        assert (done.message.content, len(server.requests)) == ("done", 3)


async def test_a_silent_stream_holds_neither_the_loop_nor_the_end_of_a_cancelled_turn() -> None:
    async def silent(connection: Any) -> None:
        await connection.head(200, "application/vnd.amazon.eventstream")
        await connection.chunk(BEGIN + said(0, text="half"))
        await connection.hang()

    async with bedrock(silent) as (_, model), aclosing(model.stream(ASK)) as deltas:
        assert await anext(deltas) == TextDelta("half")
        following = asyncio.ensure_future(anext(deltas))  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
