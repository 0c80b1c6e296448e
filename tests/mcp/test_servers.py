"""What becomes of servers that break rules, die, hang or are not there: it costs their own tools only."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import DefinitionError
from graphflow.messages import ToolMessage
from graphflow.service.application import Application
from graphflow.service.catalog.tools import tools as listed_tools
from graphflow.settings import load_settings
from tests.mcp.folders import called, mcp_folder, opened, own_server, react
from tests.patience import PATIENCE_S

AGENT = react("mcp:plain")


def folder_with(tmp_path: Path, more: str = "", agent: Any = AGENT) -> Path:
    return mcp_folder(tmp_path, own_server("plain", str(tmp_path)) + more, asker=agent)


async def result_of(app: Application, tool: str, thread: str = "t1", **arguments: Any) -> ToolMessage:
    graph = await app.ready_graph("asker")
    done = await graph.run(called(f"plain__{tool}", **arguments), thread)
    assert done.status == "completed", done
    return next(m for m in reversed(done.state["messages"]) if isinstance(m, ToolMessage))


def lines(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


async def until(folder: Path, name: str, count: int = 1) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        while len(found := lines(folder, name)) < count:
            await asyncio.sleep(0.01)
    return found


async def test_one_tool_with_a_broken_schema_costs_no_other(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path)) as app:
        assert "hello" in (await result_of(app, "echo", text="hello")).text
        names = app.tools.of_server("plain")
        assert app.mcp is not None
        (status,) = app.mcp.status()
        assert "nothing" in (await result_of(app, "empty", "t2")).text
    assert {"plain.echo", "plain.empty"} <= set(names)
    assert {"plain.broken", "plain.no schema"}.isdisjoint(names)
    assert len(status["skipped"]) == 2 and "'broken'" in status["skipped"][0]


async def test_a_server_that_was_killed_is_started_again_for_the_next_call(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path)) as app:
        await result_of(app, "echo", text="1")
        os.kill(int(lines(tmp_path, "starts")[0]), signal.SIGKILL)
        assert app.mcp is not None
        async with asyncio.timeout(PATIENCE_S):
            while app.mcp.status()[0]["state"] == "ready":
                await asyncio.sleep(0.01)
        assert not (await result_of(app, "echo", "t2", text="2")).error
    assert len(lines(tmp_path, "starts")) == 2


async def test_a_read_whose_server_dies_in_the_call_is_sent_once_more(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path, 'effects = "read"\n')) as app:
        result = await result_of(app, "die", text="x")
    assert result.error
    assert lines(tmp_path, "deaths") == ["x", "x"]


async def test_a_write_whose_server_dies_in_the_call_is_not_repeated_and_a_person_is_asked(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path)) as app:
        graph = await app.ready_graph("asker")
        done = await graph.run(called("plain__die", text="x"), "t1")
        assert done.status == "failed"
        asked = await graph.resume("t1")
        assert [question.kind for question in asked.interrupts] == ["outcome_unknown"]
    assert lines(tmp_path, "deaths") == ["x"]


async def test_a_call_beyond_the_time_limit_is_cancelled_at_the_server_which_goes_on(tmp_path: Path) -> None:
    more = 'effects = "read"\ntimeoutMs = 1500\n'
    async with opened(folder_with(tmp_path, more)) as app:
        await result_of(app, "echo", text="warm")
        result = await result_of(app, "hang", "t2", text="x")
        assert result.error and "1.5 s" in result.text
        await until(tmp_path, "cancelled")
        assert not (await result_of(app, "echo", "t3", text="still here")).error
    assert len(lines(tmp_path, "starts")) == 1


async def test_cancelling_a_run_cancels_its_call_at_the_server(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path, 'effects = "read"\n')) as app:
        graph = await app.ready_graph("asker")
        run = asyncio.create_task(graph.run(called("plain__hang", text="x"), "t1"))  # noqa: TID251 - awaited below
        await until(tmp_path, "hanging")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert await until(tmp_path, "cancelled")


async def test_a_server_that_is_not_there_costs_its_own_tools_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = '[mcp.gone]\ncommand = "no-such-command"\n'
    agent = react("plain.echo", "gone.look", "mcp:gone")
    async with opened(folder_with(tmp_path, more, agent)) as app:
        assert not (await result_of(app, "echo", text="hello")).error
        found = next(line for line in listed_tools(app) if line["name"] == "mcp:gone")
        (loaded,) = app.agents.list()
        missing = await result_of(app, "echo", "t2", text="hello")
    assert "there is no command 'no-such-command'" in found["invalid"]["message"]
    assert [w.pointer for w in loaded.warnings] == ["/tools/1", "/tools/2"]
    assert all("'gone' can't be reached" in w.message for w in loaded.warnings)
    assert any("MCP server gone can't be used" in record.getMessage() for record in caplog.records)
    assert not missing.error


async def test_a_program_that_is_no_server_holds_up_no_run_for_long(tmp_path: Path) -> None:
    more = '[mcp.mute]\ncommand = "sleep"\nargs = ["600"]\nconnectTimeoutMs = 200\n'
    agent = react("mcp:plain", "mcp:mute")
    async with opened(folder_with(tmp_path, more, agent)) as app:
        assert not (await result_of(app, "echo", text="hello")).error
        assert app.mcp is not None
        states = {status["name"]: status["state"] for status in app.mcp.status()}
    assert states == {"plain": "ready", "mute": "connecting"}


async def test_secrets_reach_the_server_by_name_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = 'env = {KEY = "${MY_KEY}", OTHER = "${NOT_SET:-plain text}"}\n'
    environ = {"LLM_PROVIDER": "scripted", "MY_KEY": "secret-word"}
    folder_with(tmp_path, env)
    settings = load_settings(tmp_path, environ=environ)
    async with Application(settings) as app:
        said = await result_of(app, "environ")
    assert json.loads(said.text) == {"KEY": "secret-word", "OTHER": "plain text"}
    toml = own_server("plain", str(tmp_path), "--die-at-once") + env
    async with Application(load_settings(mcp_folder(tmp_path, toml, asker=AGENT), environ=environ)) as app:
        await app.ready_graph("asker")
        assert app.mcp is not None
        (status,) = app.mcp.status()
    assert "the key *** is wrong" in status["error"]
    assert "secret-word" not in f"{settings}{status}{caplog.text}"


async def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path, 'env = {KEY = "${MY_KEY}"}\n')) as app:
        await app.ready_graph("asker")
        assert app.mcp is not None
        (status,) = app.mcp.status()
    assert "the environment variable 'MY_KEY' is not set" in status["error"]


def test_servers_of_other_files_are_read_and_graphflow_toml_has_the_last_word(tmp_path: Path) -> None:
    others = {"a": {"command": "of-file", "alwaysAllow": []}, "b": {"type": "streamable-http", "url": "https://b"}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": others}), encoding="utf-8")
    mcp_folder(tmp_path, '[mcp.c]\ncommand = "of-toml"\n')
    variable = json.dumps({"b": {"command": "of-variable", "disabled": True}, "c": {"command": "of-variable"}})
    settings = load_settings(tmp_path, environ={"MCP_SERVERS": variable})
    assert settings.mcp == {
        "a": {"command": "of-file"},
        "b": {"command": "of-variable", "enabled": False},
        "c": {"command": "of-toml"},
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"a": {"command": 5}}'])
def test_servers_that_are_written_wrongly_are_errors_without_their_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load_settings(tmp_path, environ={"MCP_SERVERS": text})
    assert refused.value.errors[0].file == "MCP_SERVERS"
