"""What providers put into chunks: rows C1–C9, R1–R5 and A1–A12 of the quirk table."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from graphflow.messages import AIMessage, HumanMessage, ProviderState, ToolCall, ToolMessage
from graphflow.models.chat_model import (
    Finish,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    arguments_error,
)
from tests.models.raw_server import DONE, STOP, call, delta, event, raw_server, stream
from tests.models.turns import Heard, OpenClient, hear, spec

CALLED = delta("tool_calls")


async def turn(open_client: OpenClient, *blocks: bytes, tools: tuple[str, ...] = (), **profile: Any) -> Heard:
    """A turn whose stream has these blocks."""
    async with raw_server(stream(*blocks)) as server:
        return await hear(open_client(server.url, **profile), tools=spec(*tools))


def calls(*entries: dict[str, Any], finish: str | None = None) -> bytes:
    return delta(finish, tool_calls=list(entries))


# --- choices, content, usage, finish -------------------------------------------------------------


async def test_c1_chunks_with_empty_choices_are_skipped_and_their_usage_read(open_client: OpenClient) -> None:
    first = event({"choices": [], "prompt_filter_results": [], "object": ""})
    last = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    heard = await turn(open_client, first, delta(content="Hello"), STOP, last, DONE)
    assert heard.texts == ["Hello"]
    assert heard.finish.usage == Usage(prompt_tokens=5, completion_tokens=2)


@pytest.mark.parametrize("odd", [{}, {"choices": None}, {"choices": [{"index": 0}]}, {"choices": [{"delta": None}]}])
async def test_c2_missing_choices_and_deltas_are_empty_ones(open_client: OpenClient, odd: dict[str, Any]) -> None:
    heard = await turn(open_client, event(odd), delta(content="Hello"), event(odd), STOP)
    assert heard.texts == ["Hello"]


@pytest.mark.parametrize("end", [{"finish_reason": "stop"}, {"finish_reason": "stop", "delta": None}])
async def test_c2_a_finish_without_a_delta_is_read(open_client: OpenClient, end: dict[str, Any]) -> None:
    heard = await turn(open_client, delta(content="Hello"), event({"choices": [end]}))
    assert heard.finish.reason == "stop"


@pytest.mark.parametrize("role", ["assistant", "", None])
async def test_c3_null_and_empty_content_and_repeated_roles_say_nothing(
    open_client: OpenClient, role: str | None
) -> None:
    blocks = [delta(role=role, content=None), delta(role=role, content=""), delta(role=role, content="Hello")]
    heard = await turn(open_client, *blocks, delta("stop", role=role, content=""))
    assert heard.deltas[:-1] == [TextDelta("Hello")]


async def test_c3_white_space_is_text(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta(content="\n\n"), delta(content=" "), STOP)
    assert heard.texts == ["\n\n", " "]


async def test_c4_content_in_parts_is_text_and_thinking(open_client: OpenClient) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    heard = await turn(
        open_client,
        delta(content=[thinking]),
        delta(content=[{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]),
        delta("stop", content=[]),
    )
    assert heard.deltas[:-1] == [ThinkingDelta("hm"), TextDelta("Hello")]


async def test_c5_a_whole_message_beside_the_delta_is_not_said_twice(open_client: OpenClient) -> None:
    def both(piece: str, so_far: str, finish: str | None = None) -> bytes:
        message = {"role": "assistant", "content": so_far}
        return event({"choices": [{"delta": {"content": piece}, "message": message, "finish_reason": finish}]})

    heard = await turn(open_client, both("Hel", "Hel"), both("lo", "Hello", "stop"))
    assert heard.turn.text == "Hello"


async def test_c6_of_several_usages_the_last_one_counts(open_client: OpenClient) -> None:
    blocks = [
        event({"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": 5, "completion_tokens": n}})
        for n in (1, 2, 3)
    ]
    heard = await turn(open_client, *blocks, STOP)
    assert heard.finish.usage == Usage(prompt_tokens=5, completion_tokens=3)


async def test_c6_a_null_usage_does_not_undo_one_that_came(open_client: OpenClient) -> None:
    known = event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5}})
    heard = await turn(open_client, delta(content="x"), known, event({"choices": [], "usage": None}))
    assert heard.finish.usage == Usage(prompt_tokens=5)


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 4}},
            Usage(cached_tokens=3, reasoning_tokens=4),
        ),
        ({"prompt_cache_hit_tokens": 3, "prompt_tokens": 9}, Usage(prompt_tokens=9, cached_tokens=3)),
        ({"cached_tokens": 3, "prompt_tokens_details": None}, Usage(cached_tokens=3)),
        ({"prompt_tokens": 1e300, "completion_tokens": 7}, Usage(completion_tokens=7)),
        ({"prompt_tokens": "many", "completion_tokens": -1, "total_tokens": True}, Usage()),
    ],
)
async def test_c6_cached_and_reasoning_tokens_are_found_where_providers_put_them(
    open_client: OpenClient, raw: dict[str, Any], usage: Usage
) -> None:
    heard = await turn(open_client, delta("stop", content="x"), event({"choices": [], "usage": raw}))
    assert heard.finish.usage == usage


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 5}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "x_groq": {"usage": {"prompt_tokens": 5}}},
    ],
)
async def test_c6_usage_inside_the_choice_or_beside_it_is_read(open_client: OpenClient, chunk: dict[str, Any]) -> None:
    heard = await turn(open_client, delta(content="x"), event(chunk))
    assert heard.finish.usage == Usage(prompt_tokens=5)


async def test_c7_the_last_finish_reason_counts_and_later_deltas_too(open_client: OpenClient) -> None:
    heard = await turn(
        open_client, delta("stop", content="Hel"), delta(content="lo"), delta("length"), delta(None), DONE
    )
    assert heard.turn.text == "Hello"
    assert heard.finish.reason == "length"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("sensitive", "content_filter"),
        ("SAFETY", "content_filter"),
        ("tool_calls", "stop"),
        ("something_new", "stop"),
    ],
)
async def test_c8_finish_reasons_are_mapped_and_the_word_is_kept(
    open_client: OpenClient, raw: str, reason: str
) -> None:
    heard = await turn(open_client, delta(content="x"), delta(raw))
    assert (heard.finish.reason, heard.finish.raw_reason) == (reason, raw)


@pytest.mark.parametrize("raw", ["network_error", "error", "ERROR", "insufficient_system_resource"])
async def test_c8_reasons_that_mean_a_fault_are_errors(open_client: OpenClient, raw: str) -> None:
    heard = await turn(open_client, delta(content="x"), delta(raw), DONE)
    assert heard.failure.code == "provider_error"
    assert raw in heard.failure.message


async def test_c8_an_empty_finish_reason_is_none(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta("", content="x"), DONE)
    assert heard.failure.code == "stream_truncated"


async def test_c9_only_the_first_candidate_is_heard(open_client: OpenClient) -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "NO"}, "finish_reason": "length"}]})
    both = event({"choices": [{"index": 1, "delta": {"content": "NO"}}, {"index": 0, "delta": {"content": "Hello"}}]})
    heard = await turn(open_client, other, both, STOP, other)
    assert heard.texts == ["Hello"]
    assert heard.finish.reason == "stop"


async def test_fields_of_unexpected_types_cost_only_themselves(open_client: OpenClient) -> None:
    odd = event(
        {"choices": [{"index": "0", "delta": {"content": "Hello", "reasoning_content": 3, "tool_calls": "no"}}]}
    )
    heard = await turn(open_client, odd, event({"choices": [{"delta": "no", "finish_reason": 1}, 7]}), STOP)
    assert heard.texts == ["Hello"]


async def test_an_index_beyond_every_number_counts_as_none(open_client: OpenClient) -> None:
    odd = b'data: {"choices": [{"index": 1e999, "delta": {"content": "Hello"}}]}\n\n'
    heard = await turn(open_client, odd, STOP)
    assert heard.texts == ["Hello"]


# --- reasoning -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"reasoning_content": "", "reasoning": "hm", "content": ""},
        {"reasoning_content": None, "reasoning": "hm", "content": None},
    ],
)
async def test_r1_reasoning_comes_once_whatever_its_field(open_client: OpenClient, fields: dict[str, Any]) -> None:
    heard = await turn(open_client, delta(**fields), delta(content="Hello"), STOP)
    assert heard.deltas[:-1] == [ThinkingDelta("hm"), TextDelta("Hello")]


async def test_r1_a_chunk_with_reasoning_and_text_gives_one_delta_of_each(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta(reasoning_content="hm", content="Hello"), STOP)
    assert heard.deltas[:-1] == [ThinkingDelta("hm"), TextDelta("Hello")]


DETAILS = [
    {"type": "reasoning.summary", "summary": "hm", "index": 0},
    {"type": "reasoning.text", "text": " so", "signature": "s1gn", "index": 1},
    {"type": "reasoning.encrypted", "data": "0paque", "id": "r1"},
]


async def test_r2_reasoning_details_are_shown_kept_and_sent_back_unchanged(open_client: OpenClient) -> None:
    blocks = [delta(reasoning_details=[item]) for item in DETAILS]
    async with raw_server(stream(*blocks, delta("stop", content="Hello"))) as server:
        client = open_client(server.url)
        heard = await hear(client)
        assert [d.text for d in heard.deltas if isinstance(d, ThinkingDelta)] == ["hm", " so"]
        said = heard.turn.message()
        assert said.provider_state == ProviderState(
            provider="fake", model="fake-model", data={"reasoning_details": DETAILS}
        )
        await hear(client, [HumanMessage(content="hi"), said, HumanMessage(content="and?")])
        assert server.requests[1].json["messages"][1]["reasoning_details"] == DETAILS


async def test_r2_reasoning_in_both_forms_is_not_shown_twice(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta(reasoning="hm", reasoning_details=[DETAILS[0]]), STOP)
    assert heard.turn.reasoning == "hm"


@pytest.mark.parametrize("pieces", [["<think>hm</think>Hello"], ["<th", "ink>h", "m</", "think>He", "llo"]])
async def test_r3_think_tags_are_split_when_the_profile_says_so(open_client: OpenClient, pieces: list[str]) -> None:
    heard = await turn(open_client, *(delta(content=p) for p in pieces), STOP, think_tags=True)
    assert (heard.turn.reasoning, heard.turn.text) == ("hm", "Hello")


async def test_r3_think_tags_are_plain_text_otherwise(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta(content="<think>hm</think>Hello"), STOP)
    assert heard.texts == ["<think>hm</think>Hello"]


async def test_r3_a_half_tag_at_the_end_is_text(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta(content="a <thi"), STOP, think_tags=True)
    assert heard.turn.text == "a <thi"


async def test_r3_what_may_have_begun_a_tag_comes_before_the_call_that_follows(open_client: OpenClient) -> None:
    blocks = [delta(content="a <"), delta("tool_calls", tool_calls=[call(0, "i", "f", "{}")])]
    heard = await turn(open_client, *blocks, think_tags=True)
    assert heard.deltas[:-1] == [TextDelta("a "), TextDelta("<"), ToolCallDelta(0, "i", "f", "{}")]


def reasoned(text: str, *calls: ToolCall, content: str = "") -> AIMessage:
    """A turn of the fake provider, as its client kept it."""
    state = ProviderState(provider="fake", model="fake-model", data={"reasoning_content": True})
    return AIMessage(content=content, reasoning=text, tool_calls=calls, provider_state=state)


HISTORY = (
    HumanMessage(content="first"),
    reasoned("old", ToolCall(id="a", name="f")),
    ToolMessage(tool_call_id="a", content="1"),
    reasoned("old too", content="one"),
    HumanMessage(content="second"),
    reasoned("no tool", content="two"),
    HumanMessage(content="third"),
    reasoned("new", ToolCall(id="b", name="f")),
    ToolMessage(tool_call_id="b", content="2"),
)


async def test_r4_reasoning_goes_back_in_turns_with_tools_where_the_profile_demands_it(open_client: OpenClient) -> None:
    """In those of earlier user messages too: https://api-docs.deepseek.com/guides/thinking_mode."""
    async with raw_server(stream(STOP)) as server:
        await hear(open_client(server.url, replay_reasoning="tool_turns"), HISTORY)
        sent = [m.get("reasoning_content") for m in server.requests[0].json["messages"]]
    assert sent == [None, "old", None, "old too", None, None, None, "new", None]


