"""Public names of tools, and the names that providers get for them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import DefinitionError
from graphflow.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from graphflow.models.deltas import ToolCallDelta
from graphflow.models.options import ChatOptions, OneTool, ToolSpec
from graphflow.tools.frontend_body import FrontendBody
from graphflow.tools.port import Tool, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.signature import OPEN_PARAMETERS
from graphflow.tools.wire_names import WireNames, is_wire_name, wire_name

PROVIDERS = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
OWNERS = st.text("ab_-", min_size=1, max_size=40)
NAMES = OWNERS | st.builds("{}{}{}".format, OWNERS, st.sampled_from(".:"), st.text("ab_-./时", min_size=1, max_size=90))


@pytest.mark.parametrize(
    ("public", "sent"),
    [
        ("city_datetime", "city_datetime"),
        ("time.get_current_time", "time__get_current_time"),
        ("agent:researcher", "agent__researcher"),
        ("files.read__all", "files__read__all"),
    ],
)
def test_the_first_dot_or_colon_of_a_name_is_sent_as_two_underscores(public: str, sent: str) -> None:
    assert wire_name(public) == sent


@pytest.mark.parametrize(
    "public", ["x." + "long" * 20, "git.log/all", "a.b.c", "a__b.c", "a_.b", "a._b", "weather.天气"]
)
def test_a_name_that_does_not_fit_or_may_be_read_as_another_one_ends_with_a_hash(public: str) -> None:
    assert PROVIDERS.fullmatch(wire_name(public))
    assert re.search(r"_[0-9a-f]{8}$", wire_name(public))


@given(st.sets(NAMES, min_size=1, max_size=8))
def test_no_two_tools_of_a_request_are_sent_under_one_name_and_each_is_found_by_it(offered: set[str]) -> None:
    names = WireNames(offered)
    sent = {name: names.sent(name) for name in offered}
    assert len(set(sent.values())) == len(offered)
    assert all(PROVIDERS.fullmatch(name) for name in sent.values())
    for public, name in sent.items():
        assert names.heard(ToolCallDelta(0, "call_1", name, "")).name == public


def test_a_tool_whose_own_name_is_the_form_of_another_one_keeps_it() -> None:
    names = WireNames(["time.now", "time__now"])
    assert names.sent("time__now") == "time__now"
    assert names.sent("time.now") != "time__now"
    assert is_wire_name(names.sent("time.now"))


def test_a_request_has_the_providers_names_everywhere() -> None:
    names = WireNames(["time.now"])
    spec = ToolSpec(name="time.now", description="", parameters=OPEN_PARAMETERS)
    called = AIMessage(tool_calls=(ToolCall(id="1", name="time.now", arguments="{}"),))
    # A call of an earlier turn, whose tool this turn does not offer.
    gone = ToolMessage(tool_call_id="2", name="git.log", content="x")
    asked = HumanMessage(content="What time is it?")

    assert [each.name for each in names.tools([spec])] == ["time__now"]
    first, second, third = names.messages([asked, called, gone])
    assert first is asked
    assert isinstance(second, AIMessage) and second.tool_calls[0].name == "time__now"
    assert isinstance(third, ToolMessage) and third.name == "git__log"
    assert names.options(ChatOptions(tool_choice=OneTool("time.now"))).tool_choice == OneTool("time__now")


def test_a_tool_may_have_an_owner_but_one_in_python_may_not() -> None:
    owned = Tool(name="time.now", body=FrontendBody(OPEN_PARAMETERS))
    assert ToolRegistry(builtins=()).overlaid([owned]).names() == ["time.now"]
    with pytest.raises(DefinitionError, match=r"belongs to others"):
        ToolRegistry(builtins=()).register(owned)
    with pytest.raises(ValueError, match=r"tool name 'a b'"):
        tool(name="a b")(lambda: None)
