"""`verify: SECOND_PASS_FIX`: the first candidate is never shown, the second pass is streamed, the candidate is what is
left when there is none (spec 1.3, E14).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.events import event_dict
from graphflow.messages import AIMessage, HumanMessage, ToolMessage
from tests.modes.conftest import EVERY_MODE, Stage, Watched, call, document_of, look_up, summary

CANDIDATE = "CANDIDATE that nobody sees."
CHECKED = "Checked and mended."
FAILS: dict[str, Any] = {"error": {"status": 400, "message": "no"}}


def verified(mode: str = "PLAIN", **fields: Any) -> dict[str, Any]:
    return document_of(mode, verify="SECOND_PASS_FIX", **fields)


def spoken(mode: str, text: str) -> str:
    return summary("Why.", text) if "THINKING" in mode else text


@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_the_candidate_is_in_no_event_and_in_no_message(mode: str) -> None:
    stage = Stage(verified(mode), {"text": spoken(mode, CANDIDATE)}, {"text": spoken(mode, CHECKED)})
    events = await stage.play()
    assert stage.texts("content") == CHECKED
    assert "CANDIDATE" not in str(events)
    state = await stage.state()
    assert [m.content for m in state.messages] == ["Question?", CHECKED]
    assert state.candidate["text"] == CANDIDATE, "it is kept for inspection"
    assert (await stage.graph.thread("t").result()).output == CHECKED


@pytest.mark.parametrize("mode", ["PLAIN_TOOLING", "THINKING_TOOLING", "REACT"])
async def test_text_before_a_call_is_one_delta_that_comes_before_the_call_and_the_rest_passes_at_once(
    mode: str,
) -> None:
    turns = [{"text": "I look it up.", "tool_calls": [call()], "piece": 2}, {"text": spoken(mode, CANDIDATE)}]
    stage = Stage(verified(mode, tools=["look_up"]), *turns, {"text": spoken(mode, CHECKED), "piece": 4})
    await stage.play()
    deltas = [(e["type"], e.get("delta", "")) for e in stage.events if e["type"] in ("content.delta", "tool.start")]
    assert deltas[:2] == [("content.delta", "I look it up."), ("tool.start", "")]
    assert "".join(text for kind, text in deltas[2:]) == CHECKED
    turn, result, answer = (await stage.state()).messages[1:]
    assert (turn.content, len(turn.tool_calls)) == ("I look it up.", 1)
    assert isinstance(result, ToolMessage) and answer.content == CHECKED


async def test_the_second_pass_sees_the_conversation_and_the_draft_and_no_tools() -> None:
    stage = Stage(
        verified("REACT", tools=["look_up"]), {"tool_calls": [call()]}, {"text": CANDIDATE}, {"text": CHECKED}
    )
    await stage.play()
    (first, offered, _), _, (messages, tools, _) = stage.model.asked
    assert offered == ["look_up"] and tools == []
    assert messages[0] == first[0], "the same system prompt"
    assert [type(m) for m in messages[1:4]] == [HumanMessage, AIMessage, ToolMessage]
    assert isinstance(messages[4], HumanMessage) and f"<draft>\n{CANDIDATE}\n</draft>" in messages[4].content


@pytest.mark.parametrize(
    "pass_", [FAILS, {"text": ""}, {"reasoning": "Hm.", "text": ""}], ids=["fails", "empty", "thinks"]
)
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_a_pass_that_gives_nothing_sends_the_candidate_as_one_delta(mode: str, pass_: Any) -> None:
    stage = Stage(verified(mode), {"text": spoken(mode, CANDIDATE)}, pass_)
    await stage.play()
    assert [e["delta"] for e in stage.events if e["type"] == "content.delta"] == [CANDIDATE]
    assert [m.content for m in await stage.said()] == [CANDIDATE]
    assert stage.finish_reason == "stop"


async def test_white_space_of_a_blank_pass_stays_before_the_candidate() -> None:
    stage = Stage(verified(), {"text": CANDIDATE}, {"text": " \n", "piece": 1})
    await stage.play()
    assert [e["delta"] for e in stage.events if e["type"] == "content.delta"] == [" ", "\n", CANDIDATE]
    assert [m.content for m in await stage.said()] == [" \n" + CANDIDATE]


async def test_what_a_pass_said_before_it_failed_stays_as_a_partial_message_before_the_candidate() -> None:
    stage = Stage(verified(), {"text": CANDIDATE}, {"text": "Half an ans", "piece": 4, "error": {"message": "gone"}})
    await stage.play()
    blocks: dict[str, str] = {}
    for event in stage.events:
        if event["type"] == "content.delta":
            blocks[event["contentId"]] = blocks.get(event["contentId"], "") + event["delta"]
    assert list(blocks.values()) == ["Half an ans", CANDIDATE]
    assert [(m.content, m.status) for m in await stage.said()] == [("Half an ans", "error"), (CANDIDATE, None)]
    assert stage.types[-1] == "run.complete"


@pytest.mark.parametrize("blank", ["", " \n "])
async def test_of_a_blank_candidate_nothing_is_asked_and_nothing_sent(blank: str) -> None:
    stage = Stage(verified(), {"text": blank})
    await stage.play()
    assert len(stage.model.asked) == 1
    assert "content.delta" not in stage.types and stage.types[-1] == "run.complete"
    assert [m.content for m in await stage.said()] == [""]


async def test_the_second_pass_counts_and_without_a_call_left_the_candidate_is_sent() -> None:
    stage = Stage(verified(budget={"maxModelCalls": 1}), {"text": CANDIDATE})
    await stage.play()
    assert stage.texts("content") == CANDIDATE
    assert stage.finish_reason == "budget"
    stage = Stage(verified(budget={"maxModelCalls": 2}), {"text": CANDIDATE}, {"text": CHECKED})
    await stage.play()
    assert (stage.texts("content"), stage.finish_reason) == (CHECKED, "stop")
    usage = (await stage.graph.thread("t").result()).usage
    assert usage["modelCalls"] == 2


async def test_where_the_budget_ends_before_a_candidate_the_last_node_gives_the_forced_answer_itself() -> None:
    document = verified("REACT", tools=["look_up"], budget={"maxModelCalls": 1})
    stage = Stage(document, {"tool_calls": [call()]}, {"text": "Forced."})
    await stage.play()
    assert (stage.texts("content"), stage.finish_reason) == ("Forced.", "budget")
    messages, tools, _ = stage.model.asked[-1]
    assert tools == [] and "best answer" in messages[-1].content and "draft" not in messages[-1].content


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_the_finish_reason_is_that_of_the_text_that_was_sent(reason: str) -> None:
    stage = Stage(verified(), {"text": CANDIDATE, "finish": reason}, {"text": CHECKED})
    await stage.play()
    assert stage.finish_reason == "stop"
    stage = Stage(verified(), {"text": CANDIDATE, "finish": reason}, FAILS)
    await stage.play()
    assert stage.finish_reason == reason
    stage = Stage(verified(), {"text": CANDIDATE}, {"text": CHECKED, "finish": reason})
    await stage.play()
    assert stage.finish_reason == reason


@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_a_candidate_that_is_cancelled_or_fails_shows_nothing_of_itself(mode: str) -> None:
    for turn in ({"text": spoken(mode, CANDIDATE), "hang": True}, {"text": CANDIDATE, "error": {"message": "gone"}}):
        stage = Stage(verified(mode), turn)
        await stage.play()
        assert stage.types[-1] in ("run.cancel", "run.error")
        assert "CANDIDATE" not in str(stage.events) and await stage.said() == []


async def test_a_second_pass_that_is_cancelled_keeps_what_it_showed() -> None:
    stage = Stage(verified(), {"text": CANDIDATE}, {"text": "Check", "hang": True})
    await stage.play()
    assert (stage.types[-1], stage.texts("content")) == ("run.cancel", "Check")
    assert [(m.content, m.status) for m in await stage.said()] == [("Check", "cancelled")]


async def test_the_candidate_of_one_run_is_gone_with_the_next_input() -> None:
    stage = Stage(verified(), {"text": CANDIDATE}, {"text": CHECKED}, {"text": ""})
    await stage.play()
    await stage.play("And now?")
    assert (await stage.state()).candidate["text"] == ""
    assert CANDIDATE not in str(stage.model.asked[2][0])


async def test_when_the_time_is_up_in_the_second_pass_the_candidate_is_sent() -> None:
    stage = Stage(verified(budget={"timeoutMs": 1}), {"text": CANDIDATE}, {"text": "Check", "hang": True})
    stage.model.on_hang = lambda: stage.clock.advance(1)
    await stage.play()
    assert [e["delta"] for e in stage.events if e["type"] == "content.delta"][-1] == CANDIDATE
    assert (stage.finish_reason, len(stage.model.asked)) == ("budget", 2)
    assert (await stage.said())[-1].content == CANDIDATE


async def test_as_a_subgraph_the_agent_shows_neither_pass_and_gives_the_second(tmp_path: Path) -> None:
    agent = {"mode": "REACT", "react": {"systemPrompt": "H."}, "tools": ["look_up"], "verify": "SECOND_PASS_FIX"}
    asks = {"graph": "agent", "with": {"query": "Q?"}, "set": {"said": "out"}, "next": "end"}
    said = {"type": "object", "properties": {"said": {"type": "string", "default": ""}}}
    around = {"graphflow": "1", "state": said, "result": "state.said", "start": "ask", "nodes": {"ask": asks}}
    (tmp_path / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    (tmp_path / "around.json").write_text(json.dumps(around), encoding="utf-8")
    model = Watched([{"text": "I look.", "tool_calls": [call()]}, {"text": CANDIDATE}, {"text": CHECKED}])
    graph = load_graph(tmp_path / "around.json", model=model, tools=[look_up])
    events = [event_dict(event) async for event in graph.stream({})]
    assert {e["type"].partition(".")[0] for e in events} == {"run", "node"}
    model.asked.clear()
    assert (await graph.run({})).output == CHECKED
