"""Regions: which nodes the branches of `map` and `parallel` nodes run in (spec 2.1 rule 5, E10).

A branch's body is the region reachable from its `do` up to `end` and `fail`. A fan (a `map` or `parallel` node) inside
a region has regions of its own; they are not part of the outer one. The main flow is what `start` and
`budget.onExceeded` reach without entering a body. Loads neither checks nor networkx: the plan is built with it too
(E20).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from graphflow.graph.definition.document import END, Branch, Choose, GraphDefinition, GraphRef, NodeDefinition
from graphflow.graph.definition.json_pointer import escape

MAP_BRANCH = ""
"""The name of a map's one body: its branches are told apart by index, not by name."""


@dataclass(frozen=True)
class Successor:
    """One way on from a node, within its frame."""

    to: str
    pointer: str
    sure: bool
    """The only way on, taken each time."""


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """One body: where a branch begins and the nodes that its frame can stand on."""

    fan: str
    """The `map` or `parallel` node that opens it."""
    branch: str
    """The branch's name; `""` in a map."""
    entry: str | None
    """The node at which a branch begins; None when the body is a whole subgraph."""
    graph: GraphRef | None
    """The subgraph that is the body, else None."""
    after: tuple[str, ...]
    """Branches of the same fan that must have finished before this one opens."""
    nodes: frozenset[str]
    """Without those of the regions inside it; empty when the body is a subgraph."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A way into a node that belongs to another region: what E10 forbids."""

    pointer: str
    to: str
    source: str | None
    """The node whose route or `do` it is; None for `budget.onExceeded`."""
    body: bool
    """It is a fan's `do`, not a route."""
    inside: Region | None
    """Where the way comes from (of a `do`: the region that it opens); None is the main flow."""
    owner: Region | None
    """Where the node belongs; None is the main flow."""


@dataclass(kw_only=True)
class Survey:
    """A document by regions. With crossings in it, each node still belongs to one region only: the first to reach it."""

    regions: dict[str, dict[str, Region]] = field(default_factory=dict)
    """Fan → branch name → region, in the order of the document."""
    home: dict[str, Region] = field(default_factory=dict)
    """Node → the innermost region that it is in; nodes of the main flow, and unreachable ones, are absent."""
    main: frozenset[str] = frozenset()
    """The nodes of the main flow."""
    crossings: list[Crossing] = field(default_factory=list)

    def around(self, node: str) -> Iterator[Region]:
        """The regions that a node is in, from the innermost outwards."""
        seen: set[str] = set()
        region = self.home.get(node)
        # A wrong document may put a fan into its own body; `seen` ends the walk.
        while region is not None and region.fan not in seen:
            yield region
            seen.add(region.fan)
            region = self.home.get(region.fan)


def regions(document: GraphDefinition) -> dict[str, dict[str, Region]]:
    """Fan → branch name (`""` in a map) → its region, for every `map` and `parallel` node of the document."""
    return survey(document).regions


def body_name(fan: str, branch: str) -> str:
    """The name of a body where it needs one of its own: `fan`, `fan[a]`."""
    return f"{fan}[{branch}]" if branch else fan


def agent_of(node: NodeDefinition) -> str | None:
    """The key of the agent that an `agent:` node opens; None of any other node."""
    word, _, key = (node.use or "").partition(":")
    return key if word == "agent" and key else None


def is_fan(node: NodeDefinition) -> bool:
    """Whether the node opens branches."""
    return node.map is not None or node.parallel is not None


def routes_of(name: str, node: NodeDefinition) -> Iterator[Successor]:
    """Every way out of a node that its own frame takes; a missing `next` leads to `end`."""
    pointer = f"/nodes/{escape(name)}"
    if isinstance(node.next, Choose):
        for index, to in enumerate(node.next.choose):
            yield Successor(to, f"{pointer}/next/choose/{index}", len(node.next.choose) == 1)
    elif isinstance(node.next, tuple):
        for index, route in enumerate(node.next):
            # The only entry counts as taken each time, whatever its `if`: a last entry with an `if` is an error of its
            # own.
            yield Successor(route.to, f"{pointer}/next/{index}/to", len(node.next) == 1)
    else:
        yield Successor(node.next or END, f"{pointer}/next", True)
    for index, failed in enumerate(node.error):
        yield Successor(failed.to, f"{pointer}/error/{index}/to", False)
    if node.ask is not None and node.ask.on_expire is not None:
        yield Successor(node.ask.on_expire, f"{pointer}/ask/onExpire", False)


@dataclass(frozen=True)
class BranchBody:
    """One `do` of a fan, as written."""

    branch: str
    do: str | GraphRef
    after: tuple[str, ...]
    pointer: str
    """Of the `do`."""


def bodies_of(name: str, node: NodeDefinition) -> Iterator[BranchBody]:
    """The bodies of a fan in branch order; none for other nodes."""
    pointer = f"/nodes/{escape(name)}"
    if node.map is not None and node.do is not None:
        yield BranchBody(MAP_BRANCH, node.do, (), f"{pointer}/do")
    for branch, body in (node.parallel or {}).items():
        place = f"{pointer}/parallel/{escape(branch)}"
        if isinstance(body, Branch):
            yield BranchBody(branch, body.do, body.after, f"{place}/do")
        else:
            yield BranchBody(branch, body, (), place)


