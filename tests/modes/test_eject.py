"""The explicit graph of an agent, saved as a file, is the same agent (E23)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow.agents.loader import load_agent
from graphflow.modes.definition import BLOCKS
from graphflow.nodes.kinds import NodeKinds
from graphflow.tools.registry import ToolRegistry
from tests.modes.conftest import EVERY_MODE, Stage, broken, call, look_up, summary

KINDS = NodeKinds(ToolRegistry([look_up, broken]))
POLICIES: dict[str, dict[str, Any]] = {
    "presets": {},
    "a second pass over a summary": {"verify": "SECOND_PASS_FIX", "output": "REASONING_SUMMARY"},
    "tools that must be called": {"toolPolicy": "REQUIRE", "budget": {"maxSteps": 2, "maxModelCalls": 9}},
    "no tools": {"toolPolicy": "DISALLOW", "compute": "LOW", "options": {"temperature": 0.5}},
}


def write(folder: Path, name: str, data: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("mode", EVERY_MODE)
async def test_an_ejected_agent_has_the_same_version_and_does_the_same(
    mode: str, policies: str, tmp_path: Path
) -> None:
    block = {"systemPrompt": "Use ${this} and $${that}.", "exposeReasoningToUser": True}
    agent = {
        "name": "Helper", "icon": "🤖", "description": "Helps.", "mode": mode, BLOCKS[mode]: block,
        "tools": ["look_up", "broken"], "keywords": ["word"], "approval": "AUTO", **POLICIES[policies],
    }  # fmt: skip
    original = load_agent(write(tmp_path, "original", agent), kinds=KINDS, tools=["look_up", "broken"])
    ejected = load_agent(write(tmp_path, "ejected", dict(original.data)), kinds=KINDS, tools=["look_up", "broken"])
    assert ejected.version == original.version
    assert (original.mode, ejected.mode) == (mode, "GRAPH")
    assert (ejected.name, ejected.tools, ejected.keywords) == (original.name, original.tools, original.keywords)
    assert ejected.instructions is not None

    def stage(data: Any) -> Stage:
        spoken = {"text": summary("Why.", "Yes."), "reasoning": "Hm."}
        return Stage(dict(data), {"text": "I look.", "tool_calls": [call(), call(number=2)]}, *[spoken] * 3)

    first, second = stage(original.data), stage(json.loads((tmp_path / "ejected.json").read_text(encoding="utf-8")))
    assert await first.play() == await second.play()
    assert [m.content for m in await first.said()] == [m.content for m in await second.said()]
    assert first.model.asked[0][0][0].text.startswith("Use ${this} and $${that}.")
