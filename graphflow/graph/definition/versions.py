"""Which version a document is: its hash, with those of the graphs that it refers to (E23).

Loads no check: the version of a document that was checked before is found without checking it again (E20).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.errors import Issue
from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import (
    GraphDefinition,
    GraphRef,
    NodeDefinition,
    decode_document,
    encode_document,
)
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.kinds import Kinds
from graphflow.graph.definition.old_words import renewed
from graphflow.graph.definition.plain_data import MAX_NESTING, plain_data, without_schema
from graphflow.graph.definition.regions import agent_of, bodies_of, body_name
from graphflow.graph.definition.version_hash import version_hash


def versioned(
    data: Mapping[str, Any],
    kinds: Kinds,
    subgraphs: dict[str, CheckedDocument],
    agents: Mapping[str, CheckedDocument],
    *,
    warnings: Sequence[Issue] = (),
) -> CheckedDocument:
    """The document with its version.

    Args:
        agents: every agent that can be reached from it, by key; empty for a part of another document.
    """
    # Through JSON and back: what is hashed and stored is exactly what a reader of the store gets.
    document = decode_document(dict(data))
    plain = msgspec.json.decode(msgspec.json.encode(encode_document(_without_defaults(document))))
    graphs = {f"graph:{key}": sub.digest for key, sub in subgraphs.items()}
    # By their own hashes, all of them: so a cycle is a set without an order, and any change of any of them is a new version.
    graphs |= {f"agent:{key}": agent.digest for key, agent in agents.items()}
    return CheckedDocument(
        document=document,
        data=plain,
        digest=version_hash(plain, graphs=graphs, names={**_identities(document, kinds), **_orders(document)}),
        warnings=tuple(warnings),
        subgraphs=subgraphs,
        agents=dict(agents),
    )


def unchecked(given: Mapping[str, Any], kinds: Kinds) -> CheckedDocument | None:
    """The document that `given` is if it passes every check, with its version; None if it surely has an error.

    A document whose version is known passed them before. What its version does not cover, the Python functions that are
    registered here, is checked again.
    """
    try:
        return _unchecked(given, kinds, (), set(), whole=True)
    except (LookupError, ValueError, TypeError, msgspec.ValidationError):
        return None


def _unchecked(
    given: Mapping[str, Any], kinds: Kinds, above: tuple[str, ...], reached: set[str], *, whole: bool = False
) -> CheckedDocument:
    """
    Args:
        reached: gets the keys of the agents that its nodes, and those of graphs below, name.
        whole: it is no part of another document.
    """
    plain, issues = plain_data(given)
    data, outdated = renewed(without_schema(plain))
    if issues or outdated or len(above) > MAX_NESTING:
        raise ValueError("the checks report this one")
    document = decode_document(dict(data))
    _need_functions(document, kinds)
    subgraphs = {
        (graph if isinstance(graph, str) else place): (
            _named(graph, kinds, above, reached) if isinstance(graph, str) else _unchecked(graph, kinds, above, reached)
        )
        for place, _, graph in graphs_in(document.nodes)
    }
    reached |= {key for _, key in agents_in(document.nodes)}
    agents: dict[str, CheckedDocument] = {}
    while whole and (waiting := reached - agents.keys()):
        for key in waiting:
            agents[key] = _named(key, kinds, (), reached)
    return versioned(data, kinds, subgraphs, agents)


def _need_functions(document: GraphDefinition, kinds: Kinds) -> None:
    for name, node in document.nodes.items():
        if node.use is not None:
            kind = kinds.find(node.use)
            if kind is None and agent_of(node) is not None:
                continue  # agents are looked up by key
            if kind is None or (kind.name in ("fn", "node") and any(kind.check(name, node, document))):
                raise LookupError(node.use)
        if node.undo is not None and kinds.find(node.undo) is None:
            raise LookupError(node.undo)
    for reducer in _reducers(document):
        if kinds.reducer(reducer) is None:
            raise LookupError(reducer)


def _named(key: str, kinds: Kinds, above: tuple[str, ...], reached: set[str]) -> CheckedDocument:
    data = kinds.graph(key)
    if data is None or key in above:
        raise LookupError(key)
    return _unchecked(data, kinds, (*above, key), reached)


def graphs_in(nodes: Mapping[str, NodeDefinition]) -> Iterator[tuple[str, str, str | Mapping[str, Any]]]:
    """Every subgraph: the node or body that it is for, its pointer, and its key or the document in place."""
    for name, node in nodes.items():
        if node.graph is not None:
            yield name, at("nodes", name, "graph"), node.graph
        for body in bodies_of(name, node):
            if isinstance(body.do, GraphRef):
                yield body_name(name, body.branch), f"{body.pointer}/graph", body.do.graph


def graphs_of(checked: CheckedDocument) -> dict[str, GraphDefinition]:
    """Every graph of a document, its subgraphs and the agents that it calls, under the key that its plan has."""
    out: dict[str, GraphDefinition] = {}
    waiting = [("", checked), *checked.agents.items()]
    while waiting:
        key, here = waiting.pop(0)
        if key in out:
            continue
        out[key] = here.document
        for place, _, graph in graphs_in(here.document.nodes):
            named = isinstance(graph, str)
            waiting.append((str(graph) if named else f"{key}/{place}", here.subgraphs[str(graph) if named else place]))
    return out


def agents_in(nodes: Mapping[str, NodeDefinition]) -> Iterator[tuple[str, str]]:
    """The name and the agent's key of each `agent:` node."""
    for name, node in nodes.items():
        if (key := agent_of(node)) is not None:
            yield name, key


