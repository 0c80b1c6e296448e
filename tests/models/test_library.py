"""The library's way to providers that do not speak the OpenAI protocol, and the fallback from one way to the other."""

from __future__ import annotations

import asyncio
import builtins
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Self

import pytest

from graphflow.errors import ModelError
from graphflow.messages import AIMessage, HumanMessage, ProviderState, SystemMessage, ToolCall, ToolMessage
from graphflow.models.chat_model import ChatModel, complete
from graphflow.models.deltas import Delta, Finish, TextDelta, ToolCallDelta, Usage
from graphflow.models.fallback import FallbackModel
from graphflow.models.options import ChatOptions, ToolSpec
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.providers import open_model, resolve_provider
from graphflow.models.remote.retry import Limits
from tests.models import strict_providers as strict
from tests.models.raw_server import DONE, Answer, Connection, body, event, raw_server, stream
from tests.models.turns import hear

ASK = (SystemMessage(content="Be brief."), HumanMessage(content="hi"))
TOOLS = (ToolSpec(name="look_up", description="Looks up."),)
KEY = "sk-a-secret-that-nobody-may-see"


def anthropic(*events: dict[str, Any]) -> Answer:
    """A stream in the protocol of Anthropic."""
    return stream(*as_events(*events))


def as_events(*events: dict[str, Any]) -> list[bytes]:
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


def said(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [],
    "model": "c",
    "stop_reason": None,
}
TURN = (
    {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 9, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    said(0, type="text_delta", text="Let me "),
    said(0, type="text_delta", text="look."),
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "call_a", "name": "look_up", "input": {}},
    },
    said(1, type="input_json_delta", partial_json='{"q":'),
    said(1, type="input_json_delta", partial_json=' "x"}'),
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"input_tokens": 9, "output_tokens": 12}},
    {"type": "message_stop"},
)


def library_model(url: str, key: str = "anthropic", retries: int = 0) -> ChatModel:
    from graphflow.models.library.model import AnyLlmModel

    provider = Provider(key=key, profile=Profile(protocol="library"), base_url=url.removesuffix("/v1"), api_key=KEY)
    return AnyLlmModel(provider, "claude", limits=Limits(max_retries=retries), sleep=_at_once, draw=lambda: 0.0)


async def _at_once(seconds: float) -> None:
    PAUSES.append(seconds)


PAUSES: list[float] = []


