"""Running a call in the order of spec 8.2: every fault of a call is a result, every result is paired and recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog

from graphflow.errors import BudgetExceeded, Fenced, GraphflowError, NodeFailed, NodeTimeout
from graphflow.testing.tool_envelope_conformance import assert_envelope
from graphflow.tools.envelope import to_envelope
from graphflow.tools.port import Tool, ToolContext, ToolResult, tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.running.arguments import LatestResults
from graphflow.tools.running.circuit_breaker import CircuitBreaker
from graphflow.tools.running.runner import CallPolicy, ToolRunner
from tests.tools.fakes import FakeContext, FakeTime, call


def runner_of(*tools: Tool | Callable[..., Any], **options: Any) -> ToolRunner:
    return ToolRunner(ToolRegistry(tools, builtins=()), **options)


@tool(effects="read")
async def echo(text: str, n: int = 0) -> dict[str, Any]:
    """Says it again."""
    return {"text": text, "n": n}


@tool
async def send(to: str) -> dict[str, Any]:
    """Sends something."""
    return {"sent": to}


def code_of(result: ToolResult) -> str | None:
    return result.error.code if result.error else None


async def test_a_call_is_parsed_checked_run_recorded_and_sent():
    ctx = FakeContext()
    runner = runner_of(echo)
    result = await runner.run(call("echo", {"text": "hi", "n": "2"}), ctx)
    assert result.data == {"text": "hi", "n": 2}
    assert_envelope(to_envelope(result))
    assert result.context["params_input"] == {"text": "hi", "n": "2"}
    assert ctx.events == [("result", "call-1", '{"text":"hi","n":2}')]
    record = ctx.records["call-1"]
    assert (record["kind"], record["effects"], record["idempotent"]) == ("tool", "read", False)
    assert record["arguments"] == {"tool": "echo", "arguments": {"text": "hi", "n": "2"}}


async def test_the_message_of_a_call_has_the_text_of_its_event_and_the_whole_of_what_was_cut():
    ctx, runner = FakeContext(), runner_of(echo, max_result_chars=20)
    for index, text in enumerate(("short", "long" * 20)):
        one = call("echo", {"text": text}, f"c{index}")
        result = await runner.run(one, ctx)
        message = runner.message(one, result)
        assert (message.tool_call_id, message.name, message.content) == (one.id, "echo", ctx.events[-1][2])
        assert message.whole == f'{{"text":"{text}","n":0}}'
    assert (await runner.run(call("none", {}, "c9"), ctx)).ok is False
    assert runner.message(call("none", {}), result).error is False


async def test_a_recorded_call_is_not_run_again_when_the_node_is_entered_again():
    runs: list[str] = []

    @tool
    async def count(to: str) -> int:
        runs.append(to)
        return len(runs)

    ctx, runner = FakeContext(), runner_of(count)
    first = await runner.run(call("count", {"to": "a"}), ctx)
    again = ctx.entered_again()
    second = await runner.run(call("count", {"to": "a"}), again)
    assert (runs, first) == (["a"], second)
    assert again.events == ctx.events


@pytest.mark.parametrize(
    ("name", "arguments", "code", "words"),
    [
        ("ecko", {}, "NOT_FOUND", "Did you mean 'echo'?"),
        ("Echo", {}, "NOT_FOUND", "Did you mean 'echo'?"),
        ("zzz", {}, "NOT_FOUND", "tools are echo, send"),
        ("echo", '{"text": ', "INVALID_PARAM", "not valid JSON"),
        ("echo", "[1]", "INVALID_PARAM", "expected a JSON object"),
        ("echo", {"txt": "x"}, "INVALID_PARAM", "text: required"),
        ("echo", {"text": "x", "n": "many"}, "INVALID_PARAM", "n: 'many' was given"),
        ("echo", {"text": "{{send.sent}}"}, "INVALID_PARAM", "there is no result of 'send'"),
    ],
)
async def test_whatever_is_wrong_with_a_call_is_an_error_result(name: str, arguments: Any, code: str, words: str):
    ctx = FakeContext()
    result = await runner_of(echo, send).run(call(name, arguments), ctx)
    assert code_of(result) == code
    assert words in ctx.events[-1][2]
    assert ctx.events[-1][2].startswith(f"Error {code}: ")
    assert ctx.records == {}
    assert_envelope(to_envelope(result))


@pytest.mark.parametrize("effects", ["read", "write"])
@pytest.mark.parametrize("levels", [91, 300, 5_000])
async def test_a_result_that_is_too_deep_to_be_kept_is_an_error_result(effects: Any, levels: int):
    @tool(effects=effects)
    async def give() -> Any:
        """Gives."""
        given: Any = {}
        for _ in range(levels):
            given = {"in": given}
        return given

    result = await runner_of(give).run(call("give", {}), FakeContext())
    assert code_of(result) == "EXECUTION_ERROR"
    assert_envelope(to_envelope(result))


async def test_a_tool_that_the_agent_does_not_have_is_unknown_to_it():
    result = await runner_of(echo, send).run(
        call("send", {"to": "a"}), FakeContext(), policy=CallPolicy(tools=("echo",))
    )
    assert code_of(result) == "NOT_FOUND"
    assert "tools are echo." in result.text


async def test_a_call_that_comes_although_tools_are_disallowed_is_answered_and_not_run():
    ctx = FakeContext()
    result = await runner_of(echo).run(call("echo", {"text": "x"}), ctx, policy=CallPolicy(disallow=True))
    assert code_of(result) == "PERMISSION_DENIED"
    assert ctx.records == {}


async def test_a_template_is_resolved_before_the_arguments_are_checked():
    ctx = FakeContext()
    result = await runner_of(echo).run(
        call("echo", {"text": "x", "n": "{{other.n}}"}), ctx, results={"other": {"n": 7}}
    )
    assert result.data["n"] == 7
    assert ctx.records["call-1"]["arguments"]["arguments"] == {"text": "x", "n": 7}


async def test_a_tool_that_takes_source_text_gets_its_braces():
    source = echo.changed(templates=False)
    result = await runner_of(source).run(call("echo", {"text": "{{ user.name }}"}), FakeContext())
    assert result.data["text"] == "{{ user.name }}"


async def test_an_exception_is_a_result_with_type_and_masked_message_and_its_trace_only_in_the_log(
    caplog: pytest.LogCaptureFixture,
):
    @tool(effects="read")
    def fails() -> None:
        raise KeyError("token=abcdef123456")

    with caplog.at_level(logging.ERROR, logger="graphflow.tools"):
        result = await runner_of(fails).run(call("fails"), FakeContext())
    assert code_of(result) == "EXECUTION_ERROR"
    assert "KeyError" in result.text
    assert "abcdef123456" not in result.text
    assert "Traceback" not in result.text
    assert "Traceback" in caplog.text


async def test_a_tool_that_exits_the_interpreter_is_only_a_failed_call(caplog: pytest.LogCaptureFixture):
    @tool(effects="read")
    async def leaves() -> None:
        raise SystemExit(3)

    assert code_of(await runner_of(leaves).run(call("leaves"), FakeContext())) == "EXECUTION_ERROR"


async def test_a_reading_tool_over_its_time_is_a_timeout_result():
    @tool(effects="read", timeout_s=0.001)
    async def sleeps() -> None:
        await asyncio.Event().wait()

    result = await runner_of(sleeps).run(call("sleeps"), FakeContext())
    assert code_of(result) == "TIMEOUT"
    assert "0.001 s" in result.text


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionResetError("gone"), None])
async def test_a_write_that_was_cut_off_is_no_result_as_nobody_knows_its_outcome(error: Exception | None):
    @tool(timeout_s=0.001 if error is None else 5)
    async def writes() -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    ctx = FakeContext()
    with pytest.raises(NodeFailed) as caught:
        await runner_of(writes).run(call("writes"), ctx)
    assert caught.value.code == ("connection" if isinstance(error, ConnectionResetError) else "timeout")
    assert ctx.records == {}
    assert ctx.events == []


async def test_an_idempotent_write_over_its_time_and_a_refused_connection_are_results():
    @tool(idempotent=True, timeout_s=0.001)
    async def writes() -> None:
        await asyncio.Event().wait()

    @tool
    async def refused() -> None:
        raise ConnectionRefusedError("nobody there")

    runner = runner_of(writes, refused)
    assert code_of(await runner.run(call("writes"), FakeContext())) == "TIMEOUT"
    assert code_of(await runner.run(call("refused"), FakeContext())) == "EXECUTION_ERROR"


async def test_cancelling_the_run_cancels_the_tool_and_leaves_no_result():
    began, ended = asyncio.Event(), asyncio.Event()

    @tool(effects="read")
    async def long() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ctx = FakeContext()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner_of(long).run(call("long"), ctx))
        await began.wait()
        task.cancel()
    assert task.cancelled()
    assert ended.is_set()
    assert (ctx.records, ctx.events) == ({}, [])


async def test_a_tool_that_cancels_itself_is_a_failed_call():
    @tool(effects="read")
    async def odd() -> None:
        raise asyncio.CancelledError

    assert code_of(await runner_of(odd).run(call("odd"), FakeContext())) == "CANCELLED"


@pytest.mark.parametrize("error", [Fenced("another life"), BudgetExceeded("none left")])
async def test_the_engines_own_errors_pass_through_a_tool(error: GraphflowError):
    @tool
    async def inner() -> None:
        raise error

    with pytest.raises(type(error)):
        await runner_of(inner).run(call("inner"), FakeContext())


async def test_an_unknown_outcome_passes_through():
    class Unknown(FakeContext):
        async def step(self, name: str, fn: Any, **facts: Any) -> Any:
            raise NodeTimeout("unknown")

    with pytest.raises(NodeTimeout):
        await runner_of(send).run(call("send", {"to": "a"}), Unknown())


async def test_the_budget_is_charged_for_calls_that_may_run_and_its_end_passes():
    ctx, runner = FakeContext(budget=1), runner_of(echo)
    await runner.run(call("echo", {}, "wrong"), ctx)
    await runner.run(call("echo", {"text": "a"}, "right"), ctx)
    with pytest.raises(BudgetExceeded):
        await runner.run(call("echo", {"text": "a"}, "more"), ctx)
    assert list(ctx.records) == ["right"]


async def test_progress_sources_and_results_are_sent_in_order():
    @tool(effects="read")
    async def finds(ctx: ToolContext) -> AsyncIterator[Any]:
        yield "looking"
        yield ToolResult(text="found", sources=[{"url": "https://a"}, {"url": "https://b"}])

    ctx = FakeContext()
    result = await runner_of(finds).run(call("finds"), ctx)
    assert result.text == "found"
    assert [event[0] for event in ctx.events] == ["progress", "progress", "result", "source", "source"]


async def test_a_tool_gets_the_facts_of_its_call():
    seen: list[ToolContext] = []

    @tool
    async def looks(ctx: ToolContext) -> None:
        seen.append(ctx)

    await runner_of(looks).run(call("looks", {}, "c7"), FakeContext(), results={"a": {"b": 1}})
    assert (seen[0].call_id, seen[0].tool_name, seen[0].thread_id, seen[0].run_id) == (
        "c7",
        "looks",
        "thread-1",
        "run-1",
    )
    assert (seen[0].idempotency_key, seen[0].results) == ("key-of-c7", {"a": {"b": 1}})
    assert seen[0].now_ms() == FakeContext().now_ms()


async def test_an_action_is_ok_at_once_and_its_event_has_the_parsed_arguments():
    action = echo.changed(kind="action", effects="none")
    ctx = FakeContext()
    await runner_of(action).run(call("echo", {"text": "dark"}), ctx)
    assert ctx.events == [("action", "call-1", {"text": "dark"}, "OK")]


async def test_a_result_over_the_size_limit_is_cut_for_the_model_and_whole_in_the_record():
    ctx = FakeContext()
    result = await runner_of(echo, max_result_chars=100).run(call("echo", {"text": "x" * 1000}), ctx)
    assert len(ctx.events[0][2]) < 250
    assert "characters shown" in ctx.events[0][2]
    assert result.status == "partial"
    assert result.data["text"] == "x" * 1000
    assert ctx.records["call-1"]["value"]["data"]["text"] == "x" * 1000


async def test_older_result_dicts_are_converted_unless_switched_off():
    @tool(effects="read")
    def older() -> dict[str, str]:
        return {"error": "file not found"}

    assert code_of(await runner_of(older).run(call("older"), FakeContext())) == "NOT_FOUND"
    assert (await runner_of(older, legacy=False).run(call("older"), FakeContext())).data == {"error": "file not found"}


# several calls of one turn


async def test_calls_run_in_order_and_later_ones_see_earlier_results():
    ctx = FakeContext()
    calls = [call("send", {"to": "a"}, "1"), call("echo", {"text": "{{send.sent}}"}, "2")]
    results = await runner_of(echo, send).run_all(calls, ctx)
    assert [result.data for result in results] == [{"sent": "a"}, {"text": "a", "n": 0}]
    assert [event[1] for event in ctx.events] == ["1", "2"]


async def test_a_failed_call_does_not_hide_the_earlier_result_of_its_tool():
    calls = [call("send", {"to": "a"}, "1"), call("send", {}, "2"), call("echo", {"text": "{{send.sent}}"}, "3")]
    results = await runner_of(echo, send).run_all(calls, FakeContext())
    assert [result.ok for result in results] == [True, False, True]


async def test_with_one_tool_per_round_the_first_runs_and_every_other_gets_an_error_result():
    ctx = FakeContext()
    calls = [call("echo", {"text": str(n)}, f"c{n}") for n in range(3)]
    results = await runner_of(echo).run_all(calls, ctx, max_calls=1)
    assert [code_of(result) for result in results] == [None, "REJECTED", "REJECTED"]
    assert [event[1] for event in ctx.events] == ["c0", "c1", "c2"]
    assert "one tool per round" in ctx.events[1][2]
    assert list(ctx.records) == ["c0"]


async def test_with_no_tool_per_round_every_call_is_answered_and_none_runs():
    ctx = FakeContext()
    results = await runner_of(echo).run_all([call("echo", {"text": "a"}, "1"), call("nope", {}, "2")], ctx, max_calls=0)
    assert [code_of(result) for result in results] == ["PERMISSION_DENIED"] * 2
    assert ctx.records == {}


async def test_only_the_last_call_that_may_run_ends_the_node():
    ctx = FakeContext()
    calls = [call("echo", {"text": "a"}, f"c{n}") for n in range(3)]
    await runner_of(echo).run_all(calls, ctx, max_calls=2, ends_node=True)
    assert [record["ends_node"] for record in ctx.records.values()] == [False, True]


async def test_a_call_id_that_a_model_uses_twice_still_gives_two_records():
    ctx = FakeContext()
    await runner_of(echo).run_all([call("echo", {"text": "a"}), call("echo", {"text": "b"})], ctx)
    assert list(ctx.records) == ["call-1", "call-1#2"]
    assert [event[1] for event in ctx.events] == ["call-1", "call-1_2"]


def meeting(effects: Any) -> Tool:
    """A tool whose calls end only when two of them run at the same time."""
    both = asyncio.Barrier(2)

    @tool(effects=effects, timeout_s=1, idempotent=True)
    async def meets(n: int) -> int:
        await both.wait()
        return n

    return meets


async def test_read_only_calls_may_run_together_and_their_results_keep_the_order():
    calls = [call("meets", {"n": n}, f"c{n}") for n in range(2)]
    results = await runner_of(meeting("read")).run_all(calls, FakeContext(), parallel=True)
    assert [result.data for result in results] == [{"result": 0}, {"result": 1}]


@pytest.mark.parametrize("case", ["write", "template", "approval"])
async def test_calls_that_write_refer_to_each_other_or_ask_never_run_together(case: str):
    order: list[str] = []

    @tool(effects="write" if case == "write" else "read")
    async def step(n: Any) -> str:
        order.append(f"{n} begins")
        await asyncio.sleep(0)
        order.append(f"{n} ends")
        return str(n)

    calls = [call("step", {"n": "0"}, "c0"), call("step", {"n": "{{step.text}}" if case == "template" else "1"}, "c1")]
    approve = {"decision": "approve"}
    ctx = FakeContext({"approval:c0": approve, "approval:c1": approve})
    policy = CallPolicy(approval="REQUIRE_APPROVAL" if case == "approval" else None)
    await runner_of(step).run_all(calls, ctx, policy=policy, parallel=True)
    assert [line.split()[1] for line in order] == ["begins", "ends", "begins", "ends"]


@pytest.mark.parametrize("parallel", [True, False])
async def test_where_the_budget_ends_within_a_turn_the_calls_before_that_are_run_and_told(parallel: bool):
    """The budget is checked before each call (spec 1.3): one that can't be paid takes nothing from those that can."""
    ctx = FakeContext(budget=2)
    calls = [call("echo", {"text": "a"}, f"c{n}") for n in range(4)]
    with pytest.raises(BudgetExceeded):
        await runner_of(echo).run_all(calls, ctx, parallel=parallel)
    assert list(ctx.records) == ["c0", "c1"]
    assert [event[:2] for event in ctx.events] == [("result", "c0"), ("result", "c1")]


