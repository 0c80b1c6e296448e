"""Questions about the shape of a graph; the one place that uses networkx, imported to show the cycle that an error is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Edges = Mapping[str, Iterable[str]]


def reachable(edges: Edges, starts: Iterable[str]) -> set[str]:
    """Every name that some path from the starts leads to, the starts included that are names of the graph.

    Without networkx: each start of a command or a server asks this, and importing it is a fifth of that start.
    """
    names = {*edges, *(target for targets in edges.values() for target in targets)}
    due = [start for start in starts if start in names]
    found = set(due)
    while due:
        for target in edges.get(due.pop(), ()):
            if target not in found:
                found.add(target)
                due.append(target)
    return found


def leading_to(edges: Edges, ends: Iterable[str]) -> set[str]:
    """Every name from which some path leads to one of the ends, the ends included."""
    backward: dict[str, list[str]] = {}
    for name, targets in edges.items():
        for target in targets:
            backward.setdefault(target, []).append(name)
    ends = list(ends)
    return reachable({**{end: [] for end in ends}, **backward}, ends)


def loops(edges: Edges) -> list[list[str]]:
    """The cyclic parts: each is a list of names, every one of which can reach every other, in the order of `edges`.

    Tarjan's algorithm without recursion: every plan is built with it, and networkx takes longer to import than a run.
    """
    order = {name: place for place, name in enumerate(edges)}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    parts: list[list[str]] = []
    for first in edges:
        if first in index:
            continue
        work = [(first, iter(edges[first]))]
        index[first] = low[first] = len(index)
        stack.append(first)
        on_stack.add(first)
        while work:
            name, targets = work[-1]
            for target in targets:
                # A wrong name leads nowhere; it is reported as such, and not as part of a cycle.
                if target not in order:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    part: list[str] = []
                    while not part or part[-1] != name:
                        part.append(stack.pop())
                    on_stack.difference_update(part)
                    if len(part) > 1 or name in edges[name]:
                        parts.append(sorted(part, key=order.__getitem__))
    # In the order of the document and not of the search: messages must not depend on how it walks.
    return sorted(parts, key=lambda part: order[part[0]])


def back_edges(out: Sequence[Sequence[tuple[int, int]]], roots: Sequence[int]) -> set[int]:
    """Ids of the edges that close a cycle, found depth-first from `roots`; `out[v]` is `(edge id, target)` in order."""
    found: set[int] = set()
    # With a stack of its own: a drawing of a thousand nodes in a row would pass the recursion limit.
    open_, done = [False] * len(out), [False] * len(out)
    for root in roots:
        if done[root]:
            continue
        open_[root] = True
        stack = [(root, iter(out[root]))]
        while stack:
            vertex, rest = stack[-1]
            for edge, target in rest:
                if open_[target]:
                    found.add(edge)
                elif not done[target]:
                    open_[target] = True
                    stack.append((target, iter(out[target])))
                    break
            else:
                stack.pop()
                open_[vertex], done[vertex] = False, True
    return found


def one_cycle(edges: Edges, within: Iterable[str]) -> list[str]:
    """A cycle among these names, in its order and beginning with the first of them that lies on one."""
    import networkx as nx

    names = list(within)
    graph = nx.DiGraph()
    graph.add_nodes_from(edges)
    graph.add_edges_from((name, target) for name, targets in edges.items() for target in targets)
    graph = graph.subgraph(names)
    # networkx walks from one node: the first that lies on a cycle decides which one is shown, the same each time.
    for name in names:
        try:
            found = nx.find_cycle(graph, name)
        except nx.NetworkXNoCycle:
            continue
        cycle = [edge[0] for edge in found]
        begin = min(range(len(cycle)), key=lambda place: names.index(cycle[place]))
        return cycle[begin:] + cycle[:begin]
    return []
