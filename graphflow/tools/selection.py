"""Which tools a node of an agent has: those it names, and those that are bound to its keywords (spec 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from graphflow.errors import Issue
from graphflow.tools.owned_names import SERVER_PREFIX
from graphflow.tools.wire_names import agent_key

if TYPE_CHECKING:
    from graphflow.graph.definition.document import GraphDefinition
    from graphflow.tools.registry import ToolRegistry


def offered_tools(registry: ToolRegistry, document: GraphDefinition, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the tools, none twice: the node's `tools` and those of its `keywords`; the document's where it has none.

    A node that names its own tools has those, and no others by the document's keywords.

    Args:
        given: the node's `with` as written; an expression in place of a list counts as empty.
    """
    own, words = given.get("tools"), given.get("keywords")
    names: Iterable[str] = _listed((document.tools or ()) if own is None else own)
    if words is None:
        words = (document.keywords or ()) if own is None else ()
    if registry.servers:
        names = _of_servers(registry, names)
    bound = (tool.name for tool in registry.for_keywords(_listed(words))) if words else ()
    return tuple(dict.fromkeys((*names, *bound)))


def _of_servers(registry: ToolRegistry, names: Iterable[str]) -> Iterator[str]:
    """The names with `mcp:SERVER` spelled out; without tools that their server does not offer now, so nobody is offered them."""
    for name in names:
        if name.startswith(SERVER_PREFIX):
            yield from registry.of_server(name.removeprefix(SERVER_PREFIX))
        elif registry.gone(name) is None:
            yield name


def unknown_tools(registry: ToolRegistry, given: Any) -> Iterator[Issue]:
    """Errors of the `tools` that a node's `with` names; an expression gets its value only when the node runs."""
    names = given.get("tools") if isinstance(given, Mapping) else None
    for index, name in enumerate(names if isinstance(names, list | tuple) else ()):
        if isinstance(name, str) and "${" not in name and not registry.declares(name) and agent_key(name) is None:
            message = f"no tool {name!r} is registered"
            yield Issue(pointer=f"/with/tools/{index}", message=message, hint=registry.hint(name), kind="reference")


def _listed(given: Any) -> Iterable[str]:
    # An expression is text until the node runs; iterating over it would give letters.
    return () if isinstance(given, str) else given
