"""Folders with MCP servers in their settings, and agents that use them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphflow.service.application import Application
from graphflow.settings import load_settings

PYTHON = json.dumps(sys.executable)
TIME = f'[mcp.time]\ncommand = {PYTHON}\nargs = ["-m", "mcp_server_time", "--local-timezone", "UTC"]\n'
SERVERS = Path(__file__).with_name("served")
PATIENCE = "connectTimeoutMs = 600000\n"
"""A machine under load takes its time to start a program."""


def own_server(name: str, *args: str) -> str:
    """A server of `tests/mcp/served`, as settings."""
    listed = json.dumps([str(SERVERS / f"{name}.py"), *args])
    return f"[mcp.{name}]\ncommand = {PYTHON}\nargs = {listed}\n{PATIENCE}"


def mcp_folder(folder: Path, toml: str, **agents: Mapping[str, Any]) -> Path:
    """A folder with these settings and agents."""
    (folder / "graphs").mkdir(exist_ok=True)
    (folder / "graphflow.toml").write_text(toml, encoding="utf-8")
    for key, agent in agents.items():
        (folder / "graphs" / f"{key}.json").write_text(json.dumps(agent), encoding="utf-8")
    return folder


def react(*tools: str, **fields: Any) -> dict[str, Any]:
    """A REACT agent with these tools."""
    return {
        "mode": "REACT",
        "tools": list(tools),
        "react": {"systemPrompt": "Use the tools.", "maxRounds": 4},
        **fields,
    }


def opened(folder: Path, **options: Any) -> Application:
    """The application of a folder, with the scripted model."""
    return Application(load_settings(folder, environ={"LLM_PROVIDER": "scripted"}), **options)


def called(tool: str, **arguments: Any) -> str:
    """A question that makes the scripted model call the tool."""
    return f"Call {tool} {json.dumps(arguments)}"