async def test_r4_reasoning_of_another_provider_or_of_nobody_is_not_sent_and_the_field_is_empty(
    open_client: OpenClient,
) -> None:
    strange = [
        msgspec.structs.replace(m, provider_state=state) if isinstance(m, AIMessage) else m
        for state in (None, ProviderState(provider="other", model="fake-model", data={"reasoning_content": True}))
        for m in HISTORY
    ]
    async with raw_server(stream(STOP)) as server:
        await hear(open_client(server.url, replay_reasoning="tool_turns"), strange)
        sent = [m.get("reasoning_content") for m in server.requests[0].json["messages"]]
    assert sent == [None, "", None, None, None, None, None, "", None] * 2


async def test_r4_reasoning_is_not_sent_back_otherwise(open_client: OpenClient) -> None:
    async with raw_server(stream(STOP)) as server:
        await hear(open_client(server.url), HISTORY)
        assert "reasoning" not in server.requests[0].body.decode()


async def test_r5_a_refusal_is_text_and_ends_as_content_filter(open_client: OpenClient) -> None:
    heard = await turn(open_client, delta(refusal="I can't "), delta(refusal="do that."), STOP)
    assert heard.turn.text == "I can't do that."
    assert heard.finish.reason == "content_filter"


# --- tool calls ----------------------------------------------------------------------------------

