"""One tool file, taken apart: its good entries, and what is wrong with the others (spec 8.1).

Only the file itself is looked at here; how files and registered tools fit together is the matter of `tool_files.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from graphflow.capabilities import unknown_capability
from graphflow.errors import Issue
from graphflow.graph.definition.json_schema import check_schema
from graphflow.graph.definition.types import show
from graphflow.tools.files.json_files import read_json
from graphflow.tools.port import ToolKind
from graphflow.tools.schema import did_you_mean, parameters_issues

KINDS: dict[str, ToolKind] = {
    ".backend": "backend",
    ".action": "action",
    ".html": "frontend",
    ".qlc": "frontend",
    ".dqlc": "frontend",
}
"""Suffix of a tool file → kind of its tools."""
FIELDS: dict[str, tuple[str, type]] = {
    "description": ("description", str),
    "prompt": ("prompt", str),
    "afterCallHint": ("after_call_hint", str),
    "after_call_hint": ("after_call_hint", str),
    "approvalHint": ("approval_hint", str),
    "effects": ("effects", str),
    "capabilities": ("capabilities", list),
    "idempotent": ("idempotent", bool),
    "undo": ("undo", str),
    "holdMs": ("hold_ms", int),
    "payload": ("payload", dict),
    "version": ("version", str),
}
"""Wire name → field of `Tool` and its type."""
_OTHERS = ("type", "name", "parameters", "strict", "toolApi")
_ALLOWED = (*_OTHERS, *FIELDS)
_EFFECTS = ("none", "read", "write")


@dataclass(frozen=True, kw_only=True)
class ToolFileEntry:
    """One description of a tool, as written."""

    file: str
    pointer: str
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The tool's name, or its place in the file if it has none."""
        given = self.data.get("name")
        return given if isinstance(given, str) and given else f"{PurePath(self.file).name}{self.pointer}"

    @property
    def kind(self) -> ToolKind:
        return KINDS[PurePath(self.file).suffix]

    def issue(self, message: str, hint: str | None = None, *, at: str = "", kind: str = "shape") -> Issue:
        return Issue(file=self.file, pointer=self.pointer + at, message=message, hint=hint, kind=kind)


@dataclass(frozen=True, kw_only=True)
class InvalidTool:
    """A rejected description, or a whole file that can't be read."""

    name: str
    """The tool's, or the file's when it is not known."""
    kind: ToolKind
    file: str
    errors: tuple[Issue, ...]


@dataclass(frozen=True, kw_only=True)
class ToolFile:
    """One file."""

    content: bytes | str
    entries: tuple[ToolFileEntry, ...] = ()
    """The valid entries; for broken ones their last valid version."""
    invalid: tuple[InvalidTool, ...] = ()


def read_tool_file(file: str, content: bytes | str, before: ToolFile | None = None) -> ToolFile:
    """The entries and errors of a file; never raises.

    Args:
        file: its path.
        content: its bytes, or why they can't be read.
        before: the active version; its entries stay active where the new ones are broken.
    """
    old = before.entries if before is not None else ()
    items, issue = _items(file, content)
    if issue is not None:
        broken = InvalidTool(name=PurePath(file).name, kind=KINDS[PurePath(file).suffix], file=file, errors=(issue,))
        return ToolFile(content=content, entries=old, invalid=(broken,))
    good, invalid = [], []
    for index, item in enumerate(items):
        entry = ToolFileEntry(file=file, pointer=f"/tools/{index}", data=item if isinstance(item, dict) else {})
        issues = tuple(_issues(entry) if isinstance(item, dict) else [_no_object(entry, item)])
        if issues:
            invalid.append(invalid_tool(entry, *issues))
        else:
            good.append(entry)
    # An old version stays only for a name that is broken now and not also given correctly.
    refused = {one.name for one in invalid} - {entry.name for entry in good}
    kept = [entry for entry in old if entry.name in refused]
    return ToolFile(content=content, entries=(*good, *kept), invalid=tuple(invalid))


def invalid_tool(entry: ToolFileEntry, *issues: Issue) -> InvalidTool:
    """The rejection of an entry with these issues."""
    return InvalidTool(name=entry.name, kind=entry.kind, file=entry.file, errors=issues)


def _items(file: str, content: bytes | str) -> tuple[list[Any], Issue | None]:
    """The list `tools` of a file, or the issue that prevents reading it."""
    data, issue = read_json(content, file)
    if issue is not None:
        return [], issue
    listed = data.get("tools") if isinstance(data, dict) else None
    hint = 'write {"tools": [{"name": …, "description": …}]}'
    if not isinstance(listed, list):
        return [], Issue(file=file, pointer="", message="the file has no list `tools`", hint=hint)
    for unknown in (key for key in data if key not in ("tools", "$schema")):
        hint = "a tool file has `tools` only"
        return [], Issue(file=file, pointer=f"/{unknown}", message=f"unknown key {unknown!r}", hint=hint)
    return listed, None


def _no_object(entry: ToolFileEntry, item: Any) -> Issue:
    return entry.issue(f"a tool is {show(item)}", "write an object with `name`")


def _issues(entry: ToolFileEntry) -> Iterator[Issue]:
    data = entry.data
    for key in data:
        if key not in _ALLOWED:
            hint = f"fields are {', '.join(_ALLOWED)}.{did_you_mean(key, _ALLOWED)}"
            yield entry.issue(f"unknown field {key!r}", hint, at=f"/{key}")
    for key, (_, kind) in {**FIELDS, "toolApi": ("viewport", str), "strict": ("", bool)}.items():
        # `true` is an `int` to Python.
        if key in data and (not isinstance(data[key], kind) or (kind is int and isinstance(data[key], bool))):
            yield entry.issue(f"{key} is {show(data[key])}", f"expected {kind.__name__}", at=f"/{key}")
    name = data.get("name")
    if not isinstance(name, str) or not name:
        yield entry.issue(f"name is {show(name)}", "give the tool a name", at="/name")
    if data.get("type", "function") != "function":
        yield entry.issue(f"type is {show(data['type'])}", "expected 'function', or leave it out", at="/type")
    if isinstance(data.get("effects"), str) and data["effects"] not in _EFFECTS:
        yield entry.issue(f"effects is {data['effects']!r}", f"expected one of {', '.join(_EFFECTS)}", at="/effects")
    if isinstance(data.get("capabilities"), list) and (wrong := unknown_capability(data["capabilities"])):
        yield entry.issue("capabilities names what there is not", wrong, at="/capabilities")
    hold = data.get("holdMs")
    if isinstance(hold, int) and hold < 0:
        yield entry.issue(f"holdMs is {hold}", "a time in milliseconds is not below 0", at="/holdMs")
    if "parameters" in data:
        yield from _placed(entry, "/parameters", parameters_issues(data["parameters"]))
    if "payload" in data and entry.kind != "frontend":
        hint = "only a frontend tool (.html, .qlc, .dqlc) has one: what a person submits"
        yield entry.issue(f"{entry.kind} tools have no payload", hint, at="/payload")
    elif isinstance(data.get("payload"), Mapping):
        yield from _placed(entry, "/payload", check_schema(data["payload"]))


def _placed(entry: ToolFileEntry, at: str, issues: list[Issue]) -> Iterator[Issue]:
    return (entry.issue(issue.message, issue.hint, at=at + issue.pointer) for issue in issues)