async def test_a_call_that_takes_long_is_waited_for_when_the_one_after_it_can_not_be_paid():
    refused = asyncio.Event()

    class Counted(FakeContext):
        def charge_tool_call(self, key: str | None = None, *, counted: bool = False) -> None:
            try:
                super().charge_tool_call(key, counted=counted)
            except BudgetExceeded:
                refused.set()
                raise

    @tool(effects="read")
    async def long() -> str:
        await refused.wait()
        return "done"

    ctx = Counted(budget=1)
    with pytest.raises(BudgetExceeded):
        await runner_of(long).run_all([call("long", {}, "c0"), call("long", {}, "c1")], ctx, parallel=True)
    assert ctx.events == [("result", "c0", "done")]


async def test_an_error_of_the_engine_leaves_a_parallel_turn_as_itself():
    @tool(effects="read")
    async def fenced() -> None:
        raise Fenced("another life")

    with pytest.raises(Fenced):
        await runner_of(fenced).run_all([call("fenced", {}, f"c{n}") for n in range(3)], FakeContext(), parallel=True)


# the circuit breaker


async def test_three_straight_failures_open_the_circuit_until_the_time_is_over():
    time = FakeTime()
    runs: list[bool] = []
    works = False

    @tool(effects="read")
    async def shaky() -> None:
        runs.append(works)
        if not works:
            raise OSError("no")

    runner = runner_of(shaky, monotonic=time)

    async def once() -> str | None:
        return code_of(await runner.run(call("shaky"), FakeContext()))

    assert [await once() for _ in range(4)] == ["EXECUTION_ERROR"] * 3 + ["CIRCUIT_OPEN"]
    time.now += 299
    assert await once() == "CIRCUIT_OPEN"
    time.now += 2
    assert await once() == "EXECUTION_ERROR"
    assert await once() == "CIRCUIT_OPEN"
    time.now += 301
    works = True
    assert [await once() for _ in range(3)] == [None] * 3
    assert len(runs) == 7


