"""Which MCP servers a document names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.tools.owned_names import server_of


def servers_named(checked: CheckedDocument, known: Collection[str]) -> list[str]:
    """The servers whose tools the document or one of its graphs names; all of them where an expression chooses tools."""
    found = set(_names(checked.data))
    for inner in checked.subgraphs.values():
        found.update(servers_named(inner, known))
    return sorted(known) if "" in found else sorted(found.intersection(known))


def _names(value: Any) -> Iterator[str]:
    """Every server that a `tools`, `use` or `undo` names, or that another name resembles; empty for an expression."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "tools":
                yield from _listed(inner)
            elif key in ("use", "undo") and isinstance(inner, str) and inner.startswith("tool:"):
                yield server_of(inner.removeprefix("tool:")) or "-"
            else:
                yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


def _listed(tools: Any) -> Iterator[str]:
    if isinstance(tools, str):
        yield ""
    for name in tools if isinstance(tools, list) else ():
        if isinstance(name, str):
            yield "" if "${" in name else server_of(name) or "-"
