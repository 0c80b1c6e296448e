"""`toolPolicy` and limits on every mode: who may call, how often, and how a run ends that may not go on (spec 1.2, 1.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import tool
from graphflow.messages import AIMessage, HumanMessage, ToolMessage
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.modes.conftest import EVERY_MODE, Stage, Watched, call, document_of, look_up
from tests.service.clients import begin, query_of

TOOLED = ("PLAIN_TOOLING", "THINKING_TOOLING", "REACT")
FIRST = {"PLAIN_TOOLING": "decide", "THINKING_TOOLING": "think", "REACT": "reason"}
PLAIN_TEXT: dict[str, Any] = {"output": "PLAIN", "tools": ["look_up"]}
REQUIRE: dict[str, Any] = {**PLAIN_TEXT, "toolPolicy": "REQUIRE"}


def assert_paired(messages: Any) -> None:
    """Every call of a turn is followed by exactly one result, before the next turn or user message."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting, f"{waiting} have no result before {message}"
        if isinstance(message, AIMessage):
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


async def assert_whole(stage: Stage) -> None:
    """What every run keeps to: the state and each request are paired, and each call that was shown has one result."""
    assert_paired((await stage.state()).messages)
    for messages, _, _ in stage.model.asked:
        assert_paired(messages)
    started = [e["toolId"] for e in stage.events if e["type"] == "tool.start"]
    assert sorted(started) == sorted(e["toolId"] for e in stage.events if e["type"] == "tool.result")


# --- REQUIRE ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", TOOLED)
async def test_a_turn_that_had_to_call_and_did_not_gets_one_corrective_turn(mode: str) -> None:
    stage = Stage(document_of(mode, **REQUIRE), {"text": "No."}, {"tool_calls": [call()]}, {"text": "Done."})
    await stage.play()
    (_, _, first), (asked, tools, second), (_, _, third) = stage.model.asked
    assert (first.tool_choice, second.tool_choice) == ("required", "required")
    assert third.tool_choice in (None, "auto"), "one tool has run, so calling is free"
    assert isinstance(asked[-1], HumanMessage) and "tools" in asked[-1].content and tools == ["look_up"]
    assert stage.types[-1] == "run.complete" and stage.texts("content") == "No.Done."
    await assert_whole(stage)


@pytest.mark.parametrize("verify", ["NONE", "SECOND_PASS_FIX"])
@pytest.mark.parametrize("mode", TOOLED)
async def test_a_second_turn_without_a_call_fails_the_run_as_tool_required(mode: str, verify: str) -> None:
    stage = Stage(document_of(mode, **REQUIRE, verify=verify), {"text": "No."}, {"text": "Still no."})
    await stage.play()
    error = stage.events[-1]["error"]
    assert (stage.types[-1], error["code"], error["node"]) == ("run.error", "tool_required", FIRST[mode])
    assert len(stage.model.asked) == 2


@pytest.mark.parametrize("mode", TOOLED)
async def test_a_tool_that_ran_at_once_is_all_that_is_required(mode: str) -> None:
    stage = Stage(document_of(mode, **REQUIRE), {"tool_calls": [call()]}, {"text": "Done."})
    await stage.play()
    assert stage.types[-1] == "run.complete" and len(stage.model.asked) == 2


async def test_a_first_text_under_require_is_no_answer_so_a_second_pass_hides_it() -> None:
    stage = Stage(
        document_of("REACT", **REQUIRE, verify="SECOND_PASS_FIX"),
        {"text": "HIDDEN"}, {"tool_calls": [call()]}, {"text": "HIDDEN too"}, {"text": "Shown."},
    )  # fmt: skip
    await stage.play()
    assert stage.texts("content") == "Shown." and "HIDDEN" not in str((await stage.state()).messages)


# --- DISALLOW ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_no_tools_are_offered_and_a_call_that_comes_anyway_gets_an_error_result(mode: str) -> None:
    document = document_of(mode, **PLAIN_TEXT, toolPolicy="DISALLOW")
    stage = Stage(document, {"text": "I try.", "tool_calls": [call()]}, {"text": "Done."})
    await stage.play()
    assert {tuple(tools) for _, tools, _ in stage.model.asked} == {()}
    [result] = [e["result"] for e in stage.events if e["type"] == "tool.result"]
    assert "PERMISSION_DENIED" in result
    assert stage.types[-1] == "run.complete"
    assert "toolCalls" not in str([e.get("usage") for e in stage.events])
    await assert_whole(stage)


@pytest.mark.parametrize("mode", TOOLED)
async def test_a_last_turn_that_calls_all_the_same_gets_an_error_result_in_place(mode: str) -> None:
    document = document_of(mode, **PLAIN_TEXT, budget={"maxSteps": 1})
    stage = Stage(document, {"tool_calls": [call(number=1)]}, {"text": "So far.", "tool_calls": [call(number=2)]})
    await stage.play()
    assert stage.texts("content") == "So far." and stage.types[-1] == "run.complete"
    await assert_whole(stage)


