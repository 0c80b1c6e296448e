"""The text that was shown live is the text of the memory and of the history, in every mode under every policy (spec 3.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow.events import event_dict
from graphflow.modes.definition import BLOCKS
from graphflow.service.application import Application
from graphflow.service.chats.chats import chat
from graphflow.settings import load_settings
from tests.modes.conftest import EVERY_MODE, Watched, broken, call, look_up, summary
from tests.service.clients import begin, query_of

Texts = dict[str, str]
LOOK = {"reasoning": "Let me see. ", "text": "I look. ", "tool_calls": [call()]}
SAID = {"reasoning": "Hm. ", "text": "Yes,\n it is.", "piece": 2}
IN_FORM = {"reasoning": "Hm. ", "text": summary("Because. ", "Yes."), "piece": 3}
PASSES: dict[str, Any] = {
    "whole": {"text": "Mended."},
    "in form": IN_FORM,
    "empty": {"text": ""},
    "cut in its midst": {"text": '{"finalText": "Half', "piece": 4, "error": {"message": "gone"}},
    "prose": {"reasoning": "Hm. ", "text": "Plain words.", "finish": "length"},
}


def live_texts(events: list[dict[str, Any]]) -> Texts:
    return {
        kind: "".join(e["delta"] for e in events if e["type"] == f"{kind}.delta") for kind in ("content", "reasoning")
    }


def snapshot_texts(events: list[dict[str, Any]]) -> Texts:
    return {
        kind: "".join(e["text"] for e in events if e["type"] == f"{kind}.snapshot") for kind in ("content", "reasoning")
    }


def recorded_texts(path: Path) -> Texts:
    [line] = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    said = [m for m in line["messages"] if m["role"] == "assistant"]
    return {
        kind: "".join(part["text"] for m in said for part in m.get(key) or ())
        for kind, key in (("content", "content"), ("reasoning", "reasoning_content"))
    }


@pytest.mark.parametrize("last", PASSES)
@pytest.mark.parametrize("verify", ["NONE", "SECOND_PASS_FIX"])
@pytest.mark.parametrize("output", ["PLAIN", "REASONING_SUMMARY"])
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_live_memory_and_history_have_the_same_text(
    mode: str, output: str, verify: str, last: str, tmp_path: Path
) -> None:
    turns: list[Any] = [LOOK] if mode not in ("PLAIN", "THINKING") else []
    turns += [IN_FORM if output == "REASONING_SUMMARY" else SAID] if verify != "NONE" else []
    turns.append(PASSES[last])
    agent = {
        "mode": mode, "output": output, "verify": verify, BLOCKS[mode]: {"systemPrompt": "H.", "exposeReasoningToUser": True},
        **({"tools": ["look_up"]} if LOOK in turns else {}),
    }  # fmt: skip
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    model = Watched(turns)
    async with Application(
        load_settings(tmp_path, environ={}), models=lambda *_: model, tools=(look_up, broken)
    ) as app:
        begun = await begin(app, query_of(message="Is it?", agent_key="agent", chat_id="c"))
        assert begun.run.log is not None
        live = live_texts([event_dict(event) async for event in begun.run.log.follow(0)])
        await begun.run.over.wait()
        history = snapshot_texts((await chat(app, "c"))["events"])
        recorded = recorded_texts(app.settings.memory.chat_dir / "c.json")
    assert live == history == recorded
    assert live["content"] or (last, verify) == ("empty", "NONE")
