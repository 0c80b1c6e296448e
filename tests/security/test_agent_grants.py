"""An agent that writes agents grants only what it has, whatever a person approves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow import Person
from graphflow.settings import load_settings
from graphflow.tools.workspace import FileRefused, ProtectedFiles, Workspace
from tests.service.conftest import make_application

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {"texts": {"type": "array", "items": {"type": "string"}, "default": [], "x-reducer": "append"}},
}
PLAIN: dict[str, Any] = {"mode": "REACT", "providerKey": "scripted", "react": {"systemPrompt": "Work."}}
GRAPH: dict[str, Any] = {"graphflow": "1", "state": STATE, "start": "a"}


def calling(config: dict[str, Any]) -> dict[str, Any]:
    arguments = {"agentId": "made", "config": config}
    return {
        "use": "tools",
        "with": {"calls": [{"id": "call-1", "name": "agent_file_create", "arguments": arguments}]},
        "set": {"texts": "[out.results[0].text]"},
        "next": "end",
    }


async def written(folder: Path, config: dict[str, Any], by: Person | None = None, **writer: Any) -> tuple[bool, str]:
    """Whether the agent was written once an admin approved, and what the model was told."""
    fields = {"tools": ["agent_file_create", "http_request"], **writer}
    files = {
        "writer": {**GRAPH, "nodes": {"a": calling(config)}, **fields},
        "sheller": {**GRAPH, "tools": ["bash"], "nodes": {"a": {"use": "tools", "next": "end"}}},
    }
    (folder / "graphs").mkdir()
    for key, data in files.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")
    async with make_application(folder) as app:
        graph = app.graph("writer")
        waiting = await graph.run({}, "t", by=by)
        assert waiting.status == "waiting"
        done = await graph.answer("t", {"decision": "approve"})
        return (folder / "graphs" / "made.json").exists(), done.state["texts"][0]


@pytest.mark.parametrize(
    ("config", "writer", "word"),
    [
        ({**PLAIN, "tools": ["bash"]}, {}, "'shell'"),
        ({**GRAPH, "nodes": {"a": {"use": "tools", "with": {"tools": ["bash"]}, "next": "end"}}}, {}, "'shell'"),
        ({**GRAPH, "nodes": {"a": {"use": "tool:bash", "with": {"command": "ls"}, "next": "end"}}}, {}, "'shell'"),
        ({**GRAPH, "nodes": {"a": {"graph": "sheller", "next": "end"}}}, {}, "'shell'"),
        ({**PLAIN, "approval": "DISABLED"}, {}, "looser"),
        ({**PLAIN, "tools": ["http_request"]}, {"approval": "REQUIRE_APPROVAL"}, "looser"),
        (
            {**PLAIN, "tools": ["http_request"], "approval": {"http_request": "AUTO", "*": "REQUIRE_APPROVAL"}},
            {"approval": "REQUIRE_APPROVAL"},
            "looser",
        ),
        (
            {**PLAIN, "tools": ["http_request"], "approval": "REQUIRE_APPROVAL"},
            {"approval": {"http_request": {"count": 2}}},
            "looser",
        ),
    ],
)
async def test_a_file_that_grants_more_than_its_writer_has_is_not_written(
    tmp_path: Path, config: dict[str, Any], writer: dict[str, Any], word: str
) -> None:
    exists, text = await written(tmp_path, config, **writer)
    assert not exists
    assert "an agent grants only what it has" in text and word in text


async def test_what_the_starter_lacks_is_not_granted_either(tmp_path: Path) -> None:
    by = Person(name="ann", capabilities=("agents:write",))
    exists, text = await written(tmp_path, {**PLAIN, "tools": ["http_request"]}, by)
    assert not exists and "'net'" in text


async def test_what_the_writer_has_may_be_granted(tmp_path: Path) -> None:
    exists, text = await written(tmp_path, {**PLAIN, "tools": ["http_request", "city_datetime"]})
    assert exists, text


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("graphs/made.json", False),
        ("graphs/tools/mine.backend", False),
        ("graphs/deep/made.json", False),
        ("link.json", False),
        ("linked/made.json", False),
        ("mine.py", False),
        ("graphs/deeper", True),
    ],
)
def test_no_other_tool_writes_where_agents_and_tools_are(tmp_path: Path, path: str, folder: bool) -> None:
    (tmp_path / "graphs" / "tools").mkdir(parents=True)
    (tmp_path / "graphs" / "deep").mkdir()
    (tmp_path / "graphs" / "here.json").write_text("{}", encoding="utf-8")
    (tmp_path / "link.json").symlink_to(tmp_path / "graphs" / "here.json")
    (tmp_path / "linked").symlink_to(tmp_path / "graphs")
    settings = load_settings(tmp_path, environ={"GRAPHFLOW_TOOLS_MODULES": "mine"})
    files = Workspace(tmp_path, protected=ProtectedFiles.of(settings))
    with pytest.raises(FileRefused, match="says what agents may do"):
        files.make_folder(path) if folder else files.write(path, b"{}")
    with pytest.raises(FileRefused, match="says what agents may do"):
        files.delete("graphs", recursive=True)
    assert files.write("notes.json", b"{}")
    assert (tmp_path / "graphs" / "here.json").read_text(encoding="utf-8") == "{}"
