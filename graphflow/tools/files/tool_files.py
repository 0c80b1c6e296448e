"""Tool files: `graphs/tools/*` with the suffixes `.backend .action .html .qlc .dqlc` (spec 8.1).

A `.backend` file describes or overrides the Python tool of that name; an `.action` makes a tool whose work the client
does; the others make frontend tools, which wait for what a person submits. A broken file or entry is reported and
everything else stays. Of a name that stands twice neither counts, and both are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

from graphflow.authored_files import MAX_BYTES, read_authored
from graphflow.errors import Issue
from graphflow.tools.files.tool_file_parser import (
    FIELDS,
    KINDS,
    InvalidTool,
    ToolFile,
    ToolFileEntry,
    invalid_tool,
    read_tool_file,
)
from graphflow.tools.frontend_body import FrontendBody
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.signature import OPEN_PARAMETERS

SUFFIXES = tuple(KINDS)


@dataclass(frozen=True, kw_only=True)
class ToolFiles:
    """The tools of a folder of tool files, and their errors."""

    files: Mapping[str, ToolFile] = field(default_factory=lambda: MappingProxyType({}))
    """By file name."""
    tools: tuple[Tool, ...] = ()
    """Changed backend tools, actions and frontend tools; lay them over a registry with `registry.overlaid(tools)`."""
    invalid: tuple[InvalidTool, ...] = ()

    @property
    def errors(self) -> tuple[Issue, ...]:
        """All errors, in the order of the files."""
        return tuple(issue for refused in self.invalid for issue in refused.errors)


def load_tool_files(folder: Path, registry: ToolRegistry) -> ToolFiles:
    """The tools of a folder's files, in the order of file names; a folder that does not exist has none.

    Args:
        folder: with the files directly in it.
        registry: the Python tools, which `.backend` entries describe.
    """
    return next_tool_files(ToolFiles(), folder, read_folder(folder, SUFFIXES), registry)


def read_folder(folder: Path, suffixes: tuple[str, ...], max_bytes: int = MAX_BYTES) -> dict[str, bytes | str]:
    """File name → the file's bytes, or why it can't be read; hidden files are skipped."""
    try:
        found = sorted(file for file in folder.glob("[!.]*") if file.suffix in suffixes and not file.is_dir())
    except OSError:
        return {}
    # All contents before anything is parsed: the table is made of one look at the folder.
    return {file.name: _content(file, max_bytes) for file in found}


def _content(file: Path, max_bytes: int) -> bytes | str:
    try:
        return read_authored(file, max_bytes)
    # Without the path, which the error of the file names anyway.
    except OSError as error:
        return error.strerror or type(error).__name__


def next_tool_files(
    old: ToolFiles, folder: Path, contents: Mapping[str, bytes | str], registry: ToolRegistry
) -> ToolFiles:
    """The table after some files changed; for a broken entry the version in `old` stays active.

    Args:
        old: the active table.
        folder: the folder of the files.
        contents: every file of the folder now.
        registry: the Python tools.
    """
    files: dict[str, ToolFile] = {}
    for name, content in contents.items():
        before = old.files.get(name)
        same = before is not None and before.content == content
        # An unchanged file is not parsed again: the folder is read every second or so.
        files[name] = before if before is not None and same else read_tool_file(str(folder / name), content, before)
    invalid = [refused for file in files.values() for refused in file.invalid]
    tools = []
    for entry in _single([entry for file in files.values() for entry in file.entries], invalid):
        if registry.gone(entry.name) is not None:
            continue  # described once its server offers it
        if (issue := _misfit(entry, registry)) is None:
            tools.append(_made(entry, registry))
        else:
            invalid.append(invalid_tool(entry, issue))
    return ToolFiles(files=MappingProxyType(files), tools=tuple(tools), invalid=tuple(invalid))


def _single(entries: list[ToolFileEntry], invalid: list[InvalidTool]) -> Iterator[ToolFileEntry]:
    """The entries with a unique name. Duplicates are all rejected: choosing one would depend on the order of files."""
    by_name: dict[str, list[ToolFileEntry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    for name, same in by_name.items():
        if len(same) == 1:
            yield same[0]
            continue
        places = " and ".join(f"{PurePath(entry.file).name}{entry.pointer}" for entry in same)
        message = f"tool {name!r} is described {len(same)} times: {places}; none of them counts"
        for entry in same:
            issue = entry.issue(message, "keep one of them", at="/name", kind="reference")
            invalid.append(invalid_tool(entry, issue))


def _misfit(entry: ToolFileEntry, registry: ToolRegistry) -> Issue | None:
    """The conflict between an entry and the registered tools, or None."""
    found = registry.get(entry.name)
    if entry.kind == "backend":
        if found is not None:
            return None
        hint = f"a .backend file describes one; {registry.hint(entry.name)}"
        return entry.issue(f"no Python tool {entry.name!r} is registered", hint, at="/name", kind="reference")
    if found is not None and found.kind != entry.kind:
        hint = f"describe that in a .backend file, or rename the {entry.kind} tool"
        return entry.issue(f"{entry.name!r} is the name of a Python tool", hint, at="/name", kind="reference")
    try:
        # Made only to run its checks.
        Tool(name=entry.name, body=FrontendBody(OPEN_PARAMETERS))
    except ValueError as error:
        return entry.issue(str(error), at="/name")
    return None


def _made(entry: ToolFileEntry, registry: ToolRegistry) -> Tool:
    data = entry.data
    fields: dict[str, Any] = {name: data[key] for key, (name, _) in FIELDS.items() if key in data}
    found = registry.get(entry.name)
    # A file describes a tool; what the tool does stays true of it.
    if found is not None and "capabilities" in fields:
        fields["capabilities"] = (*found.capabilities, *fields["capabilities"])
    # A Python tool keeps its body: the file describes it, and both schemas must hold.
    if found is not None and not isinstance(found.body, FrontendBody):
        schema = {"schema": data["parameters"]} if "parameters" in data else {}
        return found.changed(**fields, **schema)
    if entry.kind == "frontend":
        file = PurePath(entry.file)
        fields |= {"viewport": (data.get("toolApi") or file.stem).lower(), "viewport_type": file.suffix[1:]}
    if found is not None:
        return found.changed(**fields, body=FrontendBody(data.get("parameters", found.parameters)))
    body = FrontendBody(data.get("parameters", OPEN_PARAMETERS))
    return Tool(name=entry.name, body=body, kind=entry.kind, **{"effects": "none", **fields})
