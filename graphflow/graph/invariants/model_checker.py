"""Proofs over the control graph (spec 2.1 rule 10): each gives the shortest path that breaks a property, or None.

The control graph has every path that a run can take by itself: routes and `Goto` choices, error routes (also those of
the fans around a branch), expiries, and the budget's `onExceeded`, from any node and once. What people do from
outside, skipping at a breakpoint, editing, migrating, is not part of the graph: there the monitor enforces the
property at run time.

Conditions are ignored, except for what they say about `visits` when entries are counted: `visits.judge < 3` bounds a
cycle, and so does `visits.judge < limits.rounds` if the document's budget has that limit.

A map's branch may be entered any number of times, each of a parallel's once. That every branch has ended before the run
goes on is known only where the join waits for all and fails with the first failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from graphflow.graph.definition.budget import limits_of
from graphflow.graph.definition.document import END, FAIL, Choose, GraphDefinition, Join, Route
from graphflow.graph.definition.regions import Region, branch_order, predecessors, survey
from graphflow.graph.expressions.visit_bounds import VisitBound, visit_bound

SEARCHED = 60_000
"""Situations that a search with visit counts may examine; a larger one runs without counts and proves less."""

Place = str | tuple[str, ...]
"""A node, `end`, or a mark between nodes: `(ended, FAN, BRANCH)`, `(joined, FAN)`, `(next, FAN, INDEX)`."""
_At = TypeVar("_At")
Trace = list[str]
"""Node names, each with the reason why it was left if that was not a route: `plan`, `approve (expired)`, `send`."""


class ControlGraph:
    """The control graph of one document, frames and joins included."""

    def __init__(self, document: GraphDefinition) -> None:
        self.document = document
        self.nodes = document.nodes
        self.on_exceeded = document.budget.on_exceeded
        found = survey(document)
        self.regions: dict[str, list[Region]] = {}
        for fan, regions in found.regions.items():
            order = branch_order({name: region.after for name, region in regions.items()})
            self.regions[fan] = [regions[name] for name in order]
        self.home = found.home
        self._around = {name: [region.fan for region in found.around(name)] for name in document.nodes}

    def routes(self, name: str) -> list[tuple[Route, Place | None]]:
        """Where a node that has finished leads, in order; None ends the path (`fail`)."""
        node = self.nodes[name]
        if isinstance(node.next, Choose):
            routes = [Route(to=to) for to in node.next.choose]
        elif isinstance(node.next, tuple):
            routes = list(node.next)
        else:
            routes = [Route(to=node.next or END)]
        return [(route, self.target(name, route.to)) for route in routes]

    def target(self, name: str, to: str) -> Place | None:
        """Where a route of this node to `to` leads: `end` in a branch ends the branch."""
        if to == FAIL:
            return None
        region = self.home.get(name)
        return ("ended", region.fan, region.branch) if to == END and region is not None else to

    def unfinished(self, name: str) -> Iterator[tuple[str, Place]]:
        """`(why, where)` for each exit of a node that has not finished, except the budget's."""
        node = self.nodes[name]
        for owner in (name, *self._around[name]):
            for failed in self.nodes[owner].error:
                if (place := self.target(owner, failed.to)) is not None:
                    yield "failed", place
        if node.ask is not None and node.ask.on_expire is not None:
            if (place := self.target(name, node.ask.on_expire)) is not None:
                yield "expired", place

    def waits_for_all(self, fan: str) -> bool:
        """Whether every branch of a parallel has ended, and none failed, when the run goes on after it."""
        node = self.nodes[fan]
        join = node.join or Join()
        return node.parallel is not None and join.wait == "all" and join.on_error == "fail"


# --- before X visit Y ----------------------------------------------------------------------------


def path_around(document: GraphDefinition, nodes: Mapping[str, int], first: frozenset[str]) -> Trace | None:
    """A path from the start that enters one of `nodes` before any of `first` has finished."""
    return _Around(ControlGraph(document), frozenset(nodes), first).search()


