"""Descriptions of a function and of its parameters, out of its docstring.

Understands Google sections (`Args:` with an indented `name: text` or `name (type): text` per parameter) and
`:param name: text` lines.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(
    r"^(args|arguments|params|parameters|returns?|yields?|raises|examples?|notes?|attributes|see also)\s*:\s*$",
    re.IGNORECASE,
)
_ARGUMENTS = frozenset({"args", "arguments", "params", "parameters"})
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r"^:param\s+(?:[^:\s]+\s+)?(\w+)\s*:\s*(.*)$")
_OTHER_FIELD = re.compile(r"^:(?:returns?|rtype|raises|type|yields?)\b")


@dataclass(frozen=True, kw_only=True)
class Docstring:
    """The content of a docstring without its markup."""

    description: str = ""
    """Everything before the first section."""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None) -> Docstring:
    """The parts of a docstring; without one they are empty."""
    described: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, entry, entry_indent = "", None, 0
    for line in inspect.cleandoc(text or "").splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if found := _FIELD.match(stripped):
            section, entry, entry_indent = "fields", found[1], indent
            parameters[entry] = [found[2]]
        elif _OTHER_FIELD.match(stripped):
            section, entry = "fields", None
        # Only at the left edge: `Note:` inside a description is text.
        elif indent == 0 and (found := _SECTION.match(stripped)):
            section, entry, entry_indent = found[1].lower(), None, 0
        elif section == "":
            described.append(line)
        # Deeper than its entry: a continued description, even if it looks like `name: text`.
        elif entry is not None and indent > entry_indent:
            parameters[entry].append(stripped)
        elif section in _ARGUMENTS and indent and (found := _ENTRY.match(stripped)):
            entry, entry_indent = found[1], indent
            parameters[entry] = [found[2]]
        elif stripped and indent == 0:
            section, entry = "rest", None
    return Docstring(
        description="\n".join(described).strip(),
        parameters={name: " ".join(part for part in lines if part) for name, lines in parameters.items()},
    )
