"""Which variables exist where, `as` names in the body of their map only, and what a fan gives (spec 2.1 rule 7, E10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.graph.definition.document import END, NodeDefinition
from graphflow.graph.definition.regions import Region, Survey, is_fan, routes_of
from graphflow.graph.expressions import parser
from graphflow.graph.expressions.ast import Path
from graphflow.graph.expressions.doubles import SchemaPlace
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.parser import ExpressionSyntaxError

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import Kinds

OUTCOMES = ("done", "failed")
"""What `status` of a branch may be in a fan's `out`; one that was cancelled or skipped is left out."""

MAX_DESCRIBED = 8
"""Depth to which outputs of nested branches have a schema; below it any name is accepted."""


class Places(msgspec.Struct, frozen=True):
    """What the variables of a document's places depend on."""

    nodes: Mapping[str, NodeDefinition]
    survey: Survey
    environment: Environment
    kinds: Kinds
    bodiless: frozenset[str] = frozenset()
    """Maps whose body is not known, because a reported error hides it."""


class ScopeMap:
    """The variables of every place of one document."""

    def __init__(self, context: Places) -> None:
        self._context = context
        self._items: dict[str, tuple[Any, SchemaPlace]] = {}
        self._reasons = {
            node.as_: f"it is an item of the map {name!r} and only seen in its body"
            for name, node in context.nodes.items()
            if node.map is not None and node.as_ and name not in context.bodiless
        }
        self._environments: dict[tuple[str, ...], Environment] = {}

    def at(self, node: str) -> Environment:
        """The variables at a node, for its own expressions."""
        return self._within([region.fan for region in self._context.survey.around(node)])

    def body_of(self, fan: str) -> Environment:
        """The variables inside a fan's bodies, for the `with` of a body that is a subgraph."""
        around = [region.fan for region in self._context.survey.around(fan)]
        return self._within([fan, *(other for other in around if other != fan)])

    def document(self) -> Environment:
        """The variables of what stands outside of nodes."""
        return self._within([])

    def _within(self, fans: list[str]) -> Environment:
        maps = [fan for fan in fans if self._context.nodes[fan].as_]
        # Nodes of one region see the same variables, so their environment is built once.
        known = self._environments.get(tuple(maps))
        if known is None:
            items = {
                str(self._context.nodes[fan].as_): self._item(fan, maps[place + 1 :]) for place, fan in enumerate(maps)
            }
            absent = {name: why for name, why in self._reasons.items() if name not in items}
            known = self._context.environment.without(**absent)
            known = known.having(**{name: schema for name, (schema, _) in items.items()})
            known = msgspec.structs.replace(known, items={name: place for name, (_, place) in items.items()})
            self._environments[tuple(maps)] = known
        return known

    def _item(self, fan: str, around: list[str]) -> tuple[Any, SchemaPlace]:
        """The schema of a map's items, where its list is a path into something whose schema is known; and its place."""
        if fan not in self._items:
            nothing = None, self._context.environment.places.anything
            self._items[fan] = nothing  # a map in its own body, which is an error of its own
            try:
                listed = parser.parse(self._context.nodes[fan].map or "").root
            except ExpressionSyntaxError:
                return nothing
            environment = self._within(around)
            schema = environment.schema_of(listed) if isinstance(listed, Path) and not listed.test else None
            items = schema.get("items") if isinstance(schema, Mapping) else None
            self._items[fan] = items, environment.items_of(listed)
        return self._items[fan]


def out_schema(context: Places, name: str, node: NodeDefinition, depth: int = 0) -> Any:
    """The schema of the node's output; a kind may tell it for this very node (`out_schema_of`)."""
    if is_fan(node):
        return fan_schema(context, name, node, depth)
    if node.ask is not None:
        return node.ask.schema or None
    kind = context.kinds.find(node.use) if node.use is not None else None
    if kind is None:
        return None
    of_node = getattr(kind, "out_schema_of", None)
    return kind.out_schema if of_node is None else of_node(node)


def fan_schema(context: Places, name: str, node: NodeDefinition, depth: int) -> dict[str, Any] | None:
    """The schema of a fan's output: a list for a map, an object by branch name for a parallel (E10)."""
    if depth >= MAX_DESCRIBED:
        return None
    regions = context.survey.regions.get(name, {})
    branches = {branch: _branch_schema(context, region, depth) for branch, region in regions.items()}
    if node.map is not None:
        return {"type": "array", "items": branches.get("") or _branch_schema(context, None, depth)}
    return {"type": "object", "properties": branches, "additionalProperties": False}


def _branch_schema(context: Places, region: Region | None, depth: int) -> dict[str, Any]:
    # A body with several ends gives the output of whichever came last, so nothing is known of it.
    last = _last_nodes(context, region)
    known = len(last) == 1 and region is not None and not _opens(context, last[0], region)
    out = out_schema(context, last[0], context.nodes[last[0]], depth + 1) if known else None
    if isinstance(out, Mapping) and "$id" not in out:
        out = {"$id": last[0], **out}  # its references are to parts of itself
    return {
        "type": "object",
        "properties": {
            "index": {"type": "integer"},
            "status": {"enum": list(OUTCOMES), "type": "string"},
            "out": out or {},
            "error": {"type": "object"},
        },
        "additionalProperties": False,
    }


def _last_nodes(context: Places, region: Region | None) -> list[str]:
    """The nodes that may end a branch."""
    if region is None:
        return []
    return sorted(name for name in region.nodes if any(edge.to == END for edge in routes_of(name, context.nodes[name])))


def _opens(context: Places, node: str, region: Region) -> bool:
    """Whether the node is a fan around the region: one in its own body, which is an error of its own."""
    return node == region.fan or any(other.fan == node for other in context.survey.around(region.fan))