class BackgroundServer:
    """A raw server with a loop of its own, which outlives those of the runs."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._context = raw_server(anthropic(*TURN))
        self.server = asyncio.run_coroutine_threadsafe(self._context.__aenter__(), self._loop).result(30)
        self.url = self.server.url
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._context.__aexit__(None, None, None), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(autouse=True)
def _no_pauses() -> None:
    PAUSES.clear()


async def heard_of(model: ChatModel) -> list[Delta]:
    async with aclosing(model.stream(ASK, TOOLS, ChatOptions(max_tokens=100))) as deltas:
        return [delta async for delta in deltas]


async def test_another_protocol_comes_as_the_same_deltas_one_by_one() -> None:
    async with raw_server(stream(*as_events(*TURN), request_id="req_011")) as server:
        model = library_model(server.url)
        deltas = await heard_of(model)
        await model.aclose()
        asked = server.requests[0]
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["Let me ", "look."]
    calls = [d for d in deltas if isinstance(d, ToolCallDelta)]
    assert (calls[0].id, calls[0].name) == ("call_a", "look_up")
    assert [d.arguments for d in calls if d.arguments] == ['{"q":', ' "x"}']
    usage = Usage(prompt_tokens=9, completion_tokens=12)
    assert deltas[-1] == Finish("tool_calls", "tool_calls", usage, served_model="c", request_id="req_011")
    assert asked.path.startswith("/v1/messages") and asked.headers["x-api-key"] == KEY
    assert asked.json["tools"][0]["name"] == "look_up" and asked.json["max_tokens"] == 100


def thinking(*pieces: str, signature: str, index: int = 0) -> list[dict[str, Any]]:
    """A thinking block, its text in pieces and its signature last."""
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": "thinking", "thinking": ""}},
        *(said(index, type="thinking_delta", thinking=piece) for piece in pieces),
        said(index, type="signature_delta", signature=signature),
        {"type": "content_block_stop", "index": index},
    ]


async def test_claude_gets_its_signed_thinking_back_before_its_calls() -> None:
    first = stream(*as_events(TURN[0], *thinking("Let me ", "look.", signature="EtsB"), *TURN[5:]))
    second = strict.strict(strict.claude(("Let me look.", "EtsB")), *as_events(*TURN))
    async with raw_server(first, second) as server:
        model = library_model(server.url)
        one = (await complete(model, ASK, TOOLS)).message
        assert (one.reasoning, [call.name for call in one.tool_calls]) == ("Let me look.", ["look_up"])
        result = ToolMessage(tool_call_id=one.tool_calls[0].id, content="r")
        await complete(model, [*ASK, one, result], TOOLS)
        await model.aclose()
        sent = server.requests[1].json["messages"][1]["content"]
    assert [part["type"] for part in sent] == ["thinking", "tool_use"]


async def test_claude_gets_each_of_several_blocks_back_in_its_place() -> None:
    """The library itself takes one: with the others lost, "`thinking` blocks … cannot be modified"."""
    words = [
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        said(1, type="text_delta", text="I look."),
        {"type": "content_block_stop", "index": 1},
    ]
    redacted = [
        {"type": "content_block_start", "index": 3, "content_block": {"type": "redacted_thinking", "data": "0paque"}},
        {"type": "content_block_stop", "index": 3},
    ]
    called = [event | {"index": 4} if "index" in event else event for event in TURN[5:]]
    first = [TURN[0], *thinking("Let me ", "look.", signature="sig-A"), *words]
    first += [*thinking("Paris", ", then.", signature="sig-B", index=2), *redacted, *called]
    rule = strict.claude(("Let me look.", "sig-A"), ("Paris, then.", "sig-B"))
    async with raw_server(stream(*as_events(*first)), strict.strict(rule, *as_events(*TURN))) as server:
        model = library_model(server.url)
        one = (await complete(model, ASK, TOOLS)).message
        result = ToolMessage(tool_call_id=one.tool_calls[0].id, content="r")
        await complete(model, [*ASK, one, result], TOOLS)
        await model.aclose()
        second = server.requests[1].json
    assert second["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Let me look.", "signature": "sig-A"},
        {"type": "text", "text": "I look."},
        {"type": "thinking", "thinking": "Paris, then.", "signature": "sig-B"},
        {"type": "redacted_thinking", "data": "0paque"},
        {"type": "tool_use", "id": "call_a", "name": "look_up", "input": {"q": "x"}},
    ]
    assert second["messages"][2]["content"][0]["type"] == "tool_result"
    assert second["system"] == server.requests[0].json["system"]


async def test_a_last_turn_of_claude_without_tools_still_defines_those_that_were_called() -> None:
    """https://github.com/BerriAI/litellm/issues/5388: requests with calls in them must define tools; none may be called."""
    called = AIMessage(tool_calls=(ToolCall(id="c", name="look_up"),))
    async with raw_server(anthropic(*TURN)) as server:
        model = library_model(server.url)
        await complete(model, [*ASK, called, ToolMessage(tool_call_id="c", content="r")])
        await complete(model, ASK)
        await model.aclose()
        first, second = (request.json for request in server.requests)
    assert [tool["name"] for tool in first["tools"]] == ["look_up"]
    assert first["tool_choice"]["type"] == "none"
    assert "tools" not in second