# --- how many ---------------------------------------------------------------------------------------------------------


async def test_react_asks_for_one_call_at_a_time_and_answers_the_others() -> None:
    turn = {"tool_calls": [call(number=n) for n in (1, 2, 3)]}
    stage = Stage(document_of("REACT", **PLAIN_TEXT), turn, {"text": "Done."})
    await stage.play()
    assert stage.model.asked[0][2].parallel_tool_calls is False
    results = [e["result"] for e in stage.events if e["type"] == "tool.result"]
    assert results[0] == "graph: a thing"
    assert all("one tool per round" in result for result in results[1:]) and len(results) == 3
    await assert_whole(stage)


@pytest.mark.parametrize("mode", ["PLAIN_TOOLING", "THINKING_TOOLING"])
async def test_a_tooling_mode_runs_all_calls_of_its_one_round(mode: str) -> None:
    turn = {"tool_calls": [call(number=n, word=w) for n, w in ((1, "a"), (2, "b"))]}
    stage = Stage(document_of(mode, **PLAIN_TEXT), turn, {"text": "Done."})
    await stage.play()
    assert [e["result"] for e in stage.events if e["type"] == "tool.result"] == ["a: a thing", "b: a thing"]
    assert stage.model.asked[1][1] == [], "no second round is offered"
    await assert_whole(stage)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("where", ["request", "block", "budget"])
async def test_after_the_rounds_the_last_node_is_asked_without_tools(rounds: int, where: str) -> None:
    block = {"maxSteps": rounds} if where == "block" else {"maxSteps": 5} if where == "request" else {}
    budget = {"budget": {"maxSteps": rounds}} if where == "budget" else {}
    stage = Stage(
        document_of("REACT", block=block, **PLAIN_TEXT, **budget),
        *({"tool_calls": [call(number=n)]} for n in range(rounds)), {"text": "So far."},
    )  # fmt: skip
    await stage.play(budget={"maxRounds": rounds} if where == "request" else None)
    assert stage.finish_reason == "max_rounds"
    messages, tools, _ = stage.model.asked[-1]
    assert tools == [] and "best answer" in messages[-1].content and len(stage.model.asked) == rounds + 1
    await assert_whole(stage)


async def test_the_rounds_of_a_query_go_before_those_of_the_agent(tmp_path: Path) -> None:
    agent = {
        "mode": "REACT",
        "tools": ["look_up"],
        "react": {"systemPrompt": "H.", "maxSteps": 1},
        "budget": {"maxSteps": 1},
    }
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    model = Watched([*({"tool_calls": [call(number=n)]} for n in range(3)), {"text": "So far."}])
    async with Application(load_settings(tmp_path, environ={}), models=lambda *_: model, tools=(look_up,)) as app:
        begun = await begin(app, query_of(message="Go.", agent_key="agent", chat_id="c", max_rounds=3))
        await begun.run.over.wait()
        assert begun.run.executor.machine.finish_reason == "max_rounds"
    assert [len(tools) for _, tools, _ in model.asked] == [1, 1, 1, 0]


async def test_an_answer_in_the_last_round_is_no_limit() -> None:
    document = document_of("REACT", block={"maxSteps": 2}, **PLAIN_TEXT)
    stage = Stage(document, {"tool_calls": [call()]}, {"text": "Done."})
    await stage.play()
    assert stage.finish_reason == "stop"


FIGURES: dict[str, dict[str, Any]] = {"model calls": {"maxModelCalls": 1}, "tokens": {"maxTokens": 1}}


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("mode", TOOLED)
async def test_at_any_other_figure_the_last_node_answers_and_the_finish_reason_says_so(mode: str, figure: str) -> None:
    turn = {"text": "I look.", "tool_calls": [call(number=n) for n in (1, 2)]}
    stage = Stage(document_of(mode, **PLAIN_TEXT, budget=FIGURES[figure]), turn, {"text": "So far."})
    await stage.play()
    assert (stage.finish_reason, stage.texts("content")) == ("budget", "I look.So far.")
    await assert_whole(stage)


@pytest.mark.parametrize("mode", TOOLED)
async def test_when_the_time_is_up_what_was_said_stays_and_the_last_node_answers(mode: str) -> None:
    stage = Stage(
        document_of(mode, **PLAIN_TEXT, budget={"timeoutMs": 1}), {"text": "I th", "hang": True}, {"text": "So."}
    )
    stage.model.on_hang = lambda: stage.clock.advance(1)
    await stage.play()
    assert (stage.finish_reason, stage.texts("content")) == ("budget", "I thSo.")
    assert [(m.content, m.status) for m in await stage.said()] == [("I th", "timeout"), ("So.", None)]
    assert "I th" not in str(stage.model.asked[1][0]), "what was cut off is not sent back"


