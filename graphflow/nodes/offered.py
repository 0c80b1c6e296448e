"""Which tools a node of an agent has: those it names, and those that are bound to its keywords (spec 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphflow.graph.document import GraphDefinition

if TYPE_CHECKING:
    from graphflow.tools.registry import ToolRegistry


def offered_tools(registry: ToolRegistry, document: GraphDefinition, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the tools, none twice: the node's `tools` and those of its `keywords`; the document's where it has none.

    A node that names its own tools has those, and no others by the document's keywords.
    """
    own = given.get("tools")
    names: Iterable[str] = (document.tools or ()) if own is None else own
    words = given.get("keywords")
    if words is None:
        words = (document.keywords or ()) if own is None else ()
    bound = (tool.name for tool in registry.for_keywords(words)) if words else ()
    return tuple(dict.fromkeys((*names, *bound)))
