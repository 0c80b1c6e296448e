"""Checks of routes and of the graph that they make (spec 2.1 rules 2 and 8, 2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from graphflow.graph.definition import graph_queries
from graphflow.graph.definition.document import END, FAIL, RESERVED_NODES, Budget, Choose, NodeDefinition
from graphflow.graph.definition.json_pointer import pointer as at
from graphflow.graph.definition.regions import Successor, bodies_of, routes_of
from graphflow.graph.validation.context import ValidationContext, is_map_without
from graphflow.suggestions import choose

_LIMITS = tuple(field for field in msgspec.structs.fields(Budget) if field.name != "on_exceeded")

_NEVER_GOTO = frozenset({"model", "tools", "tool", "agent", "fn", "verify", "plan", "wait"})
"""Kinds whose functions return a value, never a `Goto`."""


_ANYWHERE = "any node"
"""Stands for every node where it is not known which one a route means; no valid name contains a space."""


def _edges_of(name: str, node: NodeDefinition) -> Iterator[Successor]:
    """Every way out of a node, into the bodies of its branches too."""
    yield from routes_of(name, node)
    for body in bodies_of(name, node):
        if isinstance(body.do, str):
            yield Successor(body.do, body.pointer, False)


def check_routes(context: ValidationContext) -> None:
    """Every route by itself, then the graph."""
    _check_start(context)
    for name, node in context.nodes.items():
        if not context.is_lost(name, "next"):
            _check_order(context, name, node)
        for edge in _edges_of(name, node):
            if edge.to not in context.nodes and edge.to not in RESERVED_NODES:
                context.issue(
                    edge.pointer, f"no node is named {edge.to!r}", choose(edge.to, [*context.nodes, *RESERVED_NODES])
                )
    if context.nodes:
        _check_graph(context)


def _check_start(context: ValidationContext) -> None:
    start = context.document.start
    if not context.nodes or "start" not in context.data or "start" in context.lost_top:
        return  # reported elsewhere
    if start not in context.nodes:
        context.issue("/start", f"no node is named {start!r}", choose(start, context.nodes))


def _check_order(context: ValidationContext, name: str, node: NodeDefinition) -> None:
    """First match wins, so the last entry has no `if`, and only the last."""
    pointer = at("nodes", name, "next")
    if isinstance(node.next, Choose):
        _check_choose(context, pointer, node)
        return
    if not isinstance(node.next, tuple):
        return
    if not node.next:
        context.issue(pointer, "an empty list of routes leads nowhere", 'write "end", or one {"to": …}', kind="graph")
        return
    *before, last = node.next
    if last.when is not None:
        message = f"the last route has an `if`, so when {last.when!r} is false no route is left"
        context.issue(f"{pointer}/{len(before)}", message, 'add {"to": "NODE"} at the end of the list', kind="graph")
    for index, route in enumerate(before):
        if route.when is None:
            message = f"this route has no `if`, so the {len(node.next) - index - 1} after it are never taken"
            context.issue(f"{pointer}/{index}", message, "give it an `if`, or make it the last", kind="graph")


def _check_choose(context: ValidationContext, pointer: str, node: NodeDefinition) -> None:
    assert isinstance(node.next, Choose)
    if not node.next.choose:
        context.issue(
            f"{pointer}/choose",
            "an empty list leaves nothing to choose",
            "name the nodes that `Goto` may take",
            kind="graph",
        )
    word = (node.use or "").partition(":")[0]
    if node.use is None or word in _NEVER_GOTO:
        hint = "write a list of {if, to}, or use a Python node (`node:NAME`) that returns `Goto`"
        context.issue(pointer, "only a Python node can choose its route", hint, kind="graph")


@dataclass(frozen=True)
class _Ways:
    """The edges of the graph, in the forms that the graph queries take."""

    possible: dict[str, list[str]]
    """Where each node may lead; a node whose routes are partly unknown may lead anywhere, so that a wrong
    name is reported once and not as everything that follows from it."""
    known: dict[str, list[str]]
    """The same without nodes whose routes are partly unknown."""
    opened: dict[str, list[str]]
    """`possible`, and from each fan to where its branches begin: what can run at all."""
    sure: dict[str, list[str]]
    """Nodes with one way on, taken each time."""


def _ways(context: ValidationContext) -> _Ways:
    every = {*context.nodes, *RESERVED_NODES}
    # One stop on the way to everywhere, and not an edge to each node from each: those would grow with the square.
    anywhere = {_ANYWHERE: [*context.nodes, *RESERVED_NODES]}
    ends: dict[str, list[str]] = {END: [], FAIL: []}
    ways = _Ways({**ends, **anywhere}, ends.copy(), {**ends, **anywhere}, {})
    for name, node in context.nodes.items():
        targets = list(dict.fromkeys(edge.to for edge in routes_of(name, node)))
        begun = list(dict.fromkeys(edge.to for edge in _edges_of(name, node)))
        lost = node.next == () or context.is_lost(name, "next", "error", "ask", "map", "parallel")
        lost = lost or is_map_without(context, name, "do")
        if lost or not every.issuperset(begun):
            # One wrong name must not make half of the graph unreachable: such a node may lead anywhere.
            ways.possible[name], ways.known[name], ways.opened[name] = [_ANYWHERE], [], [_ANYWHERE]
            continue
        ways.possible[name] = ways.known[name] = targets
        ways.opened[name] = begun
        if len(targets) == 1:
            ways.sure[name] = targets
    return ways


def _check_graph(context: ValidationContext) -> None:
    """Unreachable nodes, dead ends, and cycles that nothing ends."""
    ways = _ways(context)
    endless = _check_endless(context, ways)
    _check_reach(context, ways, endless)
    _check_bounds(context, ways)


def _check_endless(context: ValidationContext, ways: _Ways) -> set[str]:
    """Cycles of routes that are taken each time; gives their nodes."""
    out: set[str] = set()
    for part in graph_queries.loops(ways.sure):
        out.update(part)
        cycle = graph_queries.one_cycle(ways.sure, part)
        context.issue(
            at("nodes", cycle[0], "next"),
            f"the cycle {show_cycle(cycle)} has no condition, so it never ends",
            'give one of its routes a condition: "next": [{"if": "…", "to": "…"}, {"to": "end"}]',
            kind="graph",
        )
    return out


def show_cycle(cycle: list[str]) -> str:
    """`plan → judge → plan`."""
    return " → ".join([*cycle, cycle[0]])


def _check_reach(context: ValidationContext, ways: _Ways, endless: set[str]) -> None:
    start = context.document.start
    met = graph_queries.reachable(ways.opened, _starts(context))
    finishing = graph_queries.leading_to(ways.possible, (END, FAIL))
    into_endless = graph_queries.leading_to(ways.possible, endless)
    for name in context.nodes:
        if name not in met:
            message = f"no route leads to node {name!r}"
            context.issue(at("nodes", name), message, "add a route to it, or remove it", kind="graph")
        # A node that only leads into an endless cycle is not reported again: the cycle is.
        elif name not in finishing and name not in into_endless:
            message = f"no path from node {name!r} reaches 'end'"
            context.issue(at("nodes", name), message, 'give it a route to "end"', kind="graph")
    # Only where some path ends at all: a graph that never does is reported node by node above.
    if start in context.nodes and start in finishing and END not in graph_queries.reachable(ways.possible, [start]):
        message = f"every path from {start!r} ends in 'fail'"
        context.issue("/start", message, 'give some node a route to "end"', kind="graph")


def _starts(context: ValidationContext) -> list[str]:
    """Where runs begin and wrap up; every node while one of these is wrong."""
    start, then = context.document.start, context.document.budget.on_exceeded
    known = {*context.nodes}
    if start not in known or "budget.onExceeded" in context.lost_top or (then is not None and then not in known):
        return list(context.nodes)
    return [start] if then is None else [start, then]


def _check_bounds(context: ValidationContext, ways: _Ways) -> None:
    """A cycle needs a limit that ends it, whatever its condition says (spec 2.1 rule 8)."""
    # A budget with an error of its own may well hold the missing limit.
    if any(key.partition(".")[0] == "budget" for key in context.lost_top):
        return
    # Known routes only: a cycle through a misspelt name would be a second error about one mistake.
    found = graph_queries.loops(ways.known)
    if not found:
        return
    limits = [field.name for field in _LIMITS if getattr(context.document.budget, field.name) is not None]
    if not limits:
        cycle = graph_queries.one_cycle(ways.known, found[0])
        names = ", ".join(field.encode_name for field in _LIMITS)
        context.issue(
            at("nodes", cycle[0]),
            f"the cycle {show_cycle(cycle)} has no budget that ends it",
            f'add "budget": {{"maxSteps": 60}}; limits are {names}',
            kind="graph",
        )
    # Rounds are data for conditions (E11): nothing in the engine ends a run by them.
    elif limits == ["max_rounds"] and not _names_rounds(context):
        context.issue(
            "/budget/maxRounds",
            "maxRounds ends nothing: no condition names limits.rounds",
            'write a condition like "visits.NODE < limits.rounds", or limit maxSteps',
            kind="graph",
            warning=True,
        )


def _names_rounds(context: ValidationContext) -> bool:
    return any(
        route.when is not None and re.search(r"\blimits\s*\.\s*rounds\b", route.when)
        for node in context.nodes.values()
        if isinstance(node.next, tuple)
        for route in node.next
    )
