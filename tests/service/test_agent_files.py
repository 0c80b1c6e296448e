"""`agent_file_create`: a model makes an agent, checked, atomic and inside the agents' folder (spec 8.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphflow.tools.port import ToolResult
from tests.service.conftest import Opened
from tests.tools.fakes import FakeContext, call


@pytest.fixture
async def create(open_application: Opened):
    app = await open_application()

    async def run(**arguments: Any) -> ToolResult:
        approved = FakeContext({"approval:call-1": {"decision": "approve"}})
        return await app.runner.run(call("agent_file_create", arguments), approved)

    return app, run


def written(folder: Path, key: str) -> Any:
    return json.loads((folder / "graphs" / f"{key}.json").read_text(encoding="utf-8"))


async def test_a_new_agent_is_written_loaded_and_told_in_full(create: Any, folder: Path):
    app, run = create
    result = await run(agentId="haiku", mode="PLAIN", name="Haiku", systemPrompt="Write haiku.")
    config = {"mode": "PLAIN", "name": "Haiku", "providerKey": "auto", "plain": {"systemPrompt": "Write haiku."}}
    assert result.data == {
        "ok": True,
        "created": True,
        "updated": False,
        "agentId": "haiku",
        "file": "graphs/haiku.json",
        "config": config,
    }
    assert written(folder, "haiku") == config
    app.agents.reload()
    assert app.agents.get("haiku").name == "Haiku"
    again = await run(agentId="haiku", systemPrompt="Write short haiku.")
    assert (again.data["created"], again.data["updated"]) == (False, True)
    assert written(folder, "haiku")["plain"] == {"systemPrompt": "Write short haiku."}
    assert [file.name for file in (folder / "graphs").iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "REACT", "tools": ["city_datetime"], "systemPrompt": "Work.", "maxRounds": 3},
        {"tools": ["city_datetime"], "react": {"systemPrompt": "Work.", "maxRounds": 3}},
        {"config": {"tools": ["city_datetime"], "react": {"maxRounds": 3}}, "mode": "REACT", "systemPrompt": "Work."},
        {"config": {"mode": "react", "tools": ["city_datetime"], "systemPrompt": "Work.", "react": {"maxRounds": 3}}},
    ],
)
async def test_prompts_may_stand_flat_in_their_block_or_in_config(create: Any, folder: Path, arguments: Any):
    _, run = create
    assert (await run(agentId="made", **arguments)).ok
    assert written(folder, "made")["react"] == {"systemPrompt": "Work.", "maxRounds": 3}
    assert written(folder, "made")["providerKey"] == "auto"


@pytest.mark.parametrize("agent_id", ["", "../out", "a/b", "a.b", "a b", "x" * 65, "ä"])
async def test_an_id_that_is_none_writes_nothing(create: Any, folder: Path, agent_id: str):
    _, run = create
    before = sorted(path.name for path in folder.rglob("*.json"))
    result = await run(agentId=agent_id, systemPrompt="x")
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"
    assert sorted(path.name for path in folder.rglob("*.json")) == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"mode": "PLAIN"}, "plain"),
        ({"mode": "NONSENSE", "systemPrompt": "x"}, "mode"),
        ({"systemPrompt": "x", "tools": ["no_such_tool"]}, "no_such_tool"),
        ({"systemPrompt": "x", "config": {"nonsense": 1}}, "nonsense"),
    ],
)
async def test_what_the_loader_refuses_is_not_written_and_its_errors_are_told(
    create: Any, folder: Path, arguments: Any, word: str
):
    _, run = create
    result = await run(agentId="broken", **arguments)
    assert result.error is not None
    assert word in result.text
    assert not (folder / "graphs" / "broken.json").exists()


async def test_a_link_that_leads_out_of_the_folder_is_not_followed(create: Any, folder: Path):
    _, run = create
    outside = folder / "outside.json"
    outside.write_text("{}", encoding="utf-8")
    (folder / "graphs" / "linked.json").symlink_to(outside)
    result = await run(agentId="linked", systemPrompt="x")
    assert result.error is not None
    assert outside.read_text(encoding="utf-8") == "{}"
