"""The tools that Python registers for an application: built-in ones, those of modules, and what the caller gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from graphflow.service.catalog.agent_files import AgentFolder, CheckAgent, FindExcess
from graphflow.settings import Settings
from graphflow.tools.builtin import BashPolicy, HttpPolicy, builtin_tools
from graphflow.tools.builtin.agent_file import agent_file_tool
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.workspace import ProtectedFiles


def registered_tools(
    settings: Settings,
    more: Sequence[Any],
    *,
    check: CheckAgent,
    excess: FindExcess | None = None,
    memory: Sequence[Tool] = (),
    user_of: Callable[[str], Awaitable[str | None]] | None = None,
) -> ToolRegistry:
    """All tools before the tool files.

    Args:
        settings: of the application.
        more: further tools, or plain functions, of modules and of the caller.
        check: the loader, for a file that a tool is about to write.
        excess: what such an agent would grant beyond what its writer has.
        memory: the tools of the long-term store.
        user_of: the user of a thread, whose workspace its tools work in.
    """
    protected = ProtectedFiles.of(settings)
    bash = BashPolicy(
        working_directory=settings.bash.working_directory,
        allowed_paths=tuple(Path(path) for path in settings.bash.allowed_paths),
        protected=protected,
        sandbox=settings.bash.sandbox,
        allow_network=settings.bash.allow_network,
    )
    workspaces = bash.workspaces(
        users=settings.workspaces.dir, user_of=user_of, has_users=names_users(settings.server.tokens)
    )
    http = HttpPolicy(
        hosts=settings.http.hosts or None,  # an empty list is the default: any public host
        methods=settings.http.methods,
        private_hosts=settings.http.private_hosts,
        max_bytes=settings.http.max_bytes,
        timeout_s=settings.http.timeout_s,
    )
    limit = settings.bounds.document_bytes
    folder = AgentFolder(Path(settings.agents.dir), settings.folder, check, protected, excess, max_bytes=limit)
    registry = ToolRegistry(
        builtins=[*builtin_tools(bash=bash, http=http, workspaces=workspaces), agent_file_tool(folder), *memory]
    )
    if settings.mcp:
        from graphflow.tools.mcp.config import server_configs

        registry.servers = {name: config.capabilities for name, config in server_configs(settings).items()}
    # After the built-in ones: of a name that is used twice, the error then names the tool that was added.
    for tool in more:
        registry.register(tool)
    return registry


def names_users(tokens: Sequence[str]) -> bool:
    """Whether an entry of `server.tokens` names a user (`NAME@USER:SCOPES:SECRET`)."""
    return any("@" in entry.partition(":")[0] and entry.count(":") > 1 for entry in tokens)
