"""A run keeps the tools that it was begun with; what a server changes is for the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import GraphflowError
from graphflow.messages import ToolMessage
from graphflow.service.application import Application
from graphflow.tools.running.policy import ANY_TOOL
from tests.mcp.folders import called, mcp_folder, opened, own_server, react
from tests.tools.fakes import FakeContext, call

AGENT = react("mcp:plain", approval={"plain.note": "REQUIRE_APPROVAL", "*": "DISABLED"})


def folder_with(tmp_path: Path, agent: Any = AGENT) -> Path:
    return mcp_folder(tmp_path, own_server("plain", str(tmp_path)), asker=agent)


def results(done: Any) -> list[ToolMessage]:
    return [m for m in done.state["messages"] if isinstance(m, ToolMessage)]


async def asked(app: Application, tool: str, thread: str, **arguments: Any) -> Any:
    return await (await app.ready_graph("asker")).run(called(f"plain__{tool}", **arguments), thread)


async def test_a_changed_list_is_for_the_next_run_and_leaves_the_version_of_the_agent(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path)) as app:
        version = app.graph("asker").version
        assert "plain.later" not in app.tools
        assert results(await asked(app, "grow", "t1", text="new"))[0].text == "grown"
        (later,) = results(await asked(app, "later", "t2", text="hello"))
        assert (later.text, app.tools.require("plain.later").description) == ("hello", "new")
        assert app.graph("asker").version == version


async def test_a_tool_that_vanished_is_an_error_result_instead_of_a_failed_run(tmp_path: Path) -> None:
    agent = react("plain.echo", "plain.vanish", approval="DISABLED")
    async with opened(folder_with(tmp_path, agent)) as app:
        begun = (await app.ready_graph("asker")).host.services["tool"]
        assert "plain.echo" in begun.registry
        await asked(app, "vanish", "t1")
        await app.ready_graph("asker")
        assert "plain.echo" in begun.registry  # what has begun keeps its tools
        gone = await app.runner.run(call("plain.echo", {"text": "hello"}), FakeContext(), policy=ANY_TOOL)
    assert gone.error is not None
    assert "the MCP server 'plain' does not offer it now" in gone.text


async def test_a_waiting_run_goes_on_after_a_restart_with_the_tools_that_were_recorded(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    async with opened(folder) as app:
        waiting = await asked(app, "note", "t1", text="once")
        assert waiting.status == "waiting"
        offered = (await app.ready_graph("asker")).host.services["offered"]
    # The server has no such tool any more when the process is started again.
    program = folder / "plain.py"
    source = Path(__file__).with_name("served") / "plain.py"
    program.write_text(source.read_text(encoding="utf-8").replace('{"name": "note",', '{"name": "other",'), "utf-8")
    toml = own_server("plain", str(tmp_path)).replace(str(source), str(program))
    async with opened(mcp_folder(folder, toml, asker=AGENT)) as app:
        await app.ready_graph("asker")
        assert "plain.note" not in app.tools
        graph = await app.graph_of_thread("t1")
        assert graph.host.services["offered"].digest == offered.digest
        done = await graph.answer("t1", {"decision": "approve"})
    (result,) = results(done)
    assert (result.name, result.text) == ("plain.note", "noted")
    assert (tmp_path / "notes").read_text(encoding="utf-8") == "once\n"


async def test_a_standing_allow_holds_for_the_description_that_its_maker_saw(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path)) as app:
        await app.ready_graph("asker")
        await app.rules.add(tool="plain.note", decision="allow")
        assert (await asked(app, "note", "t1", text="1")).status == "completed"
    program = tmp_path / "plain.py"
    source = Path(__file__).with_name("served") / "plain.py"
    program.write_text(source.read_text(encoding="utf-8").replace("Writes the text down.", "Sends it to all."), "utf-8")
    toml = own_server("plain", str(tmp_path)).replace(str(source), str(program))
    async with opened(mcp_folder(tmp_path, toml, asker=AGENT)) as app:
        assert (await asked(app, "note", "t2", text="2")).status == "waiting"


async def test_a_rule_may_name_a_tool_whose_server_was_not_asked_yet(tmp_path: Path) -> None:
    async with opened(folder_with(tmp_path)) as app:
        assert (await app.rules.add(tool="plain.note", decision="allow")).fingerprint
        assert (await app.rules.add(tool="plain.unknown", decision="deny")).fingerprint is None
        with pytest.raises(GraphflowError, match="does not offer 'plain.unknown' now"):
            await app.rules.add(tool="plain.unknown", decision="allow")


async def test_the_servers_of_an_agent_that_another_one_calls_are_asked_too(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    mcp_folder(folder, own_server("plain", str(tmp_path)), caller=react("agent:asker"))
    async with opened(folder) as app:
        offered = (await app.ready_graph("caller")).host.services["offered"]
    assert list(offered.lists) == ["plain"] and offered.lists["plain"]
