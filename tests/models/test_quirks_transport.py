"""What providers do to the stream itself, and how they report errors: rows T1–T12 and U1–U7 of the quirk table."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest

from graphflow.models.chat_model import TextDelta
from graphflow.models.openai.model import OpenAICompatibleModel
from graphflow.models.profiles import Profile
from graphflow.models.provider import Provider
from graphflow.models.remote.retry import Limits
from tests.models.raw_server import DONE, STOP, Connection, body, call, delta, event, raw_server, stream
from tests.models.turns import OpenClient, hear, hear_something

HELLO = delta(content="Hello")
DEEP = b'data: {"choices":[{"delta":{"content":' + b"[" * 20_000 + b"]" * 20_000 + b"}}]}\n\n"
NEVER_BEGINS = Limits(first_data_s=0.1, idle_s=60, after_finish_s=60, total_s=120, max_retries=0)
FALLS_SILENT = Limits(first_data_s=60, idle_s=0.1, after_finish_s=60, total_s=120, max_retries=0)
STAYS_OPEN = Limits(first_data_s=60, idle_s=60, after_finish_s=0.05, total_s=120, max_retries=0)
"""In each, one limit is short: the one that nothing but silence meets, however slow the machine is."""


async def test_t1_comments_are_ignored(open_client: OpenClient) -> None:
    async with raw_server(stream(b": keep-alive\n\n", HELLO, b": OPENROUTER PROCESSING\n\n", STOP, DONE)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]
    assert heard.finish.reason == "stop"


async def test_t1_comments_do_not_keep_a_silent_stream_alive(open_client: OpenClient) -> None:
    async def comments_for_ever(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO)
        while not connection.released.is_set():
            await connection.chunk(b": keep-alive\n\n")
            await asyncio.sleep(0.005)

    async with raw_server(comments_for_ever) as server:
        heard = await hear(open_client(server.url, limits=FALLS_SILENT))
    assert heard.texts == ["Hello"]
    assert heard.failure.code == "timeout"
    assert heard.failure.detail["limit"] == "idle"


async def test_t2_a_stream_that_never_begins_is_a_timeout(open_client: OpenClient) -> None:
    async def silent(connection: Connection) -> None:
        await connection.head()
        await connection.hang()

    async with raw_server(silent) as server:
        heard = await hear(open_client(server.url, limits=NEVER_BEGINS))
    assert heard.failure.code == "timeout"
    assert heard.failure.detail["limit"] == "first_data"


async def test_t2_no_head_at_all_is_a_timeout(open_client: OpenClient) -> None:
    async with raw_server(Connection.hang) as server:
        heard = await hear(open_client(server.url, limits=NEVER_BEGINS))
    assert heard.failure.code == "timeout"
    assert heard.failure.detail["limit"] == "first_data"


async def test_t2_a_stream_that_goes_silent_is_a_timeout_that_says_how_much_came(open_client: OpenClient) -> None:
    async def stalls(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO)
        await connection.hang()

    async with raw_server(stalls) as server:
        heard = await hear(open_client(server.url, limits=FALLS_SILENT))
    assert heard.texts == ["Hello"]
    assert heard.failure.code == "timeout"
    assert "5 characters of text" in heard.failure.message


async def test_t2_the_whole_call_has_a_ceiling(open_client: OpenClient) -> None:
    async def for_ever(connection: Connection) -> None:
        await connection.head()
        while not connection.released.is_set():
            await connection.chunk(HELLO)
            await asyncio.sleep(0.005)

    async with raw_server(for_ever) as server:
        heard = await hear_something(open_client(server.url))
    assert heard.failure.code == "timeout"
    assert heard.failure.detail["limit"] == "total"
    assert heard.texts


async def test_t2_silence_after_the_finish_reason_ends_the_turn_well(open_client: OpenClient) -> None:
    async def stays_open(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO + STOP)
        await connection.hang()

    async with raw_server(stays_open) as server:
        heard = await hear(open_client(server.url, limits=STAYS_OPEN))
    assert heard.finish.reason == "stop"


async def test_t2_a_ceiling_that_is_reached_after_the_finish_reason_ends_the_turn_well(open_client: OpenClient) -> None:
    async def stays_open(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO + STOP)
        await connection.hang()

    async with raw_server(stays_open) as server:
        heard = await hear_something(open_client(server.url, limits=Limits(after_finish_s=60)))
    assert heard.finish.reason == "stop"


@pytest.mark.parametrize(("old", "new"), [(b"data: ", b"data:"), (b"\n", b"\r\n"), (b"\n", b"\r")])
async def test_t3_no_space_crlf_and_bare_cr_are_read(open_client: OpenClient, old: bytes, new: bytes) -> None:
    async with raw_server(stream((HELLO + STOP + DONE).replace(old, new))) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]
    assert heard.finish.reason == "stop"


async def test_t3_characters_split_at_every_byte_arrive_whole(open_client: OpenClient) -> None:
    whole = delta(content="北京 🌧") + STOP + DONE
    async with raw_server(stream(*(whole[i : i + 1] for i in range(len(whole))))) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["北京 🌧"]


async def test_t3_a_character_cut_in_two_escaped_halves_is_joined(open_client: OpenClient) -> None:
    halves = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n',
    ]
    async with raw_server(stream(*halves, STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["a", "😀b"]


@pytest.mark.parametrize(
    "delta_",
    [
        r'{"tool_calls":[{"index":0,"id":"a\ud83d","function":{"name":"f\ud83d","arguments":"{}"}}]}',
        r'{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":"\ud83d"}}}]}',
        r'{"content":[{"type":"text","text":"a\ud83d"}]}',
        r'{"refusal":"no\ud83d"}',
        r'{"reasoning_details":[{"text":"hm\ud83d","\ud83d":1}]}',
    ],
)
async def test_t3_half_characters_anywhere_else_do_not_keep_a_turn_from_being_stored(
    open_client: OpenClient, delta_: str
) -> None:
    odd = f'data: {{"choices":[{{"delta":{delta_},"finish_reason":"stop"}}]}}\n\n'.encode()
    async with raw_server(stream(odd)) as server:
        heard = await hear(open_client(server.url))
    assert heard.finish.reason
    assert "\ufffd" in msgspec.json.encode(heard.deltas, enc_hook=lambda hidden: hidden.fields).decode()


async def test_t3_half_characters_in_a_whole_turn_and_in_an_error_are_replaced(open_client: OpenClient) -> None:
    turn = rb'{"choices":[{"message":{"content":"a\ud83db"},"finish_reason":"stop"}]}'
    async with raw_server(body(200, turn), body(400, rb'{"error":{"message":"no\ud83d"}}')) as server:
        client = open_client(server.url)
        assert (await hear(client)).texts == ["a\ufffdb"]
        assert (await hear(client)).failure.detail["excerpt"] == "no\ufffd"


async def test_t3_broken_utf8_becomes_a_replacement_character(open_client: OpenClient) -> None:
    async with raw_server(stream(b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\n', STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["a\ufffdb"]


async def test_t4_a_byte_order_mark_does_not_cost_the_first_event(open_client: OpenClient) -> None:
    async with raw_server(stream(b"\xef\xbb", b"\xbf" + HELLO, STOP, DONE)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]


@pytest.mark.parametrize("odd", [b"event: ping\n\n", b"data:\n\n", b"data: \n\n", b"\n\n\n", b"id: 3\n\n"])
async def test_t5_events_without_data_are_skipped(open_client: OpenClient, odd: bytes) -> None:
    async with raw_server(stream(odd, HELLO, odd, STOP, odd, DONE)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]
    assert heard.finish.reason == "stop"


@pytest.mark.parametrize(
    "odd", [b"data: ping\n\n", b'data: {"choices":[{"del\n\n', b"data: 7\n\n", b"data: null\n\n", DEEP]
)
async def test_t6_unreadable_data_between_text_is_skipped_with_a_warning(
    open_client: OpenClient, capsys: pytest.CaptureFixture[str], odd: bytes
) -> None:
    async with raw_server(stream(HELLO, odd, delta(content=" you"), STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello", " you"]
    assert "model.chunk_skipped" in capsys.readouterr().err


async def test_t6_unreadable_data_does_not_stand_for_a_finish(open_client: OpenClient) -> None:
    async with raw_server(stream(HELLO, b"data: upstream error: read ECONNRESET\n\n")) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "stream_truncated"


async def test_t6_unreadable_data_among_arguments_fails_the_turn(open_client: OpenClient) -> None:
    begun = delta(tool_calls=[call(0, "a", "f", '{"x":')])
    async with raw_server(stream(begun, b"data: garbage\n\n", STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "provider_error"
    assert heard.failure.detail["excerpt"] == "garbage"
    assert heard.turn.message().tool_calls == ()


async def test_t7_done_is_not_needed(open_client: OpenClient) -> None:
    async with raw_server(stream(HELLO, STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.finish.reason == "stop"


@pytest.mark.parametrize("end", [b"", DONE])
async def test_t8_an_end_without_a_finish_reason_is_truncated_whether_done_came_or_not(
    open_client: OpenClient, end: bytes
) -> None:
    async with raw_server(stream(HELLO, end)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]
    assert heard.failure.code == "stream_truncated"
    assert "5 characters of text" in heard.failure.message


@pytest.mark.parametrize("end", [DONE, event({"choices": [], "usage": {"prompt_tokens": 1}})])
async def test_t8_a_profile_may_let_done_or_usage_stand_for_the_finish(open_client: OpenClient, end: bytes) -> None:
    async with raw_server(stream(HELLO, end)) as server:
        heard = await hear(open_client(server.url, finish_optional=True))
    assert heard.finish.reason == "stop"
    assert heard.finish.raw_reason is None


async def test_t8_also_where_the_finish_is_optional_a_bare_end_is_truncated(open_client: OpenClient) -> None:
    async with raw_server(stream(HELLO)) as server:
        heard = await hear(open_client(server.url, finish_optional=True))
    assert heard.failure.code == "stream_truncated"


async def test_t9_a_cut_connection_keeps_the_text_and_drops_the_calls(open_client: OpenClient) -> None:
    async def cut(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO + delta(tool_calls=[call(0, "a", "f", '{"x": 1}')]))
        await connection.cut()

    async with raw_server(cut) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "connection"
    assert "5 characters of text and 1 tool call" in heard.failure.message
    partial = heard.turn.message(status="error")
    assert (partial.content, partial.tool_calls, partial.status) == ("Hello", (), "error")


async def test_t9_a_cut_after_the_finish_reason_is_no_error(open_client: OpenClient) -> None:
    async def cut(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO + STOP)
        await connection.cut()

    async with raw_server(cut) as server:
        heard = await hear(open_client(server.url))
    assert heard.finish.reason == "stop"


async def test_t10_a_last_event_without_its_blank_line_counts(open_client: OpenClient) -> None:
    async with raw_server(stream(HELLO, STOP.rstrip())) as server:
        heard = await hear(open_client(server.url))
    assert heard.finish.reason == "stop"


async def test_t10_a_last_event_that_was_cut_does_not_count(open_client: OpenClient) -> None:
    async with raw_server(stream(HELLO, STOP[:-20])) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]
    assert heard.failure.code == "stream_truncated"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_t11_a_json_body_is_taken_as_one_whole_turn(open_client: OpenClient, content_type: str) -> None:
    message = {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "Hello",
        "tool_calls": [call(..., "a", "f", '{"x":1}')],
    }
    whole = {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3},
    }
    async with raw_server(body(200, json.dumps(whole).encode(), content_type)) as server:
        heard = await hear(open_client(server.url))
    assert heard.turn.text == "Hello"
    assert heard.turn.reasoning == "hm"
    assert heard.calls == [("a", "f", '{"x":1}')]
    assert heard.finish.usage is not None
    assert heard.finish.usage.prompt_tokens == 3


async def test_t11_an_error_as_json_body_with_200_is_a_provider_error(open_client: OpenClient) -> None:
    async with raw_server(body(200, b'{"error":{"message":"no such deployment"}}')) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "provider_error"
    assert "no such deployment" in heard.failure.message


@pytest.mark.parametrize("content", [b"{}", b'{"choices":[]}', b"[]", b'{"choices": null}'])
async def test_t11_json_without_a_turn_in_it_is_a_provider_error(open_client: OpenClient, content: bytes) -> None:
    async with raw_server(body(200, content)) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "provider_error"


async def test_t11_a_page_with_200_is_a_provider_error_with_its_beginning(open_client: OpenClient) -> None:
    page = b"<!doctype html><title>Bad gateway</title>"
    async with raw_server(body(200, page, "text/html")) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "provider_error"
    assert "Bad gateway" in heard.failure.detail["excerpt"]


@pytest.mark.parametrize("content", [b"", b"\n\n", DONE, b": hello\n\n"])
async def test_t11_an_empty_answer_is_truncated_and_never_an_empty_success(
    open_client: OpenClient, content: bytes
) -> None:
    async with raw_server(stream(content)) as server:
        heard = await hear(open_client(server.url, finish_optional=True))
    assert heard.failure.code == "stream_truncated"


async def test_t11_plain_text_with_200_is_shown_in_the_error(open_client: OpenClient) -> None:
    async with raw_server(body(200, b"upstream is down", "text/plain")) as server:
        heard = await hear(open_client(server.url))
    assert "upstream is down" in heard.failure.detail["excerpt"]


async def test_t11_a_stream_with_another_content_type_is_still_a_stream(open_client: OpenClient) -> None:
    async with raw_server(body(200, HELLO + STOP, "text/plain")) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]


async def test_t12_a_line_of_a_megabyte_is_read(open_client: OpenClient) -> None:
    big = json.dumps({"text": "x" * 1_000_000})
    async with raw_server(stream(delta("tool_calls", tool_calls=[call(0, "a", "f", big)]), DONE)) as server:
        heard = await hear(open_client(server.url))
    assert heard.calls == [("a", "f", big)]


# --- errors --------------------------------------------------------------------------------------


async def test_u1_an_error_in_mid_stream_is_raised_after_the_text_before_it(open_client: OpenClient) -> None:
    fault = event(
        {"error": {"message": "overloaded", "code": 503}, "choices": [{"index": 0, "delta": {"content": "no"}}]}
    )
    async with raw_server(stream(HELLO + fault + STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.deltas == [TextDelta("Hello")], "the error wins over choices beside it"
    assert heard.failure.code == "provider_error"
    assert heard.failure.detail["status"] == 503
    assert heard.failure.detail["provider"] == "fake"


async def test_u1_a_rate_limit_in_mid_stream_has_its_code(open_client: OpenClient) -> None:
    async with raw_server(stream(event({"error": {"message": "slow down", "type": "rate_limit_error"}}))) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "rate_limit"


@pytest.mark.parametrize(
    "fault",
    [
        b'event: error\ndata: {"error":{"message":"it broke"}}\n\n',
        b"event: error\ndata: it broke\n\n",
        event({"error": "it broke"}),
    ],
)
async def test_u2_error_events_and_error_texts_keep_what_they_say(open_client: OpenClient, fault: bytes) -> None:
    async with raw_server(stream(HELLO, fault)) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.code == "provider_error"
    assert heard.failure.detail["excerpt"] == "it broke"


async def test_u3_the_unknown_field_error_is_an_error(open_client: OpenClient) -> None:
    async with raw_server(stream(HELLO, b'error: {"message":"gpu lost","code":500}\n\n', DONE)) as server:
        heard = await hear(open_client(server.url))
    assert "gpu lost" in heard.failure.message
    assert heard.failure.detail["status"] == 500


@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": []}])
async def test_u4_a_code_and_message_without_choices_is_an_error(
    open_client: OpenClient, choices: dict[str, None]
) -> None:
    async with raw_server(stream(event({"code": "InvalidParameter", "message": "bad input", **choices}))) as server:
        heard = await hear(open_client(server.url))
    assert heard.failure.detail["excerpt"] == "bad input"


@pytest.mark.parametrize("nothing", [None, "", {}])
async def test_u5_an_empty_error_beside_choices_is_no_error(open_client: OpenClient, nothing: object) -> None:
    chunk = event({"error": nothing, "choices": [{"index": 0, "delta": {"content": "Hello"}}]})
    async with raw_server(stream(chunk, STOP)) as server:
        heard = await hear(open_client(server.url))
    assert heard.texts == ["Hello"]


@pytest.mark.parametrize(
    ("content", "content_type", "said"),
    [
        (b'{"error":{"message":"bad key","type":"authentication_error"}}', "application/octet-stream", "bad key"),
        (b'[{"error":{"code":404,"message":"bad key","status":"NOT_FOUND"}}]', "text/event-stream", "bad key"),
        (b'{"error":"bad key"}', "application/json", "bad key"),
        (b'{"object":"error","message":"bad key","code":"3051"}', "application/json", "bad key"),
        (b'{"error":{"code":400,"message":"bad key"}}', "application/json", "bad key"),
        (b'{"detail":"bad key"}', "application/json", "bad key"),
        (b"<html><h1>bad key</h1></html>", "text/html", "<html><h1>bad key</h1></html>"),
        (b"bad key", "text/plain", "bad key"),
        (b"", "text/plain", ""),
        (b'{"error":{"message":"bad key"', "application/json", '{"error":{"message":"bad key"'),
    ],
)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 500, 502])
async def test_u6_error_bodies_are_read_whatever_their_type(
    open_client: OpenClient, status: int, content: bytes, content_type: str, said: str
) -> None:
    async with raw_server(body(status, content, content_type)) as server:
        heard = await hear(open_client(server.url))
    error = heard.failure
    assert (error.code, error.detail["status"], error.detail["provider"]) == ("provider_error", status, "fake")
    assert error.detail["excerpt"] == said
    assert error.retryable == (status >= 500)


async def test_u6_a_long_error_body_is_cut_to_500_characters(open_client: OpenClient) -> None:
    async with raw_server(body(500, b"x" * 300_000, "text/plain")) as server:
        heard = await hear(open_client(server.url))
    assert len(heard.failure.detail["excerpt"]) == 500


async def test_u6_no_secret_reaches_an_error(open_client: OpenClient) -> None:
    key = "very-private-key-0123456789"
    said = json.dumps({"error": {"message": f"Incorrect API key {key}; Authorization: Bearer abcdef123456"}})
    async with raw_server(body(401, said.encode())) as server:
        heard = await hear(open_client(server.url, api_key=key))
        assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    told = f"{heard.failure.message} {heard.failure.detail}"
    assert key not in told
    assert "abcdef123456" not in told
    assert "check the API key" in told


@pytest.mark.parametrize("before", [1_980, 8_180, 9_200])
async def test_u6_no_cut_leaves_the_head_of_a_secret_behind(open_client: OpenClient, before: int) -> None:
    """A body is read in part: white space that is folded afterwards brings the place of the cut into the excerpt."""
    key = "very-private-key-0123456789"
    answer = b"no" + b" " * before + f"{key} and sk-abcdefghijklmnop".encode() + b" " * 20_000
    async with raw_server(body(401, answer, "text/plain")) as server:
        heard = await hear(open_client(server.url, api_key=key))
    told = f"{heard.failure} {heard.failure.detail}"
    assert "very-" not in told
    assert "sk-ab" not in told


@pytest.mark.parametrize("shown", [5, 21, 31])
@pytest.mark.parametrize("blocks", ["one", "two"])
async def test_u6_no_head_of_a_secret_is_told_where_a_body_without_a_stream_breaks_off(
    open_client: OpenClient, shown: int, blocks: str
) -> None:
    """The beginning of a body that held no event explains the error; the cut of 500 bytes went through the key."""
    key = "Aq9Zt3Lm7Pw1Xc5Vb8Nk2Jh6Gf4Ds0Re"
    said = b"refused: the key ".ljust(500 - shown, b".") + key.encode() + b" is unknown"
    parts = (said,) if blocks == "one" else (said[:500], said[500:])
    async with raw_server(stream(*parts)) as server:
        heard = await hear(open_client(server.url, api_key=key))
    assert heard.failure.code == "stream_truncated"
    told = f"{heard.failure} {heard.failure.detail}"
    assert "refused: the key" in told
    assert key[:5] not in told


@pytest.mark.parametrize("field", ["message", "code", "type"])
@pytest.mark.parametrize("depth", [300, 600, 900])
async def test_u1_an_error_that_is_nested_deeply_is_an_error_like_others(
    open_client: OpenClient, field: str, depth: int
) -> None:
    deep = b"[" * depth + b"]" * depth
    payload = b'{"error": {"' + field.encode() + b'": ' + deep + b"}}"
    for answer in (stream(b"data: " + payload + b"\n\n"), stream(payload), body(500, payload)):
        async with raw_server(answer) as server:
            assert (await hear(open_client(server.url))).failure.code == "provider_error"


@pytest.mark.parametrize("sent", [" very-private-key-0123456789\n", "Bearer very-private-key-0123456789"])
async def test_u6_a_key_is_not_told_either_when_it_was_set_with_more_around_it(sent: str) -> None:
    async with raw_server(body(401, b"very-private-key-0123456789 is unknown", "text/plain")) as server:
        own_header = {"Authorization": sent} if sent.startswith("Bearer") else {}
        provider = Provider(key="x", profile=Profile(), base_url=server.url, api_key=sent, headers=own_header)
        model = OpenAICompatibleModel(provider, "m")
        heard = await hear(model)
        await model.aclose()
    assert heard.failure.detail["excerpt"] == "*** is unknown"


async def test_u6_a_redirect_is_an_error_that_names_the_address(open_client: OpenClient) -> None:
    async with raw_server(body(307, b"", location="https://elsewhere.example/v1")) as server:
        heard = await hear(open_client(server.url))
    assert "https://elsewhere.example/v1" in heard.failure.message
    assert not heard.failure.retryable


RETRY = Limits(first_data_s=5, idle_s=5, total_s=300, max_retries=2)
GOOD = stream(HELLO, STOP, DONE)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_u7_a_passing_fault_is_tried_again(open_client: OpenClient, pauses: list[float], status: int) -> None:
    async with raw_server(body(status, b"{}"), body(status, b"{}"), GOOD) as server:
        heard = await hear(open_client(server.url, limits=RETRY))
        assert len(server.requests) == 3
    assert heard.texts == ["Hello"]
    assert pauses == [0.25, 0.5], "doubling, the draw being 0"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
async def test_u7_a_lasting_fault_is_not_tried_again(open_client: OpenClient, pauses: list[float], status: int) -> None:
    async with raw_server(body(status, b"{}"), GOOD) as server:
        heard = await hear(open_client(server.url, limits=RETRY))
        assert len(server.requests) == 1
    assert heard.failure.detail["status"] == status
    assert pauses == []


async def test_u7_retries_are_counted_not_tries(open_client: OpenClient, pauses: list[float]) -> None:
    async with raw_server(body(429, b"{}")) as server:
        heard = await hear(open_client(server.url, limits=RETRY))
        assert len(server.requests) == 3
    assert heard.failure.code == "rate_limit"
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("headers", "pause"),
    [({"retry_after": "3"}, 3.0), ({"retry_after": "1.5"}, 1.5), ({"retry_after_ms": "250", "retry_after": "9"}, 0.25)],
)
async def test_u7_the_pause_that_the_provider_asks_for_is_kept(
    open_client: OpenClient, pauses: list[float], headers: dict[str, str], pause: float
) -> None:
    async with raw_server(body(429, b"{}", **headers), GOOD) as server:
        assert (await hear(open_client(server.url, limits=RETRY))).texts == ["Hello"]
    assert pauses == [pause]


async def test_u7_the_pause_may_be_a_date(open_client: OpenClient, pauses: list[float]) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    async with raw_server(body(503, b"{}", retry_after=moment), GOOD) as server:
        assert (await hear(open_client(server.url, limits=RETRY))).texts == ["Hello"]
    assert 0 < pauses[0] <= 30


async def test_u7_a_pause_beyond_the_cap_fails_at_once(open_client: OpenClient, pauses: list[float]) -> None:
    async with raw_server(body(429, b"{}", retry_after="121"), GOOD) as server:
        heard = await hear(open_client(server.url, limits=RETRY))
    assert heard.failure.code == "rate_limit"
    assert heard.failure.detail["retry_after_s"] == 121
    assert pauses == []


@pytest.mark.parametrize(("status", "word", "tries"), [(500, "false", 1), (400, "true", 2)])
async def test_u7_x_should_retry_decides(open_client: OpenClient, status: int, word: str, tries: int) -> None:
    async with raw_server(body(status, b"{}", x_should_retry=word), GOOD) as server:
        await hear(open_client(server.url, limits=RETRY))
        assert len(server.requests) == tries


async def test_u7_a_used_up_quota_is_not_tried_again(open_client: OpenClient) -> None:
    spent = b'{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}'
    async with raw_server(body(429, spent), GOOD) as server:
        heard = await hear(open_client(server.url, limits=RETRY))
        assert len(server.requests) == 1
    assert heard.failure.code == "rate_limit"


async def test_u7_a_broken_connection_before_the_first_delta_is_tried_again(open_client: OpenClient) -> None:
    async def cut_early(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(delta(role="assistant", content=""))
        await connection.cut()

    async with raw_server(Connection.cut, cut_early, GOOD) as server:
        assert (await hear(open_client(server.url, limits=RETRY))).texts == ["Hello"]


async def test_u7_an_empty_stream_and_an_early_error_event_are_tried_again(open_client: OpenClient) -> None:
    async with raw_server(stream(DONE), stream(event({"error": {"message": "overloaded"}})), GOOD) as server:
        assert (await hear(open_client(server.url, limits=RETRY))).texts == ["Hello"]


async def test_u7_nothing_is_tried_again_once_a_delta_was_given_out(
    open_client: OpenClient, pauses: list[float]
) -> None:
    async def cut(connection: Connection) -> None:
        await connection.head()
        await connection.chunk(HELLO)
        await connection.cut()

    async with raw_server(cut, GOOD) as server:
        heard = await hear(open_client(server.url, limits=RETRY))
        assert len(server.requests) == 1
    assert heard.texts == ["Hello"]
    assert heard.failure.code == "connection"
    assert pauses == []


async def test_u7_a_stall_before_the_first_delta_is_tried_again(open_client: OpenClient) -> None:
    limits = Limits(first_data_s=0.05, idle_s=60, total_s=600, max_retries=100)  # a slow machine stalls more than once
    async with raw_server(Connection.hang, GOOD) as server:
        assert (await hear(open_client(server.url, limits=limits))).texts == ["Hello"]
    assert len(server.requests) > 1


async def test_u7_a_retry_that_would_pass_the_ceiling_is_not_begun(
    open_client: OpenClient, pauses: list[float]
) -> None:
    async with raw_server(body(429, b"{}", retry_after="60"), GOOD) as server:
        heard = await hear(open_client(server.url, limits=RETRY), timeout_s=30)
    assert heard.failure.code == "rate_limit"
    assert pauses == []


async def test_a_server_that_is_not_there_is_a_connection_error_that_names_the_address(open_client: OpenClient) -> None:
    async with raw_server(GOOD) as server:
        gone = server.url
    heard = await hear(open_client(gone))
    assert heard.failure.code == "connection"
    assert gone in heard.failure.message
