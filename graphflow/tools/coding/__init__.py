"""The coding tools: they look at and change files in the workspace of the thread, through the file port only.

Every answer is the whole envelope, as the model gets it.
"""

from __future__ import annotations

from graphflow.tools.coding.change import restore_tool
from graphflow.tools.coding.edit import edit_tools
from graphflow.tools.coding.glob import glob_tool
from graphflow.tools.coding.grep import grep_tool
from graphflow.tools.coding.ls import ls_tool
from graphflow.tools.coding.read import read_tool
from graphflow.tools.coding.todo import todo_tool
from graphflow.tools.coding.write import write_tool
from graphflow.tools.port import Tool
from graphflow.tools.workspace.homes import Workspaces


def coding_tools(workspaces: Workspaces) -> list[Tool]:
    """The coding tools, by their names.

    Args:
        workspaces: the workspace of each thread.
    """
    return [
        ls_tool(workspaces),
        glob_tool(workspaces),
        grep_tool(workspaces),
        read_tool(workspaces),
        write_tool(workspaces),
        *edit_tools(workspaces),
        restore_tool(workspaces),
        todo_tool(workspaces),
    ]


__all__ = ["coding_tools"]