async def test_wrong_arguments_and_refusals_do_not_open_the_circuit():
    runner = runner_of(echo)
    for n in range(4):
        await runner.run(call("echo", {}, f"c{n}"), FakeContext())
    assert (await runner.run(call("echo", {"text": "a"}), FakeContext())).ok


async def test_a_refusal_of_the_breaker_is_recorded_so_that_a_re_entry_agrees():
    @tool(effects="read")
    async def shaky() -> None:
        raise OSError("no")

    ctx, runner = FakeContext(), runner_of(shaky)
    calls = [call("shaky", {}, f"c{n}") for n in range(4)]
    first = await runner.run_all(calls, ctx)
    again = await runner_of(shaky).run_all(calls, ctx.entered_again())
    assert [code_of(result) for result in again] == [code_of(result) for result in first]
    assert code_of(again[3]) == "CIRCUIT_OPEN"


def test_while_one_call_tries_a_tool_again_others_still_wait():
    time = FakeTime()
    breaker = CircuitBreaker(time, threshold=1, recovery_s=10)
    breaker.report(("t",), failed=True)
    assert breaker.wait_s(("t",)) == 10
    time.now += 10
    assert breaker.wait_s(("t",)) is None
    assert breaker.wait_s(("t",)) == 0
    breaker.leave(("t",))
    assert breaker.wait_s(("t",)) is None
    breaker.report(("t",), failed=False)
    assert breaker.wait_s(("t",)) is None


