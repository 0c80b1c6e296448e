"""`invariants`: the language of a document's safety properties, and which nodes they speak of (spec 2.1 rule 10).

`before X visit Y`: no node that matches X begins before one that matches Y has finished, since the run's input.
`X at most N`: the nodes that match X are entered N times in all, at most. `end reachable`: every node that can be
reached can reach `end`. `model_checker.py` proves them when a document is loaded, and `core/invariants.py` keeps them
where no proof holds. Loads no check: a plan is built with it (E20).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import GraphDefinition, GraphRef, NodeDefinition
from graphflow.graph.definition.regions import bodies_of, body_name, survey
from graphflow.graph.definition.types import show

MOST = 1_000
"""The largest N of `X at most N`: a proof counts up to it."""


UNBOUNDED = MOST + 1
"""Weight of a node whose one run may use X any number of times."""


FORMS = "'before X visit Y', 'X at most N' or 'end reachable'"


class Before(msgspec.Struct, frozen=True):
    text: str
    node: str
    """X: a node's name, or a `use`."""
    first: str
    """Y: the same."""


class AtMost(msgspec.Struct, frozen=True):
    text: str
    node: str
    count: int


class EndReachable(msgspec.Struct, frozen=True):
    text: str


Property = Before | AtMost | EndReachable


class PropertySyntaxError(ValueError):
    """The text is not an invariant; `hint` says what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def parse(text: str) -> Property:
    """The property that a text states.

    Raises:
        PropertySyntaxError: it states none.
    """
    words = text.split()
    match words:
        case ["before", node, "visit", first]:
            return Before(text, node, first)
        case [node, "at", "most", count]:
            return AtMost(text, node, _count(text, count))
        case ["end", "reachable"]:
            return EndReachable(text)
    raise PropertySyntaxError(f"{show(text)} is not an invariant: expected {FORMS}", _meant(words))


def _count(text: str, count: str) -> int:
    # The length before `int`: thousands of digits take quadratic time, and Python refuses the longest.
    if not (count.isascii() and count.isdigit()) or len(count.lstrip("0")) > len(str(MOST)) or int(count) > MOST:
        raise PropertySyntaxError(
            f"{show(text)}: {show(count)} is not a whole number from 0 to {MOST}",
            "write digits, as in 'send at most 1'",
        )
    return int(count)


_SHAPES = (("before", "", "visit", ""), ("", "at", "most", ""), ("end", "reachable"))


def _meant(words: list[str]) -> str:
    """The word that is wrong, where all others fit a form."""
    for shape in _SHAPES:
        if len(shape) == len(words):
            wrong = [(word, right) for word, right in zip(words, shape, strict=True) if right and word != right]
            if len(wrong) == 1:
                return f"write {wrong[0][1]!r} for {wrong[0][0]!r}"
    return "as in 'before tool:send_mail visit approve': X and Y are a node's name or its `use`, N is a whole number"


# --- what a name means


def names_of(document: GraphDefinition) -> list[str]:
    """What X and Y may be, for hints: the document's nodes and what they use."""
    uses = dict.fromkeys(node.use for node in document.nodes.values() if node.use is not None)
    return [*document.nodes, *uses]


def entered_by(
    document: GraphDefinition, graphs: Mapping[str, CheckedDocument], name: str, most: int = 0
) -> dict[str, int]:
    """X: each node that matches it, and how often X runs in one entry of the node, at most.

    A node's name means that node. A `use` means every node that uses it, `tools` nodes that may run the tool, and nodes
    whose subgraph may: what could happen counts.

    Args:
        graphs: the document's subgraphs by the key under which the compiler has them.
        most: more than this need not be counted exactly.
    """
    return {name: 1} if name in document.nodes else _by_use(document, graphs, name, most)


def finished_by(document: GraphDefinition, name: str) -> frozenset[str]:
    """Y: the node of this name, else the nodes that use it and nothing but it: what might not happen does not count."""
    if name in document.nodes:
        return frozenset((name,))
    return frozenset(node_name for node_name, node in document.nodes.items() if node.use == name)


def _by_use(document: GraphDefinition, graphs: Mapping[str, CheckedDocument], use: str, most: int) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, node in document.nodes.items():
        weight = _weight(document, node, use) + sum(
            _inside(graphs[key], use, most) * times for key, times in _bodies(name, node) if key in graphs
        )
        if weight:
            out[name] = min(weight, UNBOUNDED)
    return out


def _weight(document: GraphDefinition, node: NodeDefinition, use: str) -> int:
    if node.use == use:
        return 1
    tool = use.removeprefix("tool:")
    if node.use != "tools" or tool == use or not _may_call(document, node, tool):
        return 0
    limit = node.with_.get("max") if isinstance(node.with_, Mapping) else None
    # The model decides how many calls one entry runs; only `max` bounds them.
    return limit if isinstance(limit, int) else UNBOUNDED


def _may_call(document: GraphDefinition, node: NodeDefinition, tool: str) -> bool:
    """Whether a `tools` node may run the tool: its own `tools` and `keywords` stand for the document's (spec 6.1)."""
    if node.with_ is not None and not isinstance(node.with_, Mapping):
        return True  # an expression gives its arguments
    given: Mapping[str, Any] = node.with_ or {}
    own, keywords = given.get("tools"), given.get("keywords")
    offered = document.tools if own is None else own
    if keywords is None and own is None:
        keywords = document.keywords
    if keywords or not isinstance(offered, list | tuple):
        return True  # which tools are bound to a keyword, or what an expression gives, is not known here
    return any(name == tool or (isinstance(name, str) and "${" in name) for name in offered)


def _bodies(name: str, node: NodeDefinition) -> Iterator[tuple[str, int]]:
    """Keys of the subgraphs that a node opens, and how often in one entry: each attempt opens them anew."""
    attempts = _attempts(node)
    if node.graph is not None:
        yield node.graph if isinstance(node.graph, str) else name, attempts
    for body in bodies_of(name, node):
        if isinstance(body.do, GraphRef):
            key = body.do.graph if isinstance(body.do.graph, str) else body_name(name, body.branch)
            # A map opens its body for each item, and how many come is not known before the run.
            yield key, attempts if node.parallel is not None else UNBOUNDED


def _attempts(node: NodeDefinition) -> int:
    return 1 if node.retry is None else node.retry.max


def with_retries(document: GraphDefinition, weights: Mapping[str, int]) -> dict[str, int]:
    """The weights for a proof: a fan that is tried again enters what its branches run again."""
    found = survey(document)
    out: dict[str, int] = {}
    for name, weight in weights.items():
        for region in found.around(name):
            weight *= _attempts(document.nodes[region.fan])
        out[name] = min(weight, UNBOUNDED)
    return out


def _inside(graph: CheckedDocument, use: str, most: int) -> int:
    """How often a subgraph runs X in one go, at most; 0 when it never does."""
    weights = _by_use(graph.document, graph.subgraphs, use, most)
    if not weights:
        return 0
    from graphflow.graph.invariants.model_checker import most_entries  # rare: not loaded with the engine (E20)

    return max(1, most_entries(graph.document, with_retries(graph.document, weights), most))