async def test_claude_gets_the_turns_of_others_without_their_thinking_and_with_ids_that_it_accepts() -> None:
    state = ProviderState(
        provider="openrouter",
        model="claude",
        data={"extra_content": {"anthropic": {"signature": "x"}}, "reasoning": "y"},
    )
    calls = (ToolCall(id="functions.look_up:0", name="look_up"), ToolCall(id="call~0", name="look_up"))
    other = AIMessage(reasoning="thought", tool_calls=calls, provider_state=state)
    results = [ToolMessage(tool_call_id=call.id, content="r") for call in calls]
    async with raw_server(strict.strict(strict.claude(), *as_events(*TURN))) as server:
        model = library_model(server.url)
        await complete(model, [*ASK, other, *results], TOOLS)
        await model.aclose()
        ids = [
            [part.get("id") or part.get("tool_use_id") for part in m["content"]]
            for m in server.requests[0].json["messages"][1:]
        ]
    assert ids[0] == ids[1] and len(set(ids[0])) == 2


async def test_its_errors_are_the_ports_and_show_no_key() -> None:
    failed = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": f"busy, {KEY}"}}).encode()
    async with raw_server(body(529, failed)) as server:
        model = library_model(server.url, retries=1)
        with pytest.raises(ModelError) as caught:
            await heard_of(model)
        await model.aclose()
        assert len(server.requests) == 2, "retries are counted here, not in the library"
    error = caught.value
    assert (error.code, error.retryable, error.detail["status"]) == ("provider_error", True, 529)
    assert "busy" in error.message and KEY not in str(error.as_dict())


async def test_what_came_before_a_fault_in_one_chunk_is_given_out() -> None:
    choice = {"index": 0, "delta": {"content": "half"}, "finish_reason": "network_error"}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    async with raw_server(stream(event(chunk), DONE)) as server:
        model = library_model(f"{server.url}/v1", key="mine")
        heard = await hear(model)
        await model.aclose()
    assert heard.deltas == [TextDelta("half")]
    assert "broke off ('network_error') after 4 characters of text" in heard.failure.message


async def test_a_pause_that_a_provider_asks_for_is_kept() -> None:
    async with raw_server(body(429, b"{}", retry_after="7"), anthropic(*TURN)) as server:
        model = library_model(server.url, retries=1)
        assert isinstance((await heard_of(model))[-1], Finish)
        await model.aclose()
    assert PAUSES == [7.0]


