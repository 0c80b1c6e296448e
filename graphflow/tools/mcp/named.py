"""Which MCP servers a document names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.tools.owned_names import server_of


def servers_named(checked: CheckedDocument, known: Collection[str]) -> list[str]:
    """The servers whose tools the document names, or one of its graphs and agents; all of them where an expression chooses
    tools.
    """
    found: set[str] = set()
    left, seen = [checked], set()
    while left:
        each = left.pop()
        if each.digest not in seen:
            seen.add(each.digest)
            found.update(_names(each.data))
            left += [*each.subgraphs.values(), *each.agents.values()]
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