class _Around:
    """Searches every place that is reachable while no Y has finished."""

    def __init__(self, graph: ControlGraph, nodes: frozenset[str], first: frozenset[str]) -> None:
        self._graph, self._nodes, self._first = graph, nodes, first
        self._from: dict[Place, tuple[Place, str] | None] = {}
        self._rest: deque[Place] = deque()
        self._waiting: list[tuple[set[Place], Place]] = []
        """(places still to be reached, what is reached then)."""

    def search(self) -> Trace | None:
        self._reach(self._graph.document.start, None, "")
        while self._rest:
            place = self._rest.popleft()
            if place in self._nodes:
                return _shown(_back_to_start(self._from, place))
            if isinstance(place, tuple):
                self._settle(place)
            elif place != END:
                self._leave(place)
        return None

    def _reach(self, place: Place | None, source: Place | None, why: str) -> None:
        if place is not None and place not in self._from:
            self._from[place] = None if source is None else (source, why)
            self._rest.append(place)

    def _leave(self, name: str) -> None:
        graph = self._graph
        if name in graph.regions:
            self._open(name)
        # Once Y has finished everything may follow, so the search ends there.
        elif name not in self._first:
            for _, target in graph.routes(name):
                self._reach(target, name, "")
        for why, target in graph.unfinished(name):
            self._reach(target, name, why)
        self._reach(graph.on_exceeded, name, "budget")

    def _open(self, fan: str) -> None:
        """Opens a fan's branches; if the join need not wait for all of them, the path goes on at once."""
        graph, strict = self._graph, self._graph.waits_for_all(fan)
        regions = graph.regions[fan]
        before = predecessors({region.branch: region.after for region in regions})
        fails = (graph.nodes[fan].join or Join()).on_error == "fail"
        for region in regions:
            entry: Place = region.entry if region.entry is not None else ("ended", fan, region.branch)
            # Where failures are collected or skipped, a branch may open although one that it waits for has failed.
            ends = {("ended", fan, branch) for branch in before[region.branch]} if fails else set()
            self._when(ends, entry, fan)
        ends = {("ended", fan, region.branch) for region in regions} if strict else set()
        self._when(ends, ("joined", fan), fan)

    def _when(self, ends: set[tuple[str, str, str]], place: Place, fan: str) -> None:
        # Reached once is enough: the search only asks what can happen, not how often.
        missing: set[Place] = {end for end in ends if end not in self._from}
        if not missing:
            self._reach(place, next(iter(sorted(ends)), fan), "")
        else:
            self._waiting.append((missing, place))

    def _settle(self, place: tuple[str, ...]) -> None:
        if place[0] == "joined" and place[1] not in self._first:
            for _, target in self._graph.routes(place[1]):
                self._reach(target, place, "")
        for missing, then in self._waiting:
            if place in missing:
                missing.discard(place)
                if not missing:
                    self._reach(then, place, "")


# --- X at most N ---------------------------------------------------------------------------------


def path_exceeding(document: GraphDefinition, weights: Mapping[str, int], count: int) -> Trace | None:
    """A path from the start whose entries of these nodes weigh more than `count` in total."""
    return _Counting(ControlGraph(document), weights, count).search()[1]


def most_entries(document: GraphDefinition, weights: Mapping[str, int], count: int) -> int:
    """The greatest weight of the entries on any path, or some number above `count` if a path exceeds it."""
    return _Counting(ControlGraph(document), weights, count).search()[0]


_Situation = tuple[Place, tuple[int, ...], bool]
"""A place, the counts of the nodes that conditions name, and whether the budget was used up."""


class _TooLarge(Exception):
    """The search has more situations than it may examine."""