@pytest.mark.parametrize("mode", ["PLAIN", "THINKING"])
async def test_a_mode_of_one_turn_that_runs_out_of_time_fails_and_keeps_what_was_said(mode: str) -> None:
    stage = Stage(document_of(mode, output="PLAIN", budget={"timeoutMs": 1}), {"text": "I th", "hang": True})
    stage.model.on_hang = lambda: stage.clock.advance(1)
    await stage.play()
    assert stage.events[-1]["error"]["code"] == "budget_exceeded"
    assert [(m.content, m.status) for m in await stage.said()] == [("I th", "timeout")]


@pytest.mark.parametrize("verify", ["NONE", "SECOND_PASS_FIX"])
@pytest.mark.parametrize("mode", TOOLED)
async def test_without_a_tool_call_left_the_last_node_answers_and_every_call_has_its_one_result(
    mode: str, verify: str
) -> None:
    turns = [{"tool_calls": [call(number=1), call(number=2)]}, {"text": "So far."}]
    if mode == "REACT":
        turns[1:1] = [{"tool_calls": [call(number=3)]}]
    document = document_of(mode, **PLAIN_TEXT, budget={"maxToolCalls": 1}, verify=verify, approval="AUTO")
    document["nodes"]["tools"].setdefault("with", {})["parallel"] = False
    stage = Stage(document, *turns)
    await stage.play()
    assert (stage.finish_reason, stage.texts("content")) == ("budget", "So far.")
    await assert_whole(stage)
    told = {e["toolId"]: e["result"] for e in stage.events if e["type"] == "tool.result"}
    kept = {m.tool_call_id: m.content for m in (await stage.state()).messages if isinstance(m, ToolMessage)}
    assert kept == told and told["call_1"] == "graph: a thing"
    assert "budget is used up" in told[max(told)]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_an_answer_that_was_cut_says_so(mode: str, reason: str) -> None:
    stage = Stage(document_of(mode, output="PLAIN"), {"text": "Half an ans", "finish": reason})
    await stage.play()
    assert (stage.finish_reason, stage.texts("content")) == (reason, "Half an ans")


async def test_a_last_turn_that_was_cut_in_a_call_says_so_too() -> None:
    stage = Stage(document_of("PLAIN"), {"text": "Half", "tool_calls": [call()], "finish": "length"})
    await stage.play()
    assert stage.finish_reason == "length"
    await assert_whole(stage)


@pytest.mark.parametrize("mode", TOOLED)
async def test_calls_of_a_turn_that_was_cut_are_not_run(mode: str) -> None:
    turn = {"tool_calls": [call(), call(number=2)], "finish": "length"}
    stage = Stage(document_of(mode, **PLAIN_TEXT), turn, {"text": "Again."})
    await stage.play()
    results = [e["result"] for e in stage.events if e["type"] == "tool.result"]
    assert len(results) == 2 and all("cut off" in result for result in results)
    await assert_whole(stage)


@tool(effects="read")
def bound(word: str) -> str:
    """Whether a word is bound."""
    return f"{word} is bound"


async def test_tools_that_are_bound_to_a_keyword_of_the_agent_are_offered_and_run() -> None:
    document = document_of("REACT", tools=["look_up"], keywords=["Books"])
    stage = Stage(document, {"tool_calls": [call("bound")]}, {"text": "Done."})
    stage.graph.host.services["tool"].registry.register(bound, keywords=["books"])
    await stage.play()
    assert stage.model.asked[0][1] == ["look_up", "bound"]
    assert [e["result"] for e in stage.events if e["type"] == "tool.result"] == ["graph is bound"]


@pytest.mark.parametrize("policy", ["ALLOW", "REQUIRE"])
@pytest.mark.parametrize("mode", TOOLED)
async def test_keywords_alone_give_an_agent_the_tools_that_are_bound_to_them_and_no_others(
    mode: str, policy: str
) -> None:
    document = document_of(mode, output="PLAIN", keywords=["Books"], toolPolicy=policy)
    turns = [{"tool_calls": [call("bound")]}, {"text": "Done."}]
    stage = Stage(document, *turns)
    stage.graph.host.services["tool"].registry.register(bound, keywords=["books"])
    await stage.play()
    assert stage.model.asked[0][1] == ["bound"]
    assert [e["result"] for e in stage.events if e["type"] == "tool.result"] == ["graph is bound"]
    other = Stage(document, {"tool_calls": [call("look_up")]}, {"text": "Done."})
    other.graph.host.services["tool"].registry.register(bound, keywords=["books"])
    await other.play()
    [result] = [e["result"] for e in other.events if e["type"] == "tool.result"]
    assert "there is no tool 'look_up'; tools are bound." in result


async def test_keywords_that_no_tool_is_bound_to_offer_none_and_run_none() -> None:
    stage = Stage(document_of("REACT", keywords=["weather"]), {"tool_calls": [call()]}, {"text": "Done."})
    await stage.play()
    assert stage.model.asked[0][1] == [] and stage.types[-1] == "run.complete"
    assert ["NOT_FOUND" in e["result"] for e in stage.events if e["type"] == "tool.result"] == [True]
