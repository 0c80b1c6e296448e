"""Questions about the shape of a graph; the one place that uses networkx, imported when first asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Edges = Mapping[str, Iterable[str]]


def reachable(edges: Edges, starts: Iterable[str]) -> set[str]:
    """Every name that some path from the starts leads to, the starts included."""
    import networkx as nx

    graph = _graph(edges)
    out: set[str] = set()
    for start in starts:
        if start not in out and start in graph:
            out |= {start} | nx.descendants(graph, start)
    return out


def leading_to(edges: Edges, ends: Iterable[str]) -> set[str]:
    """Every name from which some path leads to one of the ends, the ends included."""
    backward: dict[str, list[str]] = {}
    for name, targets in edges.items():
        for target in targets:
            backward.setdefault(target, []).append(name)
    ends = list(ends)
    return reachable({**{end: [] for end in ends}, **backward}, ends)


def loops(edges: Edges) -> list[list[str]]:
    """The cyclic parts: each is a list of names, every one of which can reach every other, in the order of `edges`."""
    import networkx as nx

    order = {name: place for place, name in enumerate(edges)}
    parts = [part for part in nx.strongly_connected_components(_graph(edges)) if _is_loop(part, edges)]
    named = [sorted(part, key=lambda name: order.get(name, len(order))) for part in parts]
    return sorted(named, key=lambda part: order.get(part[0], len(order)))


def one_cycle(edges: Edges, within: Iterable[str]) -> list[str]:
    """A cycle among these names, in its order and beginning with the first of them that lies on one."""
    import networkx as nx

    names = list(within)
    graph = _graph(edges).subgraph(names)
    for name in names:
        try:
            found = nx.find_cycle(graph, name)
        except nx.NetworkXNoCycle:
            continue
        cycle = [edge[0] for edge in found]
        begin = min(range(len(cycle)), key=lambda place: names.index(cycle[place]))
        return cycle[begin:] + cycle[:begin]
    return []


def _is_loop(part: set[str], edges: Edges) -> bool:
    if len(part) > 1:
        return True
    name = next(iter(part))
    return name in edges.get(name, ())


def _graph(edges: Edges) -> Any:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(edges)
    graph.add_edges_from((name, target) for name, targets in edges.items() for target in targets)
    return graph