class _Counting:
    """Follows every path with its entries so far; of two that reach the same situation, only the heavier one."""

    def __init__(self, graph: ControlGraph, weights: Mapping[str, int], count: int) -> None:
        self._graph, self._weights, self._count = graph, weights, count
        limits = limits_of(graph.document.budget)
        self._conditions: dict[str, VisitBound | None] = {}
        caps: dict[str, int] = {}
        for node in graph.nodes.values():
            for route in node.next if isinstance(node.next, tuple) else ():
                if route.when is not None and route.when not in self._conditions:
                    known = self._conditions[route.when] = visit_bound(route.when, limits)
                    for name, most in () if known is None else known.thresholds:
                        if name in graph.nodes:
                            caps[name] = max(caps.get(name, 0), most)
        self._set_counted(caps)

    def _set_counted(self, caps: Mapping[str, int]) -> None:
        self._caps = tuple(caps.values())
        self._places = {name: place for place, name in enumerate(caps)}

    def search(self) -> tuple[int, Trace | None]:
        try:
            return self._search(SEARCHED if self._places else None)
        except _TooLarge:
            self._set_counted({})
            return self._search(None)

    def _search(self, limit: int | None) -> tuple[int, Trace | None]:
        start = self._enter(self._graph.document.start, (0,) * len(self._caps), wrapped=False)
        begun = (start, self._weight(start[0]))
        best: dict[_Situation, int] = {start: begun[1]}
        sources: dict[tuple[_Situation, int], tuple[tuple[_Situation, int], str] | None] = {begun: None}
        rest = deque([begun])
        # Breadth first, so the path that is shown is a shortest one.
        while rest:
            at = rest.popleft()
            situation, entered = at
            if entered > self._count:
                return entered, _shown([(each[0][0], why) for each, why in _back_to_start(sources, at)])
            # A heavier path has reached this situation since; what follows from here follows from that one too.
            if best[situation] > entered:
                continue
            for why, following in self._following(situation):
                total = entered + self._weight(following[0])
                if total > best.get(following, -1):
                    best[following] = total
                    sources[following, total] = (at, why)
                    rest.append((following, total))
            # Without the counts the search is linear, and proves less: conditions on visits no longer bound a cycle.
            if limit is not None and len(best) > limit:
                raise _TooLarge
        return max(best.values()), None

    def _weight(self, place: Place) -> int:
        return self._weights.get(place, 0) if isinstance(place, str) else 0

    def _following(self, situation: _Situation) -> Iterator[tuple[str, _Situation]]:
        place, counts, wrapped = situation
        graph = self._graph
        if isinstance(place, tuple):
            counts = self._without_branches(place[1], counts)
            yield from (("", self._enter(to, counts, wrapped)) for to in self._between(place))
            return
        if place == END:
            return
        if place in graph.regions:
            yield "", (("next", place, "0"), counts, wrapped)
        else:
            yield from (("", self._enter(to, counts, wrapped)) for to in self._routes(place, counts))
        for why, target in graph.unfinished(place):
            yield why, self._enter(target, counts, wrapped)
        yield from self._abandoned(place, counts, wrapped)
        if graph.on_exceeded is not None and not wrapped:
            yield "budget", self._enter(graph.on_exceeded, counts, wrapped=True)

    def _routes(self, name: str, counts: tuple[int, ...]) -> Iterator[Place]:
        """Routes that may be taken at these counts: the first that surely holds is the last."""
        visits = self._visits(name, counts)
        for route, target in self._graph.routes(name):
            bound = self._conditions.get(route.when) if route.when is not None else None
            known = None if bound is None else bound.holds(visits)
            if known is not False and target is not None:
                yield target
            if known is True:
                return

    def _visits(self, name: str, counts: tuple[int, ...]) -> dict[str, int]:
        """The counts that a condition in this node's frame sees."""
        home = self._graph.home
        return {other: counts[at] for other, at in self._places.items() if home.get(other) == home.get(name)}

    def _between(self, place: tuple[str, ...]) -> Iterator[Place]:
        """What follows a branch: the same one again in a map, a later one, or what comes after the join."""
        graph, fan = self._graph, place[1]
        regions, is_map = graph.regions[fan], graph.nodes[fan].map is not None
        if place[0] == "ended":
            index = next(i for i, region in enumerate(regions) if region.branch == place[2])
            yield ("next", fan, str(index if is_map else index + 1))
            return
        for index in range(int(place[2]), len(regions)):
            region = regions[index]
            yield region.entry if region.entry is not None else ("ended", fan, region.branch)
        yield from (target for _, target in graph.routes(fan) if target is not None)
        yield from (target for _, target in graph.unfinished(fan))

    def _abandoned(self, name: str, counts: tuple[int, ...], wrapped: bool) -> Iterator[tuple[str, _Situation]]:
        """A branch that fails or is cancelled leaves the others to go on."""
        region = self._graph.home.get(name)
        if region is not None:
            yield "failed", (("ended", region.fan, region.branch), counts, wrapped)

    def _enter(self, place: Place, counts: tuple[int, ...], wrapped: bool) -> _Situation:
        """A node's entry counts, up to where no condition changes any more."""
        if not self._places or not isinstance(place, str):
            return place, counts, wrapped
        at = self._places.get(place)
        if at is None:
            return place, counts, wrapped
        return place, (*counts[:at], min(counts[at] + 1, self._caps[at]), *counts[at + 1 :]), wrapped

    def _without_branches(self, fan: str, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Each branch is a frame of its own, and counts from nothing."""
        inside = {at for name, at in self._places.items() if (r := self._graph.home.get(name)) and r.fan == fan}
        return tuple(0 if at in inside else count for at, count in enumerate(counts)) if inside else counts


# --- end reachable -------------------------------------------------------------------------------


def path_to_trap(document: GraphDefinition) -> Trace | None:
    """A way from the start to a node from which no way leads to `end`, were the budget never used up."""
    graph = ControlGraph(document)
    back: dict[Place, list[Place]] = {}
    for name in document.nodes:
        for place, target in _ways(graph, name):
            back.setdefault(target, []).append(place)
    leading = _spread([END], lambda place: back.get(place, []))
    sources: dict[Place, tuple[Place, str] | None] = {}
    rest: deque[Place] = deque()

    def reach(place: Place, source: Place | None, why: str) -> None:
        if place not in sources:
            sources[place] = None if source is None else (source, why)
            rest.append(place)

    forward: dict[Place, list[tuple[Place, str]]] = {}
    for name in document.nodes:
        for place, target in _ways(graph, name):
            forward.setdefault(place, []).append((target, ""))
        if graph.on_exceeded is not None:
            forward.setdefault(name, []).append((graph.on_exceeded, "budget"))
    reach(document.start, None, "")
    while rest:
        at = rest.popleft()
        if at not in leading:
            return _shown(_back_to_start(sources, at))
        for target, why in forward.get(at, ()):
            reach(target, at, why)
    return None


def _ways(graph: ControlGraph, name: str) -> Iterator[tuple[Place, Place]]:
    """`(from, to)` of everything that a node makes possible; a fan's branches one after another."""
    if name in graph.regions:
        yield name, ("joined", name)
        for region in graph.regions[name]:
            end = ("ended", name, region.branch)
            yield name, region.entry if region.entry is not None else end
            yield end, ("joined", name)
        yield from ((("joined", name), target) for _, target in graph.routes(name) if target is not None)
    else:
        yield from ((name, target) for _, target in graph.routes(name) if target is not None)
    yield from ((name, target) for _, target in graph.unfinished(name))


def _spread(begin: list[Place], further: Callable[[Place], list[Place]]) -> set[Place]:
    out, rest = set(begin), list(begin)
    while rest:
        for place in further(rest.pop()):
            if place not in out:
                out.add(place)
                rest.append(place)
    return out


def _back_to_start(sources: Mapping[_At, tuple[_At, str] | None], at: _At) -> list[tuple[_At, str]]:
    """The way that a search took to `at`, each stop with why it was left."""
    out: list[tuple[_At, str]] = [(at, "")]
    while (source := sources[at]) is not None:
        out.append(source)
        at = source[0]
    return out[::-1]


def _shown(path: list[tuple[Place, str]]) -> Trace:
    """The nodes of a path, each with why it was left where that was no route."""
    return [f"{place} ({why})" if why else place for place, why in path if isinstance(place, str)]
