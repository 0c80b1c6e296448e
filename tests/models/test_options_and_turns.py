"""Options are checked where they are made; a turn can be looked at whenever one likes."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.content import ImagePart, TextPart
from graphflow.messages import AIMessage, HumanMessage, ProviderState, ToolCall
from graphflow.models.chat_model import (
    ChatOptions,
    Finish,
    OneTool,
    PartDelta,
    StateDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnAccumulator,
    arguments_error,
    estimate_tokens,
    options_from_document,
)
from graphflow.models.replay.replay import Replay
from graphflow.models.tokens import estimate_message_tokens


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"temperature": True},
        {"top_p": 0},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"stop": "word"},
        {"stop": ("",)},
        {"tool_choice": "always"},
        {"compute": "ULTRA"},
        {"extra": {"messages": []}},
    ],
)
def test_an_option_outside_its_range_is_refused_by_name_and_value(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChatOptions(**wrong)


def test_the_ends_of_the_ranges_are_allowed() -> None:
    least: dict[str, Any] = {"temperature": 0, "top_p": 1, "max_tokens": 1, "timeout_s": 0.001, "compute": "HIGH"}
    most: dict[str, Any] = {"temperature": 2, "stop": ("a",), "tool_choice": OneTool("f")}
    for given in (least, most):
        options = ChatOptions(**given)
        assert {name: getattr(options, name) for name in given} == given


def test_the_options_of_an_agent_file_are_read_by_their_wire_names() -> None:
    read = options_from_document(
        {"temperature": 0.2, "topP": 1, "maxTokens": 4096, "timeoutMs": 60000, "stop": []}, compute="LOW"
    )
    assert read == ChatOptions(temperature=0.2, top_p=1, max_tokens=4096, timeout_s=60, compute="LOW")
    assert options_from_document(None) == ChatOptions()
    assert options_from_document({"stop": "x", "toolChoice": {"name": "f"}, "temperature": None}) == ChatOptions(
        stop=("x",), tool_choice=OneTool("f")
    )


@pytest.mark.parametrize("wrong", [{"topK": 3}, {"timeoutMs": "soon"}, {"maxTokens": 0}])
def test_an_unknown_or_wrong_option_of_an_agent_file_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"topK|timeoutMs|max_tokens"):
        options_from_document(wrong)


def accumulated(*deltas: Any) -> TurnAccumulator:
    turn = TurnAccumulator()
    for delta in deltas:
        turn.feed(delta)
    return turn


def test_a_turn_may_be_looked_at_before_it_is_whole_and_then_has_no_calls() -> None:
    turn = accumulated(ThinkingDelta("hm"), TextDelta("Hel"), TextDelta("lo"), ToolCallDelta(0, "a", "f", '{"x":'))
    assert turn.message(message_id="m1", status="cancelled") == AIMessage(
        id="m1", content="Hello", reasoning="hm", status="cancelled"
    )
    with pytest.raises(ValueError, match="not finished"):
        turn.completion()


STATE = ProviderState(provider="p", model="m", data={"a": 1})


def test_parts_stand_where_they_came_between_the_texts() -> None:
    image = ImagePart(url="https://x/y.png")
    turn = accumulated(TextDelta("be"), TextDelta("fore"), PartDelta(image), TextDelta("after"), Finish("stop"))
    assert turn.message().content == (TextPart(text="before"), image, TextPart(text="after"))


def test_a_whole_turn_has_calls_state_and_finish() -> None:
    turn = accumulated(
        StateDelta(STATE),
        StateDelta(ProviderState(provider="p", model="m", data={"sign": 1}), 1),
        ToolCallDelta(1, "b", "g", ""),
        ToolCallDelta(0, "a", "f", "{}"),
        ToolCallDelta(0, None, None, '{"x"', restart=True),
        ToolCallDelta(0, None, "ff", ":1}"),
        Finish("tool_calls", "tool_calls"),
    )
    done = turn.completion()
    assert done.message.tool_calls == (
        ToolCall(id="a", name="ff", arguments='{"x":1}'),
        ToolCall(id="b", name="g", provider_state=ProviderState(provider="p", model="m", data={"sign": 1})),
    )
    assert done.message.provider_state == STATE


def test_an_empty_turn_says_so() -> None:
    assert TurnAccumulator().empty
    assert accumulated(Finish("stop")).empty
    assert not accumulated(TextDelta(" ")).empty


@pytest.mark.parametrize(
    ("arguments", "fault"), [("{}", None), ("[1]", "list"), ('{"a"', "not JSON"), ("", "not JSON"), ("1", "int")]
)
def test_arguments_must_be_a_json_object(arguments: str, fault: str | None) -> None:
    said = arguments_error(arguments)
    assert (said is None) if fault is None else (said is not None and fault in said)


def test_tokens_are_estimated_by_script() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("hello world!") == 3
    assert estimate_tokens("北京天气") == 4
    assert [estimate_tokens(text) for text in ("\u2e7f" * 8, "\u2e80" * 8, "\u2fff" * 8, "\u3000" * 8, "\U0001f600" * 8, "\ud800" * 8, "é" * 8)] == [2, 8, 8, 8, 8, 8, 2]  # fmt: skip
    assert estimate_message_tokens([HumanMessage(content="北京天气")]) == 8


def test_the_state_that_goes_back_to_a_model_counts_and_that_of_others_does_not() -> None:
    own = ProviderState(provider="p", model="m", data={"reasoning_content": True, "reasoning_details": ["x" * 4000]})
    message = AIMessage(content="hi", reasoning="thought " * 500, provider_state=own)
    bare = AIMessage(content="hi", reasoning="thought " * 500)
    replay = Replay("p", "m")
    counted = estimate_message_tokens([message], replay.own) - estimate_message_tokens([bare], replay.own)
    assert 1900 < counted < 2200
    assert estimate_message_tokens([message], Replay("q", "m").own) == estimate_message_tokens([bare])
    signed = ToolCall(id="c", name="f", provider_state=ProviderState(provider="p", model="m", data={"s": "x" * 400}))
    calls = [AIMessage(tool_calls=(call,)) for call in (signed, ToolCall(id="c", name="f"))]
    assert estimate_message_tokens(calls[:1]) - estimate_message_tokens(calls[1:]) > 90