# logs


async def test_each_call_logs_name_and_masked_arguments_then_status_size_and_time():
    with structlog.testing.capture_logs() as lines:
        await runner_of(echo, monotonic=FakeTime()).run(call("echo", {"text": "token=abcdef123456"}), FakeContext())
    structlog.reset_defaults()
    assert [line["event"] for line in lines] == ["tool.start", "tool.end"]
    assert lines[0]["tool"] == "echo"
    assert lines[0]["arguments"] == {"text": "token=***"}
    assert (lines[1]["status"], lines[1]["ms"]) == ("success", 0)
    assert lines[1]["chars"] > 10


async def test_without_a_set_up_nothing_is_written_to_stdout(capsys: pytest.CaptureFixture[str]):
    await runner_of(echo).run(call("echo", {"text": "x"}), FakeContext())
    assert capsys.readouterr().out == ""


async def test_reading_calls_that_run_at_once_tell_their_results_in_the_order_of_the_calls():
    first_may_end = asyncio.Event()

    @tool(effects="read")
    async def slow() -> str:
        await first_may_end.wait()
        return "slow"

    @tool(effects="read")
    async def quick() -> str:
        first_may_end.set()
        return "quick"

    ctx = FakeContext()
    results = await runner_of(slow, quick).run_all([call("slow", {}, "1"), call("quick", {}, "2")], ctx, parallel=True)
    assert [result.text for result in results] == ["slow", "quick"]
    assert [event[1] for event in ctx.events] == ["1", "2"]


