"""Checks `invariants`: every property must be understood and proved (spec 2.1 rule 10, 2.3)."""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.graph.definition.checked_document import CheckedDocument
from graphflow.graph.definition.document import NODE_FORMS, GraphDefinition
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.invariants.properties import (
    AtMost,
    Before,
    EndReachable,
    Property,
    PropertySyntaxError,
    entered_by,
    finished_by,
    names_of,
    parse,
    with_retries,
)
from graphflow.graph.validation.context import ValidationContext
from graphflow.suggestions import choose


def check_invariants(context: ValidationContext, subgraphs: Mapping[str, CheckedDocument]) -> None:
    """Errors of properties that say nothing, name nothing, or do not hold.

    A graph with errors of its own is not proved: what would be said of it follows from them.
    """
    if "invariants" in context.lost_top:
        return
    broken = any(issue.severity == "error" for issue in context.errors)
    # A node that could not be read may be the one that a property names.
    unsure = not context.nodes or any(context.is_lost(name, *NODE_FORMS) for name in context.nodes)
    for index, text in enumerate(context.document.invariants):
        pointer = at("invariants", index)
        try:
            found = parse(text)
        except PropertySyntaxError as issue:
            context.issue(pointer, issue.message, issue.hint, kind="property")
            continue
        if not unsure and _names(context, pointer, found, subgraphs) and not broken:
            _prove(context, pointer, found, subgraphs)


def _names(context: ValidationContext, pointer: str, found: Property, subgraphs: Mapping[str, CheckedDocument]) -> bool:
    """Whether what the property names is there; a property of nothing is most likely a misspelt one."""
    document, known = context.document, True
    if isinstance(found, EndReachable):
        return True
    if not entered_by(document, subgraphs, found.node):
        _unknown(context, pointer, found.text, found.node)
        known = False
    if isinstance(found, Before) and not finished_by(document, found.first):
        _unknown(context, pointer, found.text, found.first)
        known = False
    return known


def _unknown(context: ValidationContext, pointer: str, text: str, name: str) -> None:
    hint = choose(name, names_of(context.document), none="the document has no node")
    context.issue(pointer, f"{text!r}: {name!r} is not a node, and no node uses it", hint, kind="property")


def _prove(context: ValidationContext, pointer: str, found: Property, subgraphs: Mapping[str, CheckedDocument]) -> None:
    from graphflow.graph.invariants.model_checker import path_around, path_exceeding, path_to_trap

    document = context.document
    match found:
        case Before(node=node, first=first):
            way = path_around(document, entered_by(document, subgraphs, node), finished_by(document, first))
            hint = f"route every path to {node!r} through {first!r}; a path that leaves it by an error or an expiry has not finished it"
        case AtMost(node=node, count=count):
            entered = entered_by(document, subgraphs, node, count)
            way, hint = (
                path_exceeding(document, with_retries(document, entered), count),
                _bound(document, entered, node, count),
            )
        case EndReachable():
            way = path_to_trap(document)
            hint = "give its last node a route to 'end'"
    if way is not None:
        context.issue(pointer, f"{found.text!r} does not hold: {' → '.join(way)}", hint, kind="property")


def _bound(document: GraphDefinition, weights: Mapping[str, int], name: str, count: int) -> str:
    # A single entry that may weigh too much is the cause that no condition on visits can mend.
    heavy = [node for node, weight in weights.items() if weight > count]
    if heavy and count:
        return f"one run of {heavy[0]!r} may use {name!r} more than {count} times, and a proof can't bound that"
    node = next(iter(weights))
    if count and weights[node] < (retried := with_retries(document, weights)[node]):
        return f"the branches that {node!r} runs in are tried again, up to {retried} times: lower `retry.max`, or raise the number"
    return (
        f'bound the cycle by a condition on visits, as in {{"if": "visits.{node} < {max(count, 1)}", "to": …}}, or raise the number'
        if count
        else f"remove every way to {name!r}"
    )