WHOLE = [("a", "f", '{"x":1}')]
BOTH = [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


async def test_a1_arguments_in_pieces_come_piece_by_piece(open_client: OpenClient) -> None:
    heard = await turn(
        open_client,
        calls(call(0, "a", "f", "")),
        calls(call(0, ..., ..., '{"x"')),
        calls(call(0, ..., ..., ":1}")),
        CALLED,
    )
    assert heard.deltas == [
        ToolCallDelta(0, "a", "f", ""),
        ToolCallDelta(0, None, None, '{"x"'),
        ToolCallDelta(0, None, None, ":1}"),
        Finish("tool_calls", "tool_calls"),
    ]


async def test_a1_whole_calls_calls_in_the_finish_chunk_and_several_in_one_chunk_are_calls(
    open_client: OpenClient,
) -> None:
    first, second = call(0, "a", "f", '{"x":1}'), call(1, "b", "g", '{"y":2}')
    assert (await turn(open_client, calls(first), CALLED)).calls == WHOLE
    assert (await turn(open_client, calls(first, finish="tool_calls"))).calls == WHOLE
    assert (await turn(open_client, calls(first, second), CALLED)).calls == BOTH
    assert (await turn(open_client, calls(first), calls(second), CALLED)).calls == BOTH


async def test_a1_interleaved_arguments_of_two_calls_stay_apart(open_client: OpenClient) -> None:
    heard = await turn(
        open_client,
        calls(call(0, "a", "f", '{"x"'), call(1, "b", "g", '{"y"')),
        calls(call(1, ..., ..., ":2}"), call(0, ..., ..., ":1}")),
        CALLED,
    )
    assert heard.calls == BOTH


@pytest.mark.parametrize("index", [..., None])
async def test_a2_without_an_index_the_id_or_the_last_open_call_decides(open_client: OpenClient, index: Any) -> None:
    heard = await turn(
        open_client,
        calls(call(index, "a", "f", '{"x"')),
        calls(call(index, ..., ..., ":1}")),
        calls(call(index, "b", "g", '{"y"')),
        calls(call(index, "b", ..., ":2}")),
        CALLED,
    )
    assert heard.calls == BOTH


async def test_a2_without_index_and_id_the_entries_of_one_chunk_are_calls_of_their_own(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(..., ..., "f", '{"x":1}'), call(..., ..., "f", '{"x":2}')), CALLED)
    assert [(name, arguments) for _, name, arguments in heard.calls] == [("f", '{"x":1}'), ("f", '{"x":2}')]


