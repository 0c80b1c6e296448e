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


NESTED: Any = 1
for _ in range(120):
    NESTED = {"a": NESTED}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        pytest.param({"description": "x" * 66_000}, "bounds.document_bytes", id="size"),
        pytest.param({"options": NESTED}, "nested deeper", id="depth"),
        pytest.param({"key": "another"}, "differs from the file's name", id="key"),
        pytest.param({"description": "a\ud800b"}, "ud800", id="lone surrogate"),
        pytest.param({"options": {"seed": 2**70}}, "", id="number"),
        pytest.param({"tools": ["bash", "bash"]}, "listed twice", id="names"),
        pytest.param({"tools": [f"tool_{n}" for n in range(100)]}, "no tool is named", id="many errors"),
    ],
)
async def test_what_is_written_is_what_the_loader_accepts(
    open_application: Opened, folder: Path, config: Any, word: str
):
    """Every limit of a file holds before it is written: the loader is given the very bytes."""
    app = await open_application(environ={"GRAPHFLOW_BOUNDS_DOCUMENT_BYTES": "65536"})
    approved = FakeContext({"approval:call-1": {"decision": "approve"}})
    arguments = {"agentId": "made", "mode": "REACT", "systemPrompt": "Work.", "config": config}
    result = await app.runner.run(call("agent_file_create", json.dumps(arguments)), approved)
    app.agents.reload()
    assert [refused.key for refused in app.agents.invalid()] == []
    if (folder / "graphs" / "made.json").exists():
        assert result.ok and app.agents.get("made").key == "made"
    else:
        assert result.error is not None and result.error.code == "INVALID_PARAM"
        assert word in result.text


async def test_an_agent_that_comes_to_contain_itself_is_not_written(create: Any, folder: Path):
    app, run = create
    graph = {"graphflow": "1", "start": "a", "nodes": {"a": {"ask": {"message": "?"}, "next": "end"}}}
    assert (await run(agentId="made", config=graph)).ok
    app.agents.reload()
    again = {**graph, "nodes": {"a": {"graph": "made", "next": "end"}}}
    result = await run(agentId="made", config=again)
    assert result.error is not None and "part of itself" in result.text
    assert written(folder, "made") == graph


def writer(key: str, config: dict[str, Any]) -> dict[str, Any]:
    """An agent whose one call writes the agent `key`."""
    made = {"id": "call-1", "name": "agent_file_create", "arguments": {"agentId": key, "config": config}}
    calls = {"use": "tools", "with": {"calls": [made]}, "next": "end"}
    return {"graphflow": "1", "start": "a", "tools": ["agent_file_create"], "nodes": {"a": calls}}


class Writers:
    """Two agents that write `made`, in one application after another over the same folder."""

    def __init__(self, folder: Path, open_application: Opened) -> None:
        self.folder, self.made, self._open = folder, folder / "graphs" / "made.json", open_application
        for key, prompt in (("one", "Work."), ("two", "Rest.")):
            document = writer("made", {"mode": "PLAIN", "plain": {"systemPrompt": prompt}})
            (folder / "graphs" / f"{key}.json").write_text(json.dumps(document), encoding="utf-8")

    async def asked(self, key: str, thread_id: str) -> tuple[Any, str]:
        """The graph, in a process of its own, and the question that it asks."""
        app = await self._open()
        graph = app.graph(key)
        waits = await graph.run({}, thread_id)
        return graph, waits.interrupts[0].payload["message"]

    async def written(self, key: str, thread_id: str) -> str:
        graph, message = await self.asked(key, thread_id)
        done = await graph.answer(thread_id, {"decision": "approve"})
        assert done.status == "completed"
        return message


WARNED = "It replaces graphs/made.json, a file that this agent did not make."


async def test_the_question_says_when_a_file_is_replaced_that_the_agent_did_not_make(
    open_application: Opened, folder: Path
):
    """Over restarts: each write has an application of its own."""
    writers = Writers(folder, open_application)
    assert WARNED not in await writers.written("one", "t1")  # there is none yet
    text = writers.made.read_text(encoding="utf-8")
    assert "one" not in text and "author" not in text
    assert WARNED not in await writers.written("one", "t2")  # it made it itself
    assert WARNED in await writers.written("two", "t3")
    assert WARNED in await writers.written("one", "t4")
    writers.made.write_text(text.replace("Work.", "Work well."), encoding="utf-8")
    assert WARNED in await writers.written("one", "t5")  # a person has changed it since
    author = folder / "graphs" / ".authors" / "made.json"
    author.write_text("damaged", encoding="utf-8")
    assert WARNED in await writers.written("one", "t6")


@pytest.mark.parametrize("restart", [False, True])
async def test_a_file_that_appears_while_the_question_is_open_is_asked_about_again(
    open_application: Opened, folder: Path, restart: bool
):
    writers = Writers(folder, open_application)
    graph, message = await writers.asked("one", "t")
    assert WARNED not in message
    writers.made.write_text('{"mode": "PLAIN", "plain": {"systemPrompt": "Mine."}}', encoding="utf-8")
    if restart:
        graph = (await open_application()).graph("one")
    again = await graph.answer("t", {"decision": "approve"})
    assert again.status == "waiting" and WARNED in again.interrupts[0].payload["message"]
    assert "Mine." in writers.made.read_text(encoding="utf-8")
    done = await graph.answer("t", {"decision": "approve"})
    assert done.status == "completed" and "Work." in writers.made.read_text(encoding="utf-8")


async def test_arguments_that_come_to_name_another_file_are_asked_about_again(open_application: Opened, folder: Path):
    writers = Writers(folder, open_application)
    graph, _ = await writers.asked("one", "t")
    other = folder / "graphs" / "other.json"
    other.write_text('{"mode": "PLAIN", "plain": {"systemPrompt": "Mine."}}', encoding="utf-8")
    config = {"mode": "PLAIN", "plain": {"systemPrompt": "Work."}}
    again = await graph.answer("t", {"decision": "edit", "arguments": {"agentId": "other", "config": config}})
    assert again.status == "waiting"
    assert "It replaces graphs/other.json" in again.interrupts[0].payload["message"]
    assert (await graph.answer("t", {"decision": "reject", "reason": "mine"})).status == "completed"
    assert "Mine." in other.read_text(encoding="utf-8")


async def test_a_link_that_leads_out_of_the_folder_is_not_followed(create: Any, folder: Path):
    _, run = create
    outside = folder / "outside.json"
    outside.write_text("{}", encoding="utf-8")
    (folder / "graphs" / "linked.json").symlink_to(outside)
    result = await run(agentId="linked", systemPrompt="x")
    assert result.error is not None
    assert outside.read_text(encoding="utf-8") == "{}"
