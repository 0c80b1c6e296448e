"""`Glob`: the files below a folder whose paths fit a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from graphflow.tools.coding.file_tool import checked_path, coding_tool, existing, in_context, printable
from graphflow.tools.coding.search_parameters import (
    FOLDER,
    HIDDEN,
    IGNORED,
    counted,
    file_pattern,
    normalized,
    on_one_line,
)
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.search.file_walk import Looked, files_below, shown_prefix
from graphflow.tools.search.ignore_rules import IgnoreRules
from graphflow.tools.search.patterns import name_of_glob
from graphflow.tools.workspace import Workspace
from graphflow.tools.workspace.homes import Workspaces
from graphflow.tools.workspace.walking import Walk

DEFAULT_PATHS, MAX_PATHS = 50, 200
MAX_VISITED = 200_000
MAX_S = 2.0


def glob_tool(workspaces: Workspaces) -> Tool:
    """The tool `Glob` in the workspace of each thread."""
    return coding_tool(
        workspaces,
        _find,
        name="Glob",
        description="Finds files by a pattern of their path, for example src/**/*.py. A * stays in one name, ** stands for "
        "any number of folders. Links are not listed, nor what .gitignore hides.",
        properties={
            "pattern": {"type": "string", "description": "The pattern, from the folder that is searched"},
            "path": FOLDER,
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_PATHS,
                "description": f"Paths to return; default {DEFAULT_PATHS}",
            },
            "include_hidden": HIDDEN,
            "include_ignored": IGNORED,
        },
        required=("pattern",),
        effects="read",
    )


def _find(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
    pattern = normalized(arguments["pattern"])
    looked = Looked(
        pattern=file_pattern("pattern", pattern),
        name=name_of_glob(pattern),
        hidden=arguments.get("include_hidden", False),
        ignored=arguments.get("include_ignored", False),
    )
    path, limit = checked_path(arguments.get("path", ".")), arguments.get("limit", DEFAULT_PATHS)
    context = in_context(workspace, existing(workspace, path)) | {"pattern_normalized": pattern}
    with workspace.walk(path, max_entries=MAX_VISITED, max_s=MAX_S) as walk:
        files = files_below(walk, IgnoreRules(walk.read), looked)
        paths = [printable(shown_prefix(walk, workspace) + each) for each in islice(files, limit)]
        more = len(paths) == limit and next(files, None) is not None
    return _result(paths, walk, context, more=more)


def _result(paths: list[str], walk: Walk, context: dict[str, Any], *, more: bool) -> ToolResult:
    stats = {"matched": len(paths), "visited": walk.visited}
    stopped = f"stopped after {walk.visited:,} entries ({walk.aborted})"
    if walk.aborted and not paths:
        code = "TIMEOUT" if walk.aborted == "time_limit" else "INTERNAL_ERROR"
        return failed(
            code, f"the search was {stopped} and had found nothing", "Name a smaller folder as path.", context=context
        )
    data: dict[str, Any] = {"paths": paths}
    notes = [f"{counted(len(paths), 'file fits', 'files fit')} the pattern {context['pattern_normalized']!r}."]
    if more:
        notes.append("Truncated: there are more; raise limit, or use a narrower pattern or path.")
    if walk.aborted:
        data["aborted_reason"] = walk.aborted
        notes.append(f"Incomplete: the search was {stopped}; name a smaller folder as path.")
    if walk.skipped:
        notes.append(f"{counted(walk.skipped, 'folder', 'folders')} could not be listed.")
    if cut := more or walk.aborted is not None:
        data["truncated"] = True
    return ToolResult(
        status="partial" if cut else "success",
        data=data,
        text="\n".join([" ".join(notes), *map(on_one_line, paths)]),
        stats=stats,
        context=context,
    )