async def test_a2_an_index_that_appears_late_belongs_to_the_open_call(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(..., "a", "f", '{"x"')), calls(call(0, ..., ..., ":1}")), CALLED)
    assert heard.calls == WHOLE


async def test_a3_a_new_id_with_a_name_on_a_used_index_opens_a_call(open_client: OpenClient) -> None:
    whole = await turn(open_client, calls(call(0, "a", "f", '{"x":1}')), calls(call(0, "b", "g", '{"y":2}')), CALLED)
    assert whole.calls == BOTH
    pieces = await turn(
        open_client,
        calls(call(0, "a", "f", "")),
        calls(call(0, ..., ..., '{"x":1}')),
        calls(call(0, "b", "g", "")),
        calls(call(0, ..., ..., '{"y":2}')),
        CALLED,
    )
    assert pieces.calls == BOTH


async def test_a3_also_without_ids_a_whole_call_after_a_whole_call_is_another(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(0, ..., "f", '{"x":1}')), calls(call(0, ..., "f", '{"x":2}')), CALLED)
    assert [arguments for _, _, arguments in heard.calls] == ['{"x":1}', '{"x":2}']


async def test_a4_indexes_with_holes_become_positions(open_client: OpenClient) -> None:
    heard = await turn(
        open_client,
        calls(call(1, "a", "f", '{"x"')),
        calls(call(5, "b", "g", '{"y":2}')),
        calls(call(1, ..., ..., ":1}")),
        CALLED,
    )
    assert heard.calls == BOTH
    assert [d.index for d in heard.call_deltas] == [0, 1, 0]


