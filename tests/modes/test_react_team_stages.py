"""Stages of a team that are another agent, and tools that are bound by keywords (spec 1.2, 6.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import MemoryCheckpointer, load_graph
from graphflow.agents.loader import load_agent
from graphflow.errors import DefinitionError
from graphflow.events import event_dict
from graphflow.graph.definition.document import decode_document
from graphflow.messages import AIMessage, HumanMessage
from graphflow.nodes.kinds import NodeKinds
from graphflow.nodes.message_pairing import paired
from graphflow.testing.stream_grammar import StreamRules
from graphflow.tools.listing import list_tools, with_tools
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.selection import offered_tools
from tests.modes.conftest import Watched, broken, call, look_up

JUDGE = {"mode": "PLAIN", "plain": {"systemPrompt": "JUDGE"}}
DONE = {"tool_calls": [call("task_done", 9, finishContent="x")]}


async def test_an_agent_in_the_place_of_a_stage_is_told_the_notes_and_its_answer_is_one(tmp_path: Path) -> None:
    team = {"mode": "REACT_TEAM", "tools": ["look_up"], "reactTeam": {"observation": {"agent": "judge"}}}
    for key, data in {"judge": JUDGE, "team": team}.items():
        (tmp_path / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    turns = [{"text": "Look."}, {"tool_calls": [call()]}, {"text": "It fits."}, {"text": "Done."}, DONE, {"text": "A."}]
    model = Watched(turns)
    graph = load_graph(tmp_path / "team.json", checkpointer=MemoryCheckpointer(), tools=[look_up], model=model)
    events: list[Any] = [event async for event in graph.stream("Question?", "t")]
    assert events[-1].finish_reason == "task_done"
    judge, next_thinking = model.asked[2][0], model.asked[3][0]
    assert judge[0].content == "JUDGE"
    assert isinstance(judge[1], HumanMessage) and judge[1].text.startswith("Question?\n\nNotes of the team so far:\n")
    assert '"Look."' in judge[1].content
    assert AIMessage(content="[observation]: It fits.") in next_thinking
    assert "".join(e.delta for e in events if e.type == "content.delta") == "A."


async def test_an_agent_may_act_in_its_own_way_and_the_rounds_end_the_work(tmp_path: Path) -> None:
    team = {"mode": "REACT_TEAM", "reactTeam": {"action": {"agent": "judge"}, "maxRounds": 1}}
    for key, data in {"judge": JUDGE, "team": team}.items():
        (tmp_path / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    model = Watched([{"text": "Look."}, {"text": "Acted."}, {"text": "Seen."}, {"text": "A."}])
    graph = load_graph(tmp_path / "team.json", model=model)
    events: list[Any] = [event async for event in graph.stream("Question?")]
    assert events[-1].finish_reason == "max_rounds"
    shown = [message.content for message in model.asked[2][0][2:4]]
    assert shown == ["[thinking]: Look.", "[action]: Acted."]


# --- another agent in the place of `final` ----------------------------------------------------------------------------

SPEAKERS: dict[str, dict[str, Any]] = {
    "plain": {"mode": "PLAIN", "plain": {"systemPrompt": "SPEAKER"}},
    "react": {"mode": "REACT", "tools": ["look_up"], "react": {"systemPrompt": "SPEAKER"}},
    "checked": {"mode": "PLAIN", "verify": "SECOND_PASS_FIX", "plain": {"systemPrompt": "SPEAKER"}},
}
LOOKS = {"text": "Let me see. ", "tool_calls": [call(number=5)]}
ANSWER = {"text": "The answer.", "piece": 4}


class Team:
    """A team whose `final` is another agent, on one thread."""

    def __init__(self, folder: Path, final: str, *turns: Any, **fields: Any) -> None:
        block = {"final": {"agent": final}, **fields.pop("block", {})}
        team = {"mode": "REACT_TEAM", "tools": ["look_up"], "reactTeam": block, **fields}
        for key, data in {**SPEAKERS, "team": team}.items():
            (folder / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
        self.model = Watched(turns)
        self.graph = load_graph(
            folder / "team.json", checkpointer=MemoryCheckpointer(), tools=[look_up], model=self.model
        )

    async def play(self) -> list[dict[str, Any]]:
        """All events, held against the grammar of streams."""
        rules, events = StreamRules(), []
        async for event in self.graph.stream("Question?", "t"):
            rules.take(event)
            events.append(event_dict(event))
        return events

    async def messages(self) -> list[Any]:
        return list((await self.graph.thread("t").state()).values.messages)


def deltas(events: list[dict[str, Any]]) -> list[str]:
    return [event["delta"] for event in events if event["type"] == "content.delta"]


async def test_the_answer_of_another_agent_is_streamed_as_it_comes_and_is_the_teams(tmp_path: Path) -> None:
    team = Team(tmp_path, "plain", {"text": "Think."}, DONE, ANSWER)
    events = await team.play()
    assert deltas(events) == ["The ", "answ", "er."]
    assert (events[-1]["type"], events[-1]["finishReason"]) == ("run.complete", "task_done")
    system, request = team.model.asked[-1][0]
    assert system.content == "SPEAKER" and '"Think."' in str(getattr(request, "content", ""))
    messages = await team.messages()
    assert messages[-1] == AIMessage(content="The answer.") and paired(messages) == messages
    assert (await team.graph.thread("t").result()).output == "The answer."


async def test_what_that_agent_says_and_calls_on_its_way_is_shown_too(tmp_path: Path) -> None:
    events = await Team(tmp_path, "react", {"text": "Think."}, DONE, LOOKS, ANSWER).play()
    assert "".join(deltas(events)) == "Let me see. The answer."
    assert [e["result"] for e in events if e["type"] == "tool.result"][1:] == ["graph: a thing"]


async def test_a_candidate_of_that_agent_stays_hidden(tmp_path: Path) -> None:
    events = await Team(tmp_path, "checked", {"text": "Think."}, DONE, {"text": "CANDIDATE"}, ANSWER).play()
    assert "".join(deltas(events)) == "The answer." and "CANDIDATE" not in str(events)


async def test_where_the_team_checks_its_answer_that_agent_gives_the_candidate(tmp_path: Path) -> None:
    turns = [{"text": "Think."}, DONE, {"text": "CANDIDATE"}, ANSWER]
    team = Team(tmp_path, "plain", *turns, verify="SECOND_PASS_FIX")
    events = await team.play()
    assert "".join(deltas(events)) == "The answer." and "CANDIDATE" not in str(events)
    assert (await team.messages())[-1].content == "The answer."


async def test_after_the_rounds_that_agent_answers_too(tmp_path: Path) -> None:
    turns = [{"text": "Think."}, {"tool_calls": [call()]}, {"text": "Seen."}, ANSWER]
    events = await Team(tmp_path, "plain", *turns, block={"maxRounds": 1}).play()
    assert ("".join(deltas(events)), events[-1]["finishReason"]) == ("The answer.", "max_rounds")


async def test_at_any_other_limit_the_team_answers_itself_with_the_one_call_that_is_left(tmp_path: Path) -> None:
    turns = [{"text": "Think."}, {"tool_calls": [call(number=1), call(number=2)]}, {"text": "So far."}]
    team = Team(tmp_path, "react", *turns, budget={"maxToolCalls": 1})
    events = await team.play()
    assert ("".join(deltas(events)), events[-1]["finishReason"]) == ("So far.", "budget")
    assert "final agent of a team" in str(getattr(team.model.asked[-1][0][0], "content", ""))
    assert [e["node"] for e in events if e["type"] == "node.start"][-1] == "wrap_up"
    messages = await team.messages()
    assert paired(messages) == messages


def test_an_agent_that_is_not_there_is_told_where_the_file_names_it() -> None:
    text = '{"mode": "REACT_TEAM", "reactTeam": {\n  "thinking": {"agent": "nobody"}\n}}'
    with pytest.raises(DefinitionError) as refused:
        load_agent(text, kinds=NodeKinds(ToolRegistry()))
    [issue] = refused.value.errors
    assert (issue.pointer, issue.line, issue.column) == ("/reactTeam/thinking/agent", 2, 25)
    assert "'nobody'" in issue.message and "in the mode's graph" not in issue.message


def registry() -> ToolRegistry:
    made = ToolRegistry(builtins=())
    made.register(look_up, keywords={"Words"})
    made.register(broken, keywords={"words", "books"})
    return made


def document(**fields: Any) -> Any:
    return decode_document({"graphflow": "1", "start": "a", "nodes": {"a": {"use": "model", "next": "end"}}, **fields})


def test_tools_are_those_that_are_named_and_those_of_the_keywords_none_twice() -> None:
    tools = registry()
    assert offered_tools(tools, document(), {}) == ()
    assert offered_tools(tools, document(tools=["broken"], keywords=["WORDS"]), {}) == ("broken", "look_up")
    assert offered_tools(tools, document(tools=["broken"], keywords=["words"]), {"tools": ["look_up"]}) == ("look_up",)
    assert offered_tools(tools, document(), {"keywords": ["books"]}) == ("broken",)
    assert offered_tools(tools, document(tools=["look_up"]), {"tools": [], "keywords": []}) == ()


def test_tools_are_listed_with_what_they_take() -> None:
    assert list_tools(registry()) == (
        "1. look_up: What a word means.\n   - word (string), required\n2. broken: Fails.\n   - word (string), required"
    )
    assert with_tools("You have:\n<TOOLS>", []) == "You have:\nThere are no tools."
    assert with_tools("no list", [look_up]) == "no list"