def input_of(node: NodeDefinition, body: BranchBody) -> Any:
    """The template of a subgraph body's input: its own `with`, else the fan's, else the item under its name."""
    if isinstance(body.do, GraphRef) and body.do.with_ is not None:
        return body.do.with_
    if node.with_ is not None:
        return node.with_
    return {node.as_: f"${{{node.as_}}}"} if node.map is not None and node.as_ else {}


def survey(document: GraphDefinition) -> Survey:
    """The regions of a document, who owns each node, and every way that crosses a border."""
    return _Surveyor(document).survey()


class _Surveyor:
    """Claims nodes from outside inwards: the main flow, its fans' bodies, the bodies of the fans in those, …"""

    def __init__(self, document: GraphDefinition) -> None:
        self._document = document
        self._nodes: Mapping[str, NodeDefinition] = document.nodes
        self._owner: dict[str, tuple[str, str] | None] = {}
        self._claims: dict[tuple[str, str], Region] = {}
        self._crossings: list[tuple[Successor, str | None, bool, tuple[str, str] | None]] = []
        self._done: set[str] = set()

    def survey(self) -> Survey:
        main: set[str] = set()
        if self._document.start in self._nodes:
            main |= self._claim(self._document.start, None)
        # Bodies before the wrap-up node: a node that both reach belongs to the body, and the budget route is the error.
        self._open_fans(main)
        self._claim_wrap_up(main)
        self._open_fans(main)
        self._open_fans(self._nodes)  # unreachable fans get their bodies too
        return self._result(main)

    def _claim(self, entry: str, key: tuple[str, str] | None) -> set[str]:
        """Claims the reachable nodes that no region owns; an edge to any other node is a crossing."""
        self._owner[entry] = key
        claimed, rest = {entry}, [entry]
        while rest:
            name = rest.pop()
            for edge in routes_of(name, self._nodes[name]):
                if edge.to not in self._nodes or edge.to in claimed:
                    continue
                if edge.to in self._owner:
                    # Claimed from outside inwards: the outermost region owns a node, and errors name the inner route.
                    if self._owner[edge.to] != key:
                        self._crossings.append((edge, name, False, key))
                    continue
                self._owner[edge.to] = key
                claimed.add(edge.to)
                rest.append(edge.to)
        return claimed

    def _open_fans(self, names: Iterable[str]) -> None:
        """The bodies of the fans among these, and level by level of the fans inside them."""
        level = [name for name in self._nodes if name in names]
        while level:
            inside: set[str] = set()
            for name in level:
                if name not in self._done:
                    self._done.add(name)
                    inside |= self._open(name)
            level = [name for name in self._nodes if name in inside]

    def _open(self, fan: str) -> set[str]:
        found: set[str] = set()
        for body in bodies_of(fan, self._nodes[fan]):
            key = (fan, body.branch)
            do, nodes = body.do, set[str]()
            if isinstance(do, str) and do in self._nodes:
                if do in self._owner:
                    self._crossings.append((Successor(do, body.pointer, False), fan, True, key))
                else:
                    nodes = self._claim(do, key)
            is_graph = not isinstance(do, str)
            self._claims[key] = Region(
                fan=fan,
                branch=body.branch,
                entry=None if is_graph else str(do),
                graph=do if isinstance(do, GraphRef) else None,
                after=body.after,
                nodes=frozenset(nodes),
            )
            found |= nodes
        return found

    def _claim_wrap_up(self, main: set[str]) -> None:
        then = self._document.budget.on_exceeded
        if then is None or then not in self._nodes or then in main:
            return
        if then in self._owner:
            self._crossings.append((Successor(then, "/budget/onExceeded", False), None, False, None))
        else:
            main |= self._claim(then, None)

    def _result(self, main: set[str]) -> Survey:
        out = Survey(main=frozenset(main))
        out.regions = {name: {} for name in self._nodes if name in self._done and is_fan(self._nodes[name])}
        for (fan, branch), region in self._claims.items():
            out.regions[fan][branch] = region
        out.home = {name: self._claims[key] for name, key in self._owner.items() if key is not None}
        out.crossings = [
            Crossing(
                pointer=edge.pointer,
                to=edge.to,
                source=source,
                body=body,
                inside=None if key is None else self._claims[key],
                owner=out.home.get(edge.to),
            )
            for edge, source, body, key in self._crossings
        ]
        return out


def predecessors(after: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Branch → every branch that has finished before it opens, directly or through others.

    Args:
        after: branch → the branches that it names; unknown names are left out, and a branch of a cycle counts among
            its own predecessors.
    """
    out: dict[str, frozenset[str]] = {}
    for branch in after:
        found: set[str] = set()
        rest = [name for name in after[branch] if name in after]
        while rest:
            name = rest.pop()
            if name not in found:
                found.add(name)
                rest += [further for further in after[name] if further in after]
        out[branch] = frozenset(found)
    return out


def branch_order(after: Mapping[str, Iterable[str]]) -> list[str]:
    """The branches of a parallel in the order in which their writes are reduced.

    That of the document, but for a branch that waits for one further down: it comes right after the last of those.
    """
    before = predecessors(after)
    out: dict[str, None] = {}
    rest = list(after)
    while rest:
        # In a cycle of `after` nothing is free. That is an error of the document, reported elsewhere; here the loop
        # must only end.
        free = next((name for name in rest if before[name] <= out.keys()), rest[0])
        out[free] = None
        rest.remove(free)
    return list(out)
