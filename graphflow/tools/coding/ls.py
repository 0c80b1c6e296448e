"""`LS`: one page of the entries of a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.tools.coding.file_tool import PATH, checked_path, coding_tool, existing, in_context, printable, resolved
from graphflow.tools.coding.search_parameters import HIDDEN, file_pattern, on_one_line
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult
from graphflow.tools.search.file_walk import IGNORED_FOLDERS
from graphflow.tools.workspace import FileRefused, Workspace
from graphflow.tools.workspace.homes import Workspaces

DEFAULT_ENTRIES, MAX_ENTRIES = 100, 200
MAX_PATTERNS = 50
MAX_LISTED = 1_000_000
"""Entries of a folder that are looked at."""


def ls_tool(workspaces: Workspaces) -> Tool:
    """The tool `LS` in the workspace of each thread."""
    return coding_tool(
        workspaces,
        _list,
        name="LS",
        description="Lists the entries of one folder: folders first, then by name. Hidden entries and folders such as "
        "node_modules are left out unless include_hidden is true.",
        properties={
            "path": PATH,
            "offset": {"type": "integer", "minimum": 0, "description": "Entries to skip; default 0"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_ENTRIES,
                "description": f"Entries to return; default {DEFAULT_ENTRIES}",
            },
            "include_hidden": HIDDEN,
            "ignore": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MAX_PATTERNS,
                "description": "Patterns of names to leave out, for example *.log",
            },
        },
        effects="read",
    )


def _list(workspace: Workspace, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
    path = checked_path(arguments.get("path", "."))
    found = existing(workspace, path)
    offset, limit = arguments.get("offset", 0), arguments.get("limit", DEFAULT_ENTRIES)
    ignored = [file_pattern("ignore", each) for each in arguments.get("ignore", ())]
    with workspace.walk(path, max_entries=MAX_LISTED) as walk:
        listing = walk.listing(walk.start)
    if listing is None:
        raise FileRefused("PERMISSION_DENIED", f"{path!r} may not be listed by the server's user")
    folders = _shown(listing.folders, ignored, hidden=arguments.get("include_hidden", False))
    others = _shown(
        [*listing.files, *listing.links, *listing.others], ignored, hidden=arguments.get("include_hidden", False)
    )
    links = frozenset(listing.links)
    page = [{"name": name, "type": "dir"} for name in folders[offset : offset + limit]]
    begin, room = max(offset - len(folders), 0), limit - len(page)
    page += [{"name": name, "type": "link" if name in links else "file"} for name in others[begin : begin + room]]
    prefix = resolved(workspace, found)
    prefix = "" if prefix == "." else f"{prefix}/"
    total = len(folders) + len(others)
    data: dict[str, Any] = {
        "entries": [{"path": prefix + printable(entry["name"]), "type": entry["type"]} for entry in page]
    }
    notes = [_counted(total, offset, len(page))]
    if more := offset + len(page) < total and bool(page):
        notes.append(f"Truncated: list on with offset={offset + len(page)}.")
    if walk.aborted:
        notes.append(f"The listing was stopped after {walk.visited:,} entries ({walk.aborted}); there are more.")
    if cut := more or walk.aborted is not None:
        data["truncated"] = True
    lines = [on_one_line(printable(entry["name"])) + ("/" if entry["type"] == "dir" else "") for entry in page]
    return ToolResult(
        status="partial" if cut else "success",
        data=data,
        text="\n".join([*notes, *lines]),
        stats={
            "total_entries": total,
            "dirs": len(folders),
            "files": len(others) - sum(name in links for name in others),
            "links": sum(name in links for name in others),
            "returned": len(page),
        },
        context=in_context(workspace, found),
    )


def _shown(names: list[str], ignored: Sequence[re.Pattern[str]], *, hidden: bool) -> list[str]:
    """The names that are listed, in the order of a listing: whatever their case, and always the same."""
    if not hidden:
        names = [name for name in names if name[0] != "." and name not in IGNORED_FOLDERS]
    if ignored:
        names = [name for name in names if not any(pattern.fullmatch(name) for pattern in ignored)]
    names.sort()
    names.sort(key=str.casefold)
    return names


def _counted(total: int, offset: int, returned: int) -> str:
    if not returned:
        return (
            f"No entries from offset {offset} on: the folder has {total:,}." if total else "The folder has no entries."
        )
    return f"Entries {offset + 1} to {offset + returned} of {total:,}:"
