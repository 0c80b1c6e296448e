"""Tool files: `graphs/tools/*.backend` and `*.action` (spec 8.1).

A `.backend` file describes or overrides the Python tool of that name; an `.action` file makes a tool whose work is
done by the client. A broken file or entry is a fault and everything else stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphflow.errors import Fault
from graphflow.tools.context import ToolContext
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.schema import did_you_mean, schema_error, shown
from graphflow.tools.signature import OPEN_PARAMETERS, SchemaSignature

SUFFIXES = (".backend", ".action")
"""Frontend tools (`.html`, `.qlc`, `.dqlc`) are other files' matter and are passed over."""

_FIELDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "description": ("description", str),
    "prompt": ("prompt", str),
    "afterCallHint": ("after_call_hint", str),
    "after_call_hint": ("after_call_hint", str),
    "approvalHint": ("approval_hint", str),
    "effects": ("effects", str),
    "idempotent": ("idempotent", bool),
    "undo": ("undo", str),
    "holdMs": ("hold_ms", int),
    "version": ("version", str),
}
"""Wire name → field of `Tool` and its type."""
_OTHERS = ("type", "name", "parameters", "strict", "toolApi")
_ALLOWED = (*_OTHERS, *_FIELDS)
_EFFECTS = ("none", "read", "write")


@dataclass(frozen=True, kw_only=True)
class ToolFiles:
    """What a folder of tool files says."""

    tools: tuple[Tool, ...]
    """Changed backend tools and new actions; lay them over a registry with `registry.overlaid(tools)`."""
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    file: Path
    pointer: str
    data: Mapping[str, Any]

    def fault(self, message: str, hint: str | None = None, *, at: str = "", kind: str = "shape") -> Fault:
        return Fault(file=str(self.file), pointer=self.pointer + at, message=message, hint=hint, kind=kind)


class ActionBody:
    """Has no work of its own: the client acts on the events of the call."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._signature = SchemaSignature(parameters)

    @property
    def parameters(self) -> dict[str, Any]:
        return self._signature.parameters

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._signature.prepare(arguments)

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        del arguments, ctx


def load_tool_files(folder: Path, registry: ToolRegistry) -> ToolFiles:
    """The tools of a folder's files, in the order of file names; a folder that does not exist has none.

    Args:
        folder: with the files directly in it.
        registry: the Python tools, which `.backend` entries describe.
    """
    faults: list[Fault] = []
    entries: list[_Entry] = []
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        if file.suffix in SUFFIXES and file.is_file():
            entries += _entries(file, faults)
    tools = []
    for entry in _single(entries, faults):
        found = list(_entry_faults(entry, registry))
        faults += found
        if not found:
            tools.append(_made(entry, registry))
    return ToolFiles(tools=tuple(tools), faults=tuple(faults))


def _entries(file: Path, faults: list[Fault]) -> Iterator[_Entry]:
    """The entries of one file; a file that can't be read has none and adds a fault."""

    def fault(message: str, hint: str, *, pointer: str = "") -> None:
        faults.append(Fault(file=str(file), pointer=pointer, message=message, hint=hint))

    data = _read(file, faults)
    if data is None:
        return
    listed = data.get("tools") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        fault("the file has no list `tools`", 'write {"tools": [{"name": …, "description": …}]}')
        return
    for unknown in (key for key in data if key != "tools"):
        fault(f"unknown key {unknown!r}", "a tool file has `tools` only", pointer=f"/{unknown}")
    for index, item in enumerate(listed):
        if isinstance(item, dict):
            yield _Entry(file=file, pointer=f"/tools/{index}", data=item)
        else:
            fault(f"a tool is {shown(item)}", "write an object with `name`", pointer=f"/tools/{index}")


def _read(file: Path, faults: list[Fault]) -> Any:
    """The file's JSON, or None and a fault with its place."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        message, line, column = f"no valid JSON: {error.msg}", error.lineno, error.colno
        faults.append(Fault(file=str(file), pointer="", message=message, line=line, column=column, kind="syntax"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a key twice
        faults.append(Fault(file=str(file), pointer="", message=f"the file can't be read: {error}", kind="syntax"))
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return found


def _single(entries: list[_Entry], faults: list[Fault]) -> Iterator[_Entry]:
    """The entries whose name stands once; of a name that stands twice neither counts."""
    by_name: dict[str, list[_Entry]] = {}
    for entry in entries:
        by_name.setdefault(str(entry.data.get("name")), []).append(entry)
    for name, same in by_name.items():
        if len(same) == 1:
            yield same[0]
            continue
        places = " and ".join(f"{entry.file.name}{entry.pointer}" for entry in same)
        for entry in same:
            message = f"tool {name!r} is described {len(same)} times: {places}; none of them counts"
            faults.append(entry.fault(message, "keep one of them", at="/name", kind="reference"))


def _entry_faults(entry: _Entry, registry: ToolRegistry) -> Iterator[Fault]:
    data = entry.data
    for key in data:
        if key not in _ALLOWED:
            hint = f"fields are {', '.join(_ALLOWED)}.{did_you_mean(key, _ALLOWED)}"
            yield entry.fault(f"unknown field {key!r}", hint, at=f"/{key}")
    for key, (_, kind) in _FIELDS.items():
        if key in data and (not isinstance(data[key], kind) or (kind is int and isinstance(data[key], bool))):
            yield entry.fault(f"{key} is {shown(data[key])}", f"expected {kind.__name__}", at=f"/{key}")  # type: ignore[union-attr]
    if data.get("type", "function") != "function":
        yield entry.fault(f"type is {shown(data['type'])}", "expected 'function', or leave it out", at="/type")
    if isinstance(data.get("effects"), str) and data["effects"] not in _EFFECTS:
        yield entry.fault(f"effects is {data['effects']!r}", f"expected one of {', '.join(_EFFECTS)}", at="/effects")
    if "parameters" in data and (wrong := schema_error(data["parameters"])) is not None:
        yield entry.fault(wrong, "write a JSON Schema of an object", at="/parameters")
    yield from _name_faults(entry, registry)


def _name_faults(entry: _Entry, registry: ToolRegistry) -> Iterator[Fault]:
    name = entry.data.get("name")
    if not isinstance(name, str) or not name:
        yield entry.fault(f"name is {shown(name)}", "give the tool a name", at="/name")
    elif entry.file.suffix == ".backend" and name not in registry:
        message = f"no Python tool {name!r} is registered"
        yield entry.fault(
            message, f"a .backend file describes one; {registry.hint(name)}", at="/name", kind="reference"
        )
    elif entry.file.suffix == ".action":
        if name in registry:
            message = f"{name!r} is the name of a Python tool"
            yield entry.fault(
                message, "describe that in a .backend file, or rename the action", at="/name", kind="reference"
            )
        try:
            Tool(name=name, body=ActionBody(OPEN_PARAMETERS))
        except ValueError as error:
            yield entry.fault(str(error), at="/name")


def _made(entry: _Entry, registry: ToolRegistry) -> Tool:
    data = entry.data
    fields = {field: data[key] for key, (field, _) in _FIELDS.items() if key in data}
    if entry.file.suffix == ".backend":
        schema = {"schema": data["parameters"]} if "parameters" in data else {}
        return registry.require(data["name"]).changed(**fields, **schema)
    body = ActionBody(data.get("parameters", OPEN_PARAMETERS))
    return Tool(name=data["name"], body=body, kind="action", **{"effects": "none", **fields})
