"""Subgraphs are silent unless the node that opens them says `stream: "content"` (E10, docs/internals/decisions/0022)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import load_graph
from graphflow.agents.loader import load_agent
from graphflow.errors import DefinitionError
from graphflow.events import event_dict
from graphflow.nodes.kinds import NodeKinds
from graphflow.service.application import Application
from graphflow.service.chats.chats import chat
from graphflow.settings import load_settings
from graphflow.testing.stream_grammar import StreamRules
from graphflow.tools.registry import ToolRegistry
from tests.modes.conftest import Watched, call, look_up
from tests.modes.test_same_text import live_texts, recorded_texts, snapshot_texts
from tests.service.clients import begin, query_of

SPEAKER = {
    "mode": "REACT",
    "tools": ["look_up"],
    "react": {"systemPrompt": "S", "exposeReasoningToUser": True},
}
TURNS: list[Any] = [{"reasoning": "Hm. ", "text": "I look. ", "tool_calls": [call()]}, {"text": "Yes."}]
SPEAKS = {"stream": "content"}


def around(graph: str, **node: Any) -> dict[str, Any]:
    """A document of one node, which asks another one."""
    inner = {"graph": graph, "with": {"query": "Q?"}, "set": {"said": "out"}, "next": "end", **node}
    said = {"type": "object", "properties": {"said": {"type": "string", "default": ""}}}
    return {"graphflow": "1", "state": said, "result": "state.said", "start": "ask", "nodes": {"ask": inner}}


async def shown(folder: Path, **documents: dict[str, Any]) -> str:
    """What a run of `top` shows of texts and calls, held against the grammar of streams."""
    for key, data in {"speaker": SPEAKER, **documents}.items():
        (folder / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    graph = load_graph(folder / "top.json", model=Watched(TURNS * 2), tools=[look_up])
    rules, out = StreamRules(), ""
    async for event in graph.stream({}):
        rules.take(event)
        told = event_dict(event)
        out += {"content.delta": told.get("delta", ""), "tool.start": f"<{told.get('toolName')}>"}.get(event.type, "")
    return out


@pytest.mark.parametrize(("node", "text"), [({}, ""), (SPEAKS, "I look. <look_up>Yes.")])
async def test_a_subgraph_speaks_where_its_node_says_so(tmp_path: Path, node: Any, text: str) -> None:
    assert await shown(tmp_path, top=around("speaker", **node)) == text


@pytest.mark.parametrize(("outer", "inner"), [(SPEAKS, SPEAKS), (SPEAKS, {}), ({}, SPEAKS)])
async def test_a_subgraph_in_a_subgraph_speaks_where_both_nodes_say_so(tmp_path: Path, outer: Any, inner: Any) -> None:
    text = await shown(tmp_path, top=around("middle", **outer), middle=around("speaker", **inner))
    assert text == ("I look. <look_up>Yes." if outer and inner else "")


async def test_a_branch_does_not_speak_whatever_is_said_in_it(tmp_path: Path) -> None:
    fan = {"map": "['a', 'b']", "as": "word", "max": 1, "do": {"graph": "middle"}, "next": "end"}
    top = {"graphflow": "1", "start": "fan", "nodes": {"fan": fan}}
    assert await shown(tmp_path, top=top, middle=around("speaker", **SPEAKS)) == ""


@pytest.mark.parametrize(
    ("node", "pointer"),
    [
        ({"use": "model", "stream": "content", "next": "end"}, "/nodes/a/stream"),
        ({"graph": "speaker", "stream": "reasoning", "next": "end"}, "/nodes/a/stream"),
    ],
)
def test_only_a_subgraph_takes_the_word_and_only_this_one(node: dict[str, Any], pointer: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load_agent({"graphflow": "1", "start": "a", "nodes": {"a": node}}, kinds=NodeKinds(ToolRegistry()))
    assert pointer in [issue.pointer for issue in refused.value.errors]


async def test_live_memory_and_history_of_a_team_with_another_spokesman_have_the_same_text(tmp_path: Path) -> None:
    team = {"mode": "REACT_TEAM", "reactTeam": {"final": {"agent": "speaker"}, "exposeReasoningToUser": True}}
    (tmp_path / "graphs").mkdir()
    for key, data in {"speaker": SPEAKER, "team": team}.items():
        (tmp_path / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    done = {"tool_calls": [call("task_done", 9, finishContent="x")]}
    model = Watched([{"text": "Think. "}, done, *TURNS])
    async with Application(load_settings(tmp_path, environ={}), models=lambda *_: model, tools=(look_up,)) as app:
        begun = await begin(app, query_of(message="Is it?", agent_key="team", chat_id="c"))
        assert begun.run.log is not None
        live = live_texts([event_dict(event) async for event in begun.run.log.follow(0)])
        await begun.run.over.wait()
        history = snapshot_texts((await chat(app, "c"))["events"])
        recorded = recorded_texts(app.settings.memory.chat_dir / "c.json")
    assert live == history == recorded == {"content": "I look. Yes.", "reasoning": "Think. Hm. "}