async def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("any_llm"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    model = open_model("mine", "m", env={}, profiles={"mine": {"protocol": "library", "needs_key": False}})
    with pytest.raises(ModelError, match=r"pip install 'graphflow\[providers\]'") as caught:
        await complete(model, ASK)
    assert not caught.value.retryable


async def test_a_provider_that_the_library_does_not_know_needs_an_address() -> None:
    model = open_model("mine", "m", env={}, profiles={"mine": {"protocol": "library", "needs_key": False}})
    with pytest.raises(ModelError, match="does not know it; set base_url"):
        await complete(model, ASK)


def test_a_library_provider_needs_its_key_and_no_address() -> None:
    profiles = {"cohere": {"protocol": "library", "model": "command", "api_key_env": "COHERE_API_KEY"}}
    found = resolve_provider("cohere", {"COHERE_API_KEY": "k"}, profiles)
    assert (found.protocol, found.api_key, found.base_url) == ("library", "k", "")
    with pytest.raises(ModelError, match="COHERE_API_KEY"):
        open_model("cohere", env={}, profiles=profiles)


# --- from one way to the other --------------------------------------------------------------------


class Way:
    """A model that says what it is told to, then fails if it is told to."""

    provider, model = "p", "m"

    def __init__(self, *texts: str, error: ModelError | None = None) -> None:
        self._texts, self._error = texts, error
        self.asked = 0

    async def stream(self, *_: Any) -> AsyncIterator[Delta]:
        self.asked += 1
        for text in self._texts:
            yield TextDelta(text)
        if self._error is not None:
            raise self._error
        yield Finish("stop", "stop")

    async def aclose(self) -> None: ...


def between(first: Way, second: Way) -> FallbackModel:
    return FallbackModel(first, lambda _: second, ["p"], same_account=True)  # type: ignore[arg-type, return-value]


async def test_the_other_way_is_tried_when_the_first_fails_before_its_first_delta() -> None:
    first, second = Way(error=ModelError("no such path", code="provider_error", status=404)), Way("well")
    done = await complete(between(first, second), ASK)
    assert (done.message.content, first.asked, second.asked) == ("well", 1, 1)


async def test_the_other_way_is_not_tried_once_a_delta_was_given_out() -> None:
    second = Way("again")
    with pytest.raises(ModelError, match="cut"):
        await complete(between(Way("half", error=ModelError("cut", code="connection")), second), ASK)
    assert second.asked == 0


@pytest.mark.parametrize("status", [401, 402, 403, 429])
async def test_what_the_provider_says_of_its_user_is_the_same_on_both_ways(status: int) -> None:
    second = Way("well")
    with pytest.raises(ModelError):
        await complete(between(Way(error=ModelError("no", code="provider_error", status=status)), second), ASK)
    assert second.asked == 0


async def test_when_both_fail_the_way_that_was_asked_for_tells_why() -> None:
    ways = Way(error=ModelError("first", code="provider_error")), Way(error=ModelError("second", code="connection"))
    with pytest.raises(ModelError, match="first"):
        await complete(between(*ways), ASK)


async def test_a_profile_switches_the_fallback_on() -> None:

    async def refuses_the_native_way(connection: Connection) -> None:
        await body(404, b"no such path")(connection)

    choice = {"index": 0, "delta": {"content": "well"}, "finish_reason": "stop"}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    async with raw_server(refuses_the_native_way, stream(event(chunk), DONE)) as server:
        mine = {"base_url": server.url, "needs_key": False, "fallback": True}
        model = open_model("mine", "m", env={"LLM_MAX_RETRIES": "0"}, profiles={"mine": mine})
        assert (await complete(model, ASK)).message.content == "well"
        await model.aclose()
        agents = [request.headers["user-agent"] for request in server.requests]
    assert agents[0] == "graphflow" and "openai" in agents[1].lower()


def test_each_run_of_its_own_event_loop_sends_one_request() -> None:
    """The SDK's client was bound to the first loop: each later run failed at its closed sockets and was sent again."""
    heads: list[int] = []

    async def turn(model: ChatModel, url: str) -> None:
        assert isinstance((await heard_of(model))[-1], Finish)

    with BackgroundServer() as served:
        model = library_model(served.url, retries=2)
        for _ in range(3):
            asyncio.run(turn(model, served.url))
        heads.append(len(served.server.requests))
    assert (heads, PAUSES) == ([3], [])


async def test_an_overload_in_a_stream_that_began_well_is_tried_again() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with raw_server(anthropic(overloaded), anthropic(*TURN)) as server:
        model = library_model(server.url, retries=1)
        assert isinstance((await heard_of(model))[-1], Finish)
        await model.aclose()
        assert len(server.requests) == 2


async def test_a_parameter_that_the_sdk_refuses_is_no_failure_of_the_connection() -> None:
    async with raw_server(anthropic(*TURN)) as server:
        model = library_model(server.url, retries=2)
        options = ChatOptions(extra={"no_such_parameter": 1})
        with pytest.raises(ModelError) as caught:
            await complete(model, ASK, (), options)
        await model.aclose()
        assert server.requests == []
    error = caught.value
    assert (error.code, error.retryable, PAUSES) == ("provider_error", False, [])
    assert "no_such_parameter" in error.message


async def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.genai", None)  # as where it is not installed
    model = library_model("http://127.0.0.1:9", key="gemini")
    with pytest.raises(ModelError, match=r"any-llm-sdk\[gemini\]") as caught:
        await heard_of(model)
    assert "library is not installed" not in caught.value.message
