"""The tools that Python registers for an application: built-in ones, those of modules, and what the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from graphflow.agents.loader import LoadedAgent
from graphflow.settings import Settings
from graphflow.tools.builtin import BashPolicy, builtin_tools
from graphflow.tools.registry import ToolRegistry

Load = Callable[[Any], LoadedAgent]
"""Reads and checks an agent from a file, a text or data."""


def registered_tools(settings: Settings, more: Sequence[Any], *, load: Load) -> ToolRegistry:
    """All tools before the tool files.

    Args:
        settings: of the application.
        more: further tools, or plain functions.
        load: checks an agent that a tool is about to write.
    """
    bash = BashPolicy(
        working_directory=settings.bash.working_directory,
        allowed_paths=tuple(Path(path) for path in settings.bash.allowed_paths),
    )
    registry = ToolRegistry(builtins=builtin_tools(bash=bash))
    if settings.tools.modules:
        from graphflow.tools.modules import import_tools

        for tool in import_tools(settings.tools.modules, settings.folder):
            registry.register(tool)
    for tool in more:
        registry.register(tool)
    return registry
