"""Frontend tools: a person's input is the call's result (spec 8.1)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from graphflow.tools.frontend_body import FrontendBody
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.runner import CallPolicy, ToolRunner
from tests.tools.fakes import FakeContext, Waiting, call

PARAMETERS = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
LEAVE = Tool(
    name="leave_form",
    body=FrontendBody(PARAMETERS),
    kind="frontend",
    effects="none",
    description="A form for a leave.",
    viewport="leave_form",
    viewport_type="html",
    hold_ms=1_000,
)
RUNNER = ToolRunner(ToolRegistry([LEAVE]))
ONE = call("leave_form", {"kind": "sick"})


async def submit(payload: Any) -> tuple[Any, FakeContext]:
    ctx = FakeContext({"frontend:call-1": payload})
    return await RUNNER.run(ONE, ctx), ctx


async def test_the_call_waits_and_says_what_to_render_where_and_for_how_long():
    ctx = FakeContext()
    with pytest.raises(Waiting):
        await RUNNER.run(ONE, ctx)
    (question,) = ctx.asked
    assert (question["kind"], question["tool_id"], question["tool_name"]) == ("frontend", "call-1", "leave_form")
    assert question["arguments"] == {"kind": "sick"}
    assert question["hold_ms"] == 1_000
    assert question["payload"] == {
        "message": "A form for a leave.",
        "toolType": "html",
        "viewportKey": "leave_form",
    }
    assert ctx.events == []


@pytest.mark.parametrize(
    ("payload", "text", "data"),
    [
        ({"days": 2, "who": {"name": "Li"}}, '{"days":2,"who":{"name":"Li"}}', {"days": 2, "who": {"name": "Li"}}),
        ({}, "{}", {}),
        (None, "{}", {}),
        ("", "{}", {}),
        ("just text", "just text", {}),
        (0, "0", {}),
        (False, "false", {}),
        ([1, "a"], '[1,"a"]', {}),
    ],
)
async def test_whatever_is_submitted_is_the_result_as_a_text(payload: Any, text: str, data: dict[str, Any]):
    result, ctx = await submit(payload)
    assert ctx.events == [("result", "call-1", text)]
    assert (result.ok, result.data) == (True, data)
    assert RUNNER.message(ONE, result).content == text


async def test_what_a_form_gives_is_asked_for_by_the_schema_of_its_payload():
    days = {"type": "object", "required": ["days"], "properties": {"days": {"type": "integer"}}}
    for payload in (days, None):
        ctx = FakeContext()
        with pytest.raises(Waiting):
            await ToolRunner(ToolRegistry([LEAVE.changed(payload=payload)])).run(ONE, ctx)
        assert ctx.asked[0]["schema"] == payload


async def test_arguments_that_do_not_fit_are_an_error_result_and_nobody_is_asked():
    ctx = FakeContext()
    result = await RUNNER.run(call("leave_form", {}), ctx)
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"
    assert ctx.asked == []


async def test_a_form_is_never_a_matter_of_approval():
    result, ctx = await submit({"days": 1})
    assert result.ok
    strict = FakeContext({"frontend:call-1": {"days": 1}})
    await RUNNER.run(ONE, strict, policy=CallPolicy(approval="REQUIRE_APPROVAL"))
    assert [question["kind"] for question in strict.asked] == ["frontend"]
    assert len(ctx.asked) == 1


@pytest.mark.parametrize(
    "newer",
    [
        [],
        [LEAVE.changed(description="Other words.", viewport="other")],
        [LEAVE.changed(body=FrontendBody({"type": "object", "required": ["never"]}))],
        [LEAVE.changed(payload={"type": "object", "required": ["never"]})],
    ],
)
async def test_an_answer_is_kept_whatever_became_of_the_tools_file_while_the_thread_waited(newer: list[Tool]):
    ctx = FakeContext()
    with pytest.raises(Waiting):
        await RUNNER.run(ONE, ctx)
    again = ctx.entered_again({"frontend:call-1": {"days": 2}})
    result = await ToolRunner(ToolRegistry(newer)).run(ONE, again)
    assert result.data == {"days": 2}
    assert again.asked[0]["digest"] == ctx.asked[0]["digest"]


async def test_a_form_is_filled_in_alone_and_not_beside_other_calls():
    calls = [call("leave_form", {"kind": "a"}, "1"), call("leave_form", {"kind": "b"}, "2")]
    ctx = FakeContext({"frontend:1": {"n": 1}})
    with pytest.raises(Waiting):
        await RUNNER.run_all(calls, ctx, parallel=True)
    assert [event[1] for event in ctx.events] == ["1"]
    assert [question["tool_id"] for question in ctx.asked] == ["1", "2"]


async def test_a_form_is_logged_when_it_is_shown_and_when_it_is_answered(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="graphflow.tools"):
        await submit({"password": "hunter2", "days": 2})
    assert [record.getMessage().split()[0] for record in caplog.records] == ["tool.start", "tool.end"]
    assert "leave_form" in caplog.text
    assert "hunter2" not in caplog.text