async def test_an_action_whose_arguments_do_not_parse_has_a_result_and_no_parameters():
    action = echo.changed(kind="action", effects="none")
    ctx = FakeContext()
    await runner_of(action).run(call("echo", '{"text": "da'), ctx)
    kind, call_id, param, text = ctx.events[0]
    assert (kind, call_id, param) == ("action", "call-1", None)
    assert text.startswith("Error INVALID_PARAM")


async def test_an_action_that_the_agent_does_not_have_still_ends_as_the_action_that_was_streamed():
    action = echo.changed(kind="action", effects="none")
    ctx = FakeContext()
    await runner_of(action).run(call("echo", {"text": "a"}), ctx, policy=CallPolicy(tools=("other",)))
    assert ctx.events[0][:3] == ("action", "call-1", {"text": "a"})
    assert "NOT_FOUND" in ctx.events[0][3]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (
            {"sourceId": "s7", "title": "T", "url": "https://a", "icon": "i", "more": 1},
            {"source_id": "s7", "title": "T", "url": "https://a", "icon": "i"},
        ),
        ({"url": "https://a"}, {"source_id": "call-1_source_1", "url": "https://a"}),
    ],
)
async def test_each_source_of_a_result_is_told_after_it_with_an_id(given: dict[str, Any], sent: dict[str, Any]):
    @tool(effects="read")
    async def finds() -> ToolResult:
        return ToolResult(text="found", sources=[given])

    ctx = FakeContext()
    await runner_of(finds).run(call("finds"), ctx)
    assert ctx.events == [("result", "call-1", "found"), ("source", sent)]


async def test_templates_read_the_whole_of_a_result_that_was_cut_for_the_model():
    runner = runner_of(echo, max_result_chars=30)
    first = call("echo", {"text": "x" * 100}, "1")
    result = await runner.run(first, FakeContext())
    latest = LatestResults([runner.message(first, result)])
    assert latest["echo"]["text"] == "x" * 100