def _identities(document: GraphDefinition, kinds: Kinds) -> dict[str, Any]:
    """What tells versions of registered names apart, for kinds that have `identity(name)`."""
    identity = getattr(kinds, "identity", None)
    if identity is None:
        return {}
    found = {name: identity(name) for name in sorted(set(_names(document)))}
    return {name: value for name, value in found.items() if value is not None}


def _without_defaults(value: Any) -> Any:
    """The same value with the default object itself wherever a value equals it: msgspec omits fields by identity."""
    if isinstance(value, msgspec.Struct):
        changes = {
            field.name: field.default
            if field.default == (own := getattr(value, field.name))
            else _without_defaults(own)
            for field in _fields(type(value))
        }
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(_without_defaults(item) for item in value)
    if isinstance(value, dict):
        return {key: _without_defaults(item) for key, item in value.items()}
    return value


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.fields(kind)


def _orders(document: GraphDefinition) -> dict[str, list[str]]:
    """The order of a parallel's branches, which decides how their writes are reduced and which canonical JSON loses.

    Only orders that differ from the alphabetical one are listed.
    """
    return {
        f"order:{name}": list(node.parallel)
        for name, node in document.nodes.items()
        if node.parallel is not None and list(node.parallel) != sorted(node.parallel)
    }


def _names(document: GraphDefinition) -> Iterable[str]:
    """Every registered name that the document holds, as `WORD:NAME`."""
    # Kinds without a name (`model`, `tools`) have no version of their own.
    for node in document.nodes.values():
        if node.use is not None and ":" in node.use:
            yield node.use
        if node.undo is not None:
            yield node.undo
        yield from (f"tool:{name}" for name in _tool_names(node))
    yield from (f"tool:{name}" for name in document.tools or ())
    yield from (f"reducer:{name}" for name in _reducers(document))


def _reducers(document: GraphDefinition) -> Iterator[str]:
    """The names of the functions that are reducers."""
    for schema in (document.state.get("properties") or {}).values():
        reduce = schema.get("x-reducer") if isinstance(schema, Mapping) else None
        if isinstance(reduce, str) and reduce.startswith("fn:"):
            yield reduce[3:]


def _tool_names(node: NodeDefinition) -> Iterable[str]:
    tools = node.with_.get("tools") if isinstance(node.with_, Mapping) else None
    return [name for name in tools if isinstance(name, str)] if isinstance(tools, list | tuple) else []
