"""Tools as text, for models that are told of them without being able to call them (spec 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphflow.tools.port import Tool

PLACEHOLDER = "<TOOLS>"
"""Placeholder for the list in a system prompt."""
_NONE = "There are no tools."


def with_tools(prompt: str, tools: Iterable[Tool]) -> str:
    """The prompt with each `<TOOLS>` replaced by the list of tools."""
    return prompt.replace(PLACEHOLDER, list_tools(tools)) if PLACEHOLDER in prompt else prompt


def list_tools(tools: Iterable[Tool]) -> str:
    """A numbered list: name, description, and each parameter with its type and whether it is required."""
    lines = []
    for number, tool in enumerate(tools, 1):
        lines.append(f"{number}. {tool.name}: {' '.join(tool.spec.description.split())}")
        required = tool.parameters.get("required") or ()
        for name, schema in (tool.parameters.get("properties") or {}).items():
            lines.append(f"   - {name}{_type(schema)}{', required' if name in required else ''}{_about(schema)}")
    return "\n".join(lines) or _NONE


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    if schema.get("enum"):
        return " (one of " + ", ".join(map(str, schema["enum"])) + ")"
    kind = schema.get("type")
    return f" ({' or '.join(kind) if isinstance(kind, list | tuple) else kind})" if kind else ""


def _about(schema: Any) -> str:
    said = schema.get("description") if isinstance(schema, Mapping) else None
    return f": {' '.join(str(said).split())}" if said else ""
