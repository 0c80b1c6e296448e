"""PLAN_EXECUTE: what its graph is, what its stages are shown, and what becomes of the plan (spec 1.2, 3.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphflow.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from graphflow.modes.definition import decode_definition
from graphflow.modes.registry import compile_agent
from tests.modes.conftest import Stage, call
from tests.modes.test_events import told

PLAN = {
    "text": json.dumps({"steps": [{"title": "Look", "goal": "Know it"}, {"id": "say", "title": "Say"}]}),
    "piece": 9,
}
ANSWER = {"text": "All of it.", "piece": 5}


def document(**fields: Any) -> dict[str, Any]:
    block = {"planSystemPrompt": "PLAN", "executeSystemPrompt": "EXECUTE", **fields.pop("block", {})}
    data = {
        "mode": "PLAN_EXECUTE", "planExecute": block, "tools": ["look_up", "broken"], "verify": "NONE", **fields,
    }  # fmt: skip
    return compile_agent(decode_definition(data), data).data


def done(text: str) -> dict[str, Any]:
    return {"text": text, "piece": 6}


CASES: dict[str, list[Any]] = {
    "no tool": [PLAN, done("Looked."), done("Said."), ANSWER],
    "one tool": [PLAN, {"text": "I look.", "tool_calls": [call()]}, done("Looked."), done("Said."), ANSWER],
    "several tools": [
        PLAN,
        {"tool_calls": [call(number=1), call(number=2, word="{{look_up.text}}!")], "piece": 8},
        done("Looked."),
        {"tool_calls": [call(number=3, word="{{look_up.text}}?")]},
        done("Said."),
        ANSWER,
    ],
    "a tool that fails": [PLAN, {"tool_calls": [call("broken")]}, done("No luck."), done("Said."), ANSWER],
    "a limit of tasks": [PLAN, done("Looked."), ANSWER],
    "a limit of rounds": [PLAN, {"tool_calls": [call()]}, done("Enough."), done("Said."), ANSWER],
    "a limit of calls": [PLAN, {"tool_calls": [call()]}, ANSWER],
    "cancelled": [PLAN, {"text": "Loo", "piece": 3, "hang": True}],
    "cancelled while planning": [{"reasoning": "Hm.", "text": "{", "hang": True}],
    "a malformed plan": [done("Let me see."), PLAN, done("Looked."), done("Said."), ANSWER],
    "two malformed plans": [done("Let me see."), done('{"steps": []}'), done("Did it."), ANSWER],
    "a failed task": [PLAN, {"text": "Loo", "piece": 3, "error": {"status": 400, "message": "too bad"}}, ANSWER],
    "no plan for an error": [{"error": {"status": 400, "message": "too bad"}}],
    "an error at the end": [PLAN, done("Looked."), done("Said."), {"error": {"status": 400, "message": "too bad"}}],
}
FIELDS: dict[str, dict[str, Any]] = {
    "a limit of tasks": {"budget": {"maxSteps": 1}},
    "a limit of rounds": {"block": {"maxRoundsPerTask": 1}},
    "a limit of calls": {"budget": {"maxModelCalls": 2}},
}


@pytest.mark.parametrize("case", CASES)
async def test_a_run_sends_these_events(case: str, snapshot: Any) -> None:
    stage = Stage(document(**FIELDS.get(case, {})), *CASES[case])
    assert told(await stage.play()) == snapshot
    assert len(stage.model.asked) == len(CASES[case])


@pytest.mark.parametrize("case", ["one tool", "a limit of calls", "cancelled", "a failed task"])
async def test_a_run_with_a_second_pass_sends_these_events(case: str, snapshot: Any) -> None:
    turns = CASES[case] if case != "a limit of calls" else CASES[case][:2]
    stage = Stage(document(verify="SECOND_PASS_FIX", **FIELDS.get(case, {})), *turns, done("Checked."))
    assert told(await stage.play()) == snapshot


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"verify": "SECOND_PASS_FIX"},
        {"toolPolicy": "REQUIRE"},
        {"toolPolicy": "DISALLOW"},
        {
            "output": "REASONING_SUMMARY",
            "budget": {"maxSteps": 3},
            "block": {"maxRoundsPerTask": 2, "summarySystemPrompt": "SUM"},
        },
    ],
    ids=lambda fields: "-".join(map(str, fields.values())) if fields and "block" not in fields else f"{len(fields)}",
)
def test_it_compiles_to_this_graph(fields: dict[str, Any], snapshot: Any) -> None:
    assert document(**fields) == snapshot


def test_its_budget_and_rounds_are_the_presets_and_a_second_pass_is_one() -> None:
    data = {"mode": "PLAN_EXECUTE", "planExecute": {"planSystemPrompt": "P", "executeSystemPrompt": "E"}}
    compiled = compile_agent(decode_definition(data), data).data
    assert compiled["budget"] == {
        "maxRounds": 8, "maxModelCalls": 50, "maxToolCalls": 60, "timeoutMs": 600_000, "onExceeded": "verify",
    }  # fmt: skip
    assert list(compiled["nodes"]) == ["plan", "execute", "tools", "summarize", "verify"]


async def test_each_stage_has_its_own_system_prompt_and_only_execute_has_tools() -> None:
    stage = Stage(document(block={"summarySystemPrompt": "SUM"}), *CASES["one tool"])
    await stage.play()
    prompts = [messages[0].content for messages, _, _ in stage.model.asked]
    assert prompts == ["PLAN", "EXECUTE", "EXECUTE", "EXECUTE", "SUM"]
    assert [bool(tools) for _, tools, _ in stage.model.asked] == [False, True, True, True, False]


async def test_a_step_is_shown_the_plan_its_own_turn_and_what_the_steps_before_it_found() -> None:
    stage = Stage(document(), *CASES["one tool"])
    await stage.play()
    second = stage.model.asked[3][0]
    kinds = [SystemMessage, HumanMessage, HumanMessage, AIMessage, HumanMessage, AIMessage, ToolMessage, AIMessage]
    assert [type(message) for message in second] == [*kinds, HumanMessage]
    assert [m.text.partition("\n")[0] for m in second if isinstance(m, HumanMessage)] == [
        "Question?",
        "Make a plan for this request before anything is done about it:",
        "Step 1 of 2: Look",
        "Step 2 of 2: Say",
    ]


async def test_the_plan_stays_out_of_the_conversation() -> None:
    stage = Stage(document(), *CASES["one tool"])
    await stage.play()
    assert [message.content for message in await stage.said()] == ["I look.", "Looked.", "Said.", "All of it."]
    assert "steps" not in stage.texts("content")


async def test_a_later_step_refers_to_what_a_tool_of_an_earlier_one_gave() -> None:
    stage = Stage(document(), *CASES["several tools"])
    await stage.play()
    results = [event["result"] for event in stage.events if event["type"] == "tool.result"]
    assert results == ["graph: a thing", "graph: a thing!: a thing", "graph: a thing!: a thing?: a thing"]


async def test_a_request_may_change_the_number_of_tasks() -> None:
    stage = Stage(document(), PLAN, done("Looked."), ANSWER)
    await stage.play(budget={"maxRounds": 1})
    assert stage.finish_reason == "max_rounds"
    assert stage.types.count("task.start") == 1


async def test_a_required_tool_is_asked_for_once_more_and_then_the_run_fails() -> None:
    stage = Stage(document(toolPolicy="REQUIRE"), PLAN, done("No."), done("Still no."))
    await stage.play()
    assert [e["type"] for e in stage.events if e["type"].startswith(("task", "run"))] == [
        "run.start", "task.start", "task.fail", "run.error",
    ]  # fmt: skip
    assert stage.events[-1]["error"]["code"] == "tool_required"


async def test_a_required_tool_that_was_called_leaves_later_steps_free() -> None:
    turns = [PLAN, done("No."), {"tool_calls": [call()]}, done("Looked."), done("Said."), ANSWER]
    stage = Stage(document(toolPolicy="REQUIRE"), *turns)
    await stage.play()
    assert stage.types[-1] == "run.complete" and stage.types.count("task.complete") == 2


async def test_a_call_that_is_not_allowed_gets_an_error_result_and_the_step_goes_on() -> None:
    turns = [PLAN, {"tool_calls": [call()]}, done("Looked."), done("Said."), ANSWER]
    stage = Stage(document(toolPolicy="DISALLOW"), *turns)
    await stage.play()
    assert [tools for _, tools, _ in stage.model.asked] == [[]] * 5
    [result] = [event["result"] for event in stage.events if event["type"] == "tool.result"]
    assert "not run" in result


async def test_a_tool_that_waits_for_approval_goes_on_under_its_task() -> None:
    stage = Stage(document(approval="REQUIRE_APPROVAL"), *CASES["one tool"])
    await stage.play()
    assert stage.types[-1] == "run.waiting"
    [interrupt] = (await stage.graph.thread("t").state()).interrupts
    after = [event async for event in stage.graph.stream_answer("t", {interrupt.id: {"decision": "approve"}})]
    assert [e.type for e in after if e.type.startswith(("task", "run", "plan"))] == [
        "run.resume", "task.complete", "plan.update", "task.start", "task.complete", "plan.update", "run.complete",
    ]  # fmt: skip
    starts: list[Any] = [event for event in after if event.type == "content.start"]
    assert [start.task_id for start in starts] == ["step-1", "say", None]


async def test_an_answer_to_an_approval_may_end_the_run_and_its_task() -> None:
    stage = Stage(document(approval="REQUIRE_APPROVAL"), *CASES["one tool"])
    await stage.play()
    [interrupt] = (await stage.graph.thread("t").state()).interrupts
    after = [event async for event in stage.graph.stream_answer("t", {interrupt.id: {"decision": "terminate"}})]
    assert [e.type for e in after if e.type.startswith(("task", "run", "plan"))] == [
        "run.resume", "task.cancel", "plan.update", "run.complete",
    ]  # fmt: skip


async def test_a_cancelled_run_is_taken_up_where_it_was_as_another_run() -> None:
    stage = Stage(document(), *CASES["cancelled"], done("Looked."), done("Said."), ANSWER)
    await stage.play()
    again = [event async for event in stage.graph.stream_resume("t")]
    assert [e.type for e in again if e.type.startswith(("task", "run", "plan"))] == [
        "run.start", "run.resume", "plan.update", "task.start", "task.complete", "plan.update", "task.start",
        "task.complete", "plan.update", "run.complete",
    ]  # fmt: skip


async def test_the_next_question_of_a_chat_gets_its_own_plan() -> None:
    one = {"text": '{"steps": ["Only"]}'}
    stage = Stage(document(), *CASES["no tool"], one, done("Done."), ANSWER)
    first = {e["planId"] for e in await stage.play() if e["type"].startswith("plan.")}
    second = {e["planId"] for e in await stage.play("And now?") if e["type"].startswith("plan.")}
    assert len(first) == len(second) == 1 and first != second
    asked = [m.content for m in stage.model.asked[4][0] if isinstance(m, HumanMessage)]
    assert asked[:2] == ["Question?", "And now?"] and "<request>\nAnd now?\n</request>" in asked[2]


@pytest.mark.parametrize("shown", [True, False])
async def test_reasoning_of_the_plan_is_shown_only_where_the_agent_exposes_it(shown: bool) -> None:
    plan = {**PLAN, "reasoning": "First this."}
    stage = Stage(document(block={"exposeReasoningToUser": shown}), plan, done("Looked."), done("Said."), ANSWER)
    await stage.play()
    assert stage.texts("reasoning") == ("First this." if shown else "")


async def test_an_ejected_agent_sends_the_same_events() -> None:
    ejected = json.loads(json.dumps(document()))
    assert "mode" not in ejected
    mode, graph = Stage(document(), *CASES["one tool"]), Stage(ejected, *CASES["one tool"])
    assert told(await mode.play()) == told(await graph.play())


@pytest.mark.parametrize(
    ("block", "budget", "rounds"),
    [({}, {}, 8), ({"maxSteps": 12}, {}, 12), ({}, {"maxSteps": 3}, 3), ({"maxRounds": 5}, {"maxSteps": 3}, 3)],
)
def test_the_tasks_are_those_of_the_block_then_the_budget_then_the_preset(
    block: dict[str, Any], budget: dict[str, Any], rounds: int
) -> None:
    compiled = document(block=block, **({"budget": budget} if budget else {}))
    assert compiled["budget"]["maxRounds"] == rounds
    assert compiled["nodes"]["execute"]["with"]["maxTasks"] == "${limits.rounds}"