@pytest.mark.parametrize("later", ["", None, "a", "changed"])
async def test_a5_the_first_id_stays(open_client: OpenClient, later: str | None) -> None:
    heard = await turn(
        open_client,
        calls(call(0, "a", "f", "")),
        calls(call(0, later, None, '{"x"')),
        calls(call(0, later, "", ":1}")),
        CALLED,
    )
    assert heard.calls == WHOLE


@pytest.mark.parametrize("sent", [..., None, ""])
async def test_a6_a_call_without_an_id_gets_one(open_client: OpenClient, sent: Any) -> None:
    heard = await turn(open_client, calls(call(0, sent, "f", '{"x":1}'), call(1, sent, "g", '{"y":2}')), CALLED)
    assert heard.calls == [("call_token000", "f", '{"x":1}'), ("call_token001", "g", '{"y":2}')]


async def test_a6_an_id_used_twice_is_made_unique_and_goes_back_so(open_client: OpenClient) -> None:
    blocks = [
        calls(call(0, "a", "f", '{"x"')),
        calls(call(1, "a", "g", '{"y"')),
        calls(call(0, "a", ..., ":1}")),
        calls(call(1, "a", ..., ":2}")),
    ]
    async with raw_server(stream(*blocks, CALLED)) as server:
        client = open_client(server.url)
        heard = await hear(client)
        assert heard.calls == [("a", "f", '{"x":1}'), ("a~token000", "g", '{"y":2}')]
        said = heard.turn.message()
        results = [ToolMessage(tool_call_id=c.id, content="ok") for c in said.tool_calls]
        await hear(client, [HumanMessage(content="hi"), said, *results])
        sent = server.requests[1].json["messages"]
    # As the provider sent them they could not be told apart.
    assert [c["id"] for c in sent[1]["tool_calls"]] == ["a", "a_token000"]
    assert [m["tool_call_id"] for m in sent[2:]] == ["a", "a_token000"]


async def test_a6_an_id_of_an_earlier_turn_is_made_unique(open_client: OpenClient) -> None:
    async with raw_server(stream(calls(call(0, "b", "f", "{}"), finish="tool_calls"))) as server:
        heard = await hear(open_client(server.url), HISTORY)
    assert heard.calls == [("b~token000", "f", "{}")]


async def test_a7_a_name_repeated_in_each_delta_is_said_once(open_client: OpenClient) -> None:
    blocks = [calls(call(0, "a", "f", "")), calls(call(0, "a", "f", '{"x"')), calls(call(0, "a", "f", ":1}"))]
    heard = await turn(open_client, *blocks, CALLED)
    assert heard.calls == WHOLE


@pytest.mark.parametrize("offered", [(), ("get_weather",), ("get_weather", "get_time")])
async def test_a7_a_name_in_pieces_is_put_together(open_client: OpenClient, offered: tuple[str, ...]) -> None:
    blocks = [calls(call(0, "a", "get_", "")), calls(call(0, ..., "weather", "")), calls(call(0, ..., ..., '{"x":1}'))]
    heard = await turn(open_client, *blocks, CALLED, tools=offered)
    assert heard.calls == [("a", "get_weather", '{"x":1}')]
    if offered:
        assert heard.call_deltas[0] == ToolCallDelta(0, "a", "get_weather", ""), "not begun under half a name"


async def test_a7_a_whole_name_begins_the_call_at_once_though_another_tool_is_longer(open_client: OpenClient) -> None:
    heard = await turn(
        open_client, calls(call(0, "a", "get", "")), calls(call(0, ..., ..., "{}")), CALLED, tools=("get", "get_all")
    )
    assert heard.call_deltas == [ToolCallDelta(0, "a", "get", ""), ToolCallDelta(0, None, None, "{}")]


async def test_a_call_whose_name_comes_late_is_given_out_with_it(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(0, "a", ..., '{"x"')), calls(call(0, ..., "f", ":1}")), CALLED)
    assert heard.call_deltas == [ToolCallDelta(0, "a", "f", '{"x":1}')]


