"""The tools that Python registers for an application: built-in ones, those of modules, and what the caller gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphflow.service.catalog.agent_files import AgentFolder, LoadAgent
from graphflow.settings import Settings
from graphflow.tools.builtin import BashPolicy, HttpPolicy, builtin_tools
from graphflow.tools.builtin.agent_file import agent_file_tool
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry


def registered_tools(
    settings: Settings, more: Sequence[Any], *, load: LoadAgent, memory: Sequence[Tool] = ()
) -> ToolRegistry:
    """All tools before the tool files.

    Args:
        settings: of the application.
        more: further tools, or plain functions, of modules and of the caller.
        load: checks an agent that a tool is about to write.
        memory: the tools of the long-term store.
    """
    bash = BashPolicy(
        working_directory=settings.bash.working_directory,
        allowed_paths=tuple(Path(path) for path in settings.bash.allowed_paths),
    )
    http = HttpPolicy(
        hosts=settings.http.hosts or None,  # an empty list is the default: any public host
        methods=settings.http.methods,
        private_hosts=settings.http.private_hosts,
        max_bytes=settings.http.max_bytes,
        timeout_s=settings.http.timeout_s,
    )
    folder = AgentFolder(Path(settings.agents.dir), settings.folder, load)
    registry = ToolRegistry(builtins=[*builtin_tools(bash=bash, http=http), agent_file_tool(folder), *memory])
    # After the built-in ones: of a name that is used twice, the error then names the tool that was added.
    for tool in more:
        registry.register(tool)
    return registry
