"""Approval of calls by a person (spec 8.5, E13)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow.graph.definition.json_schema import compile_schema
from graphflow.tools.port import Terminated, ToolResult, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.approval import answer_schema, approval_mode
from graphflow.tools.running.runner import CallPolicy, ToolRunner
from tests.tools.fakes import FakeContext, Waiting, call

runs: list[str] = []


@tool
async def send(to: str, times: int = 1) -> dict[str, Any]:
    """Sends something."""
    runs.append(to)
    return {"sent": to, "times": times}


CAREFUL = send.changed(name="careful", approval_hint="It can't be taken back.")
RUNNER = ToolRunner(ToolRegistry([send, CAREFUL]))
ASK = CallPolicy(approval="REQUIRE_APPROVAL")
ONE = call("send", {"to": "a"})


@pytest.fixture(autouse=True)
def _no_runs():
    runs.clear()


async def decide(answer: dict[str, Any]) -> tuple[ToolResult, FakeContext]:
    ctx = FakeContext({"approval:call-1": answer})
    return await RUNNER.run(ONE, ctx, policy=ASK), ctx


@pytest.mark.parametrize(
    ("agent", "default", "mode"),
    [
        (None, "AUTO", "AUTO"),
        (None, "REQUIRE_APPROVAL", "REQUIRE_APPROVAL"),
        ("DISABLED", "REQUIRE_APPROVAL", "DISABLED"),
        ({"send": "DISABLED", "*": "REQUIRE_APPROVAL"}, "AUTO", "DISABLED"),
        ({"other": "DISABLED", "*": "REQUIRE_APPROVAL"}, "AUTO", "REQUIRE_APPROVAL"),
        ({"other": "DISABLED"}, "REQUIRE_APPROVAL", "REQUIRE_APPROVAL"),
    ],
)
def test_the_nearest_word_decides_the_mode(agent: Any, default: str, mode: str):
    assert approval_mode("send", agent, default) == mode


async def test_in_auto_only_a_tool_that_wants_it_is_asked_about():
    ctx = FakeContext({"approval:call-1": {"decision": "approve"}})
    await RUNNER.run(ONE, ctx)
    assert ctx.asked == []
    ctx = FakeContext({"approval:call-1": {"decision": "approve"}})
    await RUNNER.run(call("careful", {"to": "a"}), ctx)
    assert ctx.asked[0]["message"] == "Run careful? It can't be taken back."


async def test_with_approval_disabled_nobody_is_asked():
    ctx = FakeContext()
    await RUNNER.run(call("careful", {"to": "a"}), ctx, policy=CallPolicy(approval="DISABLED"))
    assert (ctx.asked, runs) == ([], ["a"])


async def test_the_global_mode_holds_for_agents_that_say_nothing():
    strict = ToolRunner(RUNNER.registry, approval="REQUIRE_APPROVAL")
    with pytest.raises(Waiting):
        await strict.run(ONE, FakeContext())


async def test_the_question_shows_tool_and_arguments_and_is_bound_to_them():
    ctx = FakeContext({"approval:call-1": {"decision": "approve"}})
    await RUNNER.run(ONE, ctx, policy=ASK)
    question = ctx.asked[0]
    assert (question["kind"], question["tool_id"], question["tool_name"]) == ("approval", "call-1", "send")
    assert question["arguments"] == {"to": "a"}
    assert question["payload"]["effects"] == "write"


async def test_the_question_names_the_calls_own_id_whatever_key_it_is_recorded_under():
    ctx = FakeContext({"approval:fixed": {"decision": "approve"}})
    await RUNNER.run(ONE, ctx, policy=ASK, key="fixed")
    assert ctx.asked[0]["tool_id"] == "call-1"
    assert list(ctx.records) == ["fixed"]


async def test_until_somebody_answers_nothing_runs_and_the_signal_passes():
    ctx = FakeContext()
    with pytest.raises(Waiting):
        await RUNNER.run(ONE, ctx, policy=ASK)
    assert (runs, ctx.events, ctx.records) == ([], [], {})
    again = ctx.entered_again({"approval:call-1": {"decision": "approve"}})
    assert (await RUNNER.run(ONE, again, policy=ASK)).ok
    assert runs == ["a"]


async def test_approve_runs_the_call():
    result, _ = await decide({"decision": "approve"})
    assert (result.data, runs) == ({"sent": "a", "times": 1}, ["a"])


async def test_edit_runs_the_call_with_the_new_arguments_under_the_same_id():
    result, ctx = await decide({"decision": "edit", "arguments": {"to": "b", "times": "2"}})
    assert (result.data, runs) == ({"sent": "b", "times": 2}, ["b"])
    assert ctx.records["call-1"]["arguments"]["arguments"] == {"to": "b", "times": "2"}
    assert result.context["params_input"] == {"to": "b", "times": "2"}


@pytest.mark.parametrize("arguments", [{"too": "b"}, {"to": "{{nothing.here}}"}, None])
async def test_edited_arguments_that_do_not_fit_are_an_error_result_and_nothing_runs(arguments: Any):
    result, ctx = await decide({"decision": "edit", **({} if arguments is None else {"arguments": arguments})})
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"
    assert (runs, ctx.records) == ([], {})


async def test_reject_gives_its_reason_to_the_model():
    result, ctx = await decide({"decision": "reject", "reason": "too expensive"})
    assert result.error is not None
    assert result.error.code == "REJECTED"
    assert "too expensive" in ctx.events[0][2]
    assert runs == []


async def test_respond_is_the_result_of_the_call():
    result, ctx = await decide({"decision": "respond", "response": "it was sent yesterday"})
    assert result.ok
    assert ctx.events == [("result", "call-1", "it was sent yesterday")]
    assert runs == []


async def test_terminate_ends_the_run():
    with pytest.raises(Terminated) as caught:
        await decide({"decision": "terminate", "reason": "enough"})
    assert caught.value.code == "rejected"
    assert "enough" in caught.value.message
    assert runs == []


async def test_a_call_that_does_not_fit_is_never_asked_about():
    ctx = FakeContext()
    assert not (await RUNNER.run(call("send", {}), ctx, policy=ASK)).ok
    assert ctx.asked == []


async def test_the_person_sees_resolved_arguments():
    ctx = FakeContext({"approval:call-1": {"decision": "approve"}})
    await RUNNER.run(call("send", {"to": "{{x.y}}"}), ctx, policy=ASK, results={"x": {"y": "z"}})
    assert ctx.asked[0]["arguments"] == {"to": "z"}


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ({"decision": "approve"}, True),
        ({"decision": "edit", "arguments": {"to": "x"}}, True),
        ({"decision": "edit", "arguments": {"times": 1}}, False),
        ({"decision": "edit", "arguments": {"to": 5}}, False),
        ({"decision": "yes"}, False),
        ({}, False),
        ("approve", False),
        ({"decision": "reject", "reason": 5}, False),
    ],
)
def test_the_schema_of_the_answer_refuses_what_is_ill_typed(answer: Any, fits: bool):
    schema = answer_schema(send)
    assert compile_schema(schema).is_flat
    assert (compile_schema(schema).errors(answer) == []) is fits


def test_definitions_of_a_tools_schema_still_resolve_in_the_answers_schema():
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "integer"}}}
    answers = answer_schema(tool(name="t", parameters=schema)(lambda p: p))
    assert compile_schema(answers).errors({"decision": "edit", "arguments": {"p": 1}}) == []
    assert compile_schema(answers).errors({"decision": "edit", "arguments": {"p": "x"}}) != []