@pytest.mark.parametrize("nothing", [..., None, "", "null", {}, "{}"])
async def test_a8_no_arguments_in_any_form_are_an_empty_object(open_client: OpenClient, nothing: Any) -> None:
    heard = await turn(open_client, calls(call(0, "a", "f", nothing)), CALLED)
    assert heard.calls == [("a", "f", "{}")]
    assert "".join(d.arguments for d in heard.call_deltas) == "{}"


async def test_a8_null_before_the_arguments_is_nothing(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(0, "a", "f", None)), calls(call(0, ..., ..., '{"x":1}')), CALLED)
    assert heard.calls == WHOLE


async def test_a8_arguments_as_an_object_become_text(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(0, "a", "f", {"x": 1})), CALLED)
    assert heard.calls == WHOLE


async def test_a9_a_turn_cut_by_length_keeps_its_reason_beside_its_calls(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(0, "a", "f", '{"x":1}'), call(1, "b", "g", '{"y"')), delta("length"))
    assert heard.finish.reason == "length"
    assert [name for name, *_ in heard.calls] == ["a", "b"]


async def test_a9_a_call_whose_arguments_do_not_parse_may_not_run_and_is_not_repaired(open_client: OpenClient) -> None:
    heard = await turn(open_client, calls(call(0, "a", "f", '{"x":1}'), call(1, "b", "g", '{"y"')), CALLED)
    assert arguments_error(heard.calls[0][2]) is None
    assert "not JSON" in str(arguments_error(heard.calls[1][2]))
    assert heard.calls[1] == ("b", "g", '{"y"')


async def test_a9_arguments_nested_too_deep_to_be_read_may_not_run(open_client: OpenClient) -> None:
    deep = '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"
    heard = await turn(open_client, calls(call(0, "a", "f", deep)), calls(call(0, ..., ..., "{")), CALLED)
    assert arguments_error(heard.calls[0][2]) is not None


async def test_a9_broken_arguments_of_the_past_do_not_spoil_the_next_request(open_client: OpenClient) -> None:
    said = AIMessage(tool_calls=(ToolCall(id="a", name="f", arguments='{"x"'),))
    async with raw_server(stream(STOP)) as server:
        await hear(
            open_client(server.url), [HumanMessage(content="hi"), said, ToolMessage(tool_call_id="a", content="bad")]
        )
        sent = server.requests[0].json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == "{}"


@pytest.mark.parametrize(
    ("raw", "block"), [("stop", calls(call(0, "a", "f", "{}"))), ("tool_calls", delta(content="x"))]
)
async def test_a10_whether_there_are_calls_decides_and_not_the_word(
    open_client: OpenClient, raw: str, block: bytes
) -> None:
    heard = await turn(open_client, block, delta(raw))
    assert heard.finish.reason == ("tool_calls" if heard.call_deltas else "stop")
    assert heard.finish.raw_reason == raw


async def test_a11_of_an_empty_object_and_the_full_arguments_the_last_wins(open_client: OpenClient) -> None:
    heard = await turn(
        open_client,
        calls(call(0, "a", "f", "{}")),
        calls(call(0, ..., ..., '{"x"')),
        calls(call(0, ..., ..., ":1}")),
        CALLED,
    )
    assert heard.calls == WHOLE
    assert [d.restart for d in heard.call_deltas] == [False, True, False]


async def test_a11_a_whole_object_sent_again_is_not_said_twice(open_client: OpenClient) -> None:
    again = call(0, "a", "f", '{"x":1}')
    heard = await turn(open_client, calls(again), calls(again, finish="tool_calls"))
    assert heard.calls == WHOLE
    assert len(heard.call_deltas) == 1


async def test_a11_braces_that_meet_inside_arguments_are_no_new_object(open_client: OpenClient) -> None:
    pieces = ['{"code":"if(a){}', "{b}", '"}']
    blocks = [calls(call(0, "a", "f", pieces[0])), *(calls(call(0, ..., ..., p)) for p in pieces[1:])]
    heard = await turn(open_client, *blocks, CALLED)
    assert json.loads(heard.calls[0][2]) == {"code": "if(a){}{b}"}


async def test_a12_the_older_function_call_is_a_call(open_client: OpenClient) -> None:
    heard = await turn(
        open_client,
        delta(content=None, function_call={"name": "f", "arguments": ""}),
        delta(function_call={"arguments": '{"x":1}'}),
        delta("function_call"),
    )
    assert heard.calls == [("call_token000", "f", '{"x":1}')]
    assert heard.finish.reason == "tool_calls"
