"""Stages of a team that are another agent, and tools that are bound by keywords (spec 1.2, 6.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import MemoryCheckpointer, load_graph
from graphflow.agents.loader import load_agent
from graphflow.errors import DefinitionError
from graphflow.graph.document import decode_document
from graphflow.messages import AIMessage, HumanMessage
from graphflow.nodes.kinds import NodeKinds
from graphflow.tools.listing import list_tools, with_tools
from graphflow.tools.offered import offered_tools
from graphflow.tools.registry import ToolRegistry
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
    assert isinstance(judge[1], HumanMessage) and judge[1].content.startswith(
        "Question?\n\nNotes of the team so far:\n"
    )
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


def test_an_agent_that_is_not_there_is_told_where_the_file_names_it() -> None:
    text = '{"mode": "REACT_TEAM", "reactTeam": {\n  "thinking": {"agent": "nobody"}\n}}'
    with pytest.raises(DefinitionError) as refused:
        load_agent(text, kinds=NodeKinds(ToolRegistry()))
    [fault] = refused.value.faults
    assert (fault.pointer, fault.line, fault.column) == ("/reactTeam/thinking/agent", 2, 25)
    assert "'nobody'" in fault.message and "in the mode's graph" not in fault.message


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
