"""The list of tools of a server: plain data, so that a run can record it and go on with it in another process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from graphflow.excerpts import excerpt_of
from graphflow.tools.schema import parameters_issues

MOST_TOOLS = 1_000
"""Tools of one server that are taken."""
_TOOL = re.compile(r"[^\s\x00-\x1f]{1,128}")


class McpTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool as its server describes it."""

    name: str
    """The server's own name for it."""
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)
    """Hints of the server: `readOnlyHint`, `destructiveHint`, `idempotentHint` …"""


def read_tools(raw: Iterable[Any]) -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
    """The usable tools of a server's list, and why each other one is left out: one bad tool costs no other."""
    good: dict[str, McpTool] = {}
    bad: list[str] = []
    for item in raw:
        if len(good) >= MOST_TOOLS:
            bad.append(f"the server lists more than {MOST_TOOLS} tools; the others are left out")
            break
        tool, wrong = _tool(item)
        if tool is None:
            bad.append(wrong)
        elif tool.name in good:
            bad.append(f"tool {tool.name!r} is listed twice; the first one counts")
        else:
            good[tool.name] = tool
    return tuple(good.values()), tuple(bad)


def _tool(item: Any) -> tuple[McpTool | None, str]:
    name = item.get("name") if isinstance(item, Mapping) else None
    if not isinstance(name, str) or not _TOOL.fullmatch(name):
        return None, f"a tool's name is {excerpt_of(name, 80)}; it has 1 to 128 characters and no white space"
    schema = item.get("inputSchema")
    # An empty schema is against the protocol, and it is clear what it means.
    schema = {"type": "object", "properties": {}, **schema} if isinstance(schema, Mapping) else schema
    if issues := parameters_issues(schema):
        first = issues[0]
        return None, f"tool {name!r} is left out: inputSchema{first.pointer}: {first.message}"
    about = item.get("description")
    hints = item.get("annotations")
    return McpTool(
        name=name,
        description=about if isinstance(about, str) else "",
        parameters=dict(schema),
        annotations={key: hints[key] for key in hints if isinstance(hints[key], bool)}
        if isinstance(hints, Mapping)
        else {},
    ), ""
