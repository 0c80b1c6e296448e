"""An agent that uses a server of somebody else over stdio."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphflow.errors import DefinitionError
from graphflow.events import ToolStart
from graphflow.messages import AIMessage, ToolMessage
from tests.mcp.folders import PATIENCE, TIME, called, mcp_folder, opened, react

ASKED = called("time__get_current_time", timezone="Asia/Tokyo")


@pytest.mark.parametrize("named", ["mcp:time", "time.get_current_time"])
async def test_an_agent_calls_a_tool_of_a_server(tmp_path: Path, named: str) -> None:
    mcp_folder(tmp_path, TIME + PATIENCE, clock=react(named))
    async with opened(tmp_path) as app:
        graph = await app.ready_graph("clock")
        events = [event async for event in graph.stream(ASKED, "t1")]
        state = (await graph.thread("t1").state()).values

    (call,) = [m.tool_calls[0] for m in state["messages"] if isinstance(m, AIMessage) and m.tool_calls]
    (result,) = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    assert (call.name, result.name, result.error) == ("time.get_current_time", "time.get_current_time", False)
    assert "Asia/Tokyo" in result.text
    assert [event.tool_name for event in events if isinstance(event, ToolStart)] == ["time.get_current_time"]


async def test_what_a_server_refuses_is_an_error_result(tmp_path: Path) -> None:
    mcp_folder(tmp_path, TIME + PATIENCE, clock=react("mcp:time"))
    async with opened(tmp_path) as app:
        graph = await app.ready_graph("clock")
        done = await graph.run(called("time__get_current_time", timezone="Moon/Sea"), "t1")
    (result,) = [m for m in done.state["messages"] if isinstance(m, ToolMessage)]
    assert result.error
    assert "Moon/Sea" in result.text


@pytest.mark.parametrize(
    ("toml", "tool", "message"),
    [
        (TIME, "mcp:tine", "no tool is named 'mcp:tine'"),
        (TIME + "enabled = false\n", "mcp:time", "no tool is named 'mcp:time'"),
    ],
)
async def test_an_agent_that_names_no_configured_server_is_refused(
    tmp_path: Path, toml: str, tool: str, message: str
) -> None:
    async with opened(mcp_folder(tmp_path, toml, clock=react(tool))) as app:
        (refused,) = app.agents.invalid()
    assert message in refused.errors[0].message


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[mcp.time]\nurl = 'ftp://x'\n", "no http:// or https:// URL"),
        ("[mcp.time]\ntransport = 'stdio'\n", "needs `command`"),
        ("[mcp.agent]\ncommand = 'x'\n", "'agent' can't name an MCP server"),
        ("[mcp.time]\ncommand = 'x'\neffects = 'reads'\n", "effects is 'reads'"),
        ("[mcp.time]\ncommand = 'x'\ncapabilities = ['fly']\n", "names what there is not"),
    ],
)
def test_wrong_settings_of_a_server_are_errors_with_their_place(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        opened(mcp_folder(tmp_path, toml))
    assert message in str(refused.value)
    assert refused.value.errors[0].pointer.startswith("/mcp/")


def test_a_server_without_the_extra_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(DefinitionError, match=r"pip install 'graphflow\[mcp\]'") as refused:
        opened(mcp_folder(tmp_path, TIME))
    assert len(refused.value.errors) == 1


def run_python(code: str, folder: Path) -> Any:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_sdk_leaves_the_end_of_the_web_server_as_it_is(tmp_path: Path) -> None:
    code = (
        "import uvicorn; before = uvicorn.Server.handle_exit\n"
        "from graphflow.tools.mcp.sdk import sdk; sdk()\n"
        "print(uvicorn.Server.handle_exit is before)"
    )
    assert run_python(code, tmp_path) == "True"


def test_a_process_without_servers_loads_nothing_of_them(tmp_path: Path) -> None:
    mcp_folder(tmp_path, "", plain={"mode": "PLAIN", "plain": {"systemPrompt": "Answer."}})
    code = (
        "import asyncio, os, sys\n"
        "os.environ['LLM_PROVIDER'] = 'scripted'\n"
        "from graphflow.service.application import Application\n"
        "async def main():\n"
        "    async with Application() as app:\n"
        "        await (await app.ready_graph('plain')).run('hello', 't1')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'mcp' or name.startswith('graphflow.tools.mcp')])"
    )
    assert run_python(code, tmp_path).splitlines()[-1] == "[]"
