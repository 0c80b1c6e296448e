"""A document as levels to lay out: the main flow, and inside each `map` and `parallel` node one level per body.

On its level a fan is three items: the node, a group for each body, and the join from which its routes go on. A level
knows nothing of places; `layout.py` lays each out by itself, from the innermost outwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from graphflow.graph.definition.document import END, RESERVED_NODES, Choose, GraphDefinition, Join, NodeDefinition
from graphflow.graph.definition.regions import Region, Survey, body_name, survey

ItemKind = Literal["node", "group", "join"]


@dataclass(frozen=True)
class LevelItem:
    """What takes a place on a level."""

    id: str
    kind: ItemKind
    name: str
    """Of the node, or of the fan that a group or join belongs to."""


@dataclass(frozen=True)
class Link:
    """A line between two items of one level; `source` and `target` are names of nodes."""

    ends: tuple[str, str]
    source: str
    target: str
    condition: str | None = None
    kind: Literal["route", "error", "branch", "join"] = "route"


@dataclass
class Level:
    """What one frame runs."""

    id: str
    """`""` for the main flow, else the body's: `fan[]`, `both[a]`."""
    title: str
    """What stands over the group: `each step`, or the branch's name."""
    start: str
    items: list[LevelItem] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    inner: dict[str, Level] = field(default_factory=dict)
    """Group's id → its level."""
    graphs: dict[str, str] = field(default_factory=dict)
    """Id of what stands for a whole subgraph → its kind, `graph:KEY`."""


def levels_of(document: GraphDefinition) -> Level:
    """The main flow with everything inside it; unreachable nodes are part of it too."""
    return _HierarchyBuilder(document).read()


def group_id(region: Region) -> str:
    return f"{region.fan}[{region.branch}]"


def body_title(region: Region, node: NodeDefinition) -> str:
    """`each step`, `each step, 4 at once`; of a parallel the branch's name and what it waits for."""
    if region.branch:
        return f"{region.branch} after {', '.join(region.after)}" if region.after else region.branch
    at_once = "" if node.max is None else f", {node.max} at once"
    return f"each {node.as_ or 'item'}{at_once}"


def join_title(node: NodeDefinition) -> str:
    """`join all`; `join 2 of 3, collect failures`."""
    join = node.join or Join()
    wait = f"{join.wait} of {len(node.parallel)}" if isinstance(join.wait, int) and node.parallel else str(join.wait)
    losses = {"fail": "", "collect": ", collect failures", "skip": ", skip failures"}[join.on_error]
    return f"join {wait}{losses}"


class _HierarchyBuilder:
    def __init__(self, document: GraphDefinition) -> None:
        self._document = document
        self._survey: Survey = survey(document)
        self._place: dict[str, str] = {}

    def read(self) -> Level:
        top = self._top()
        return self._level("", "", self._document.start, [name for name in self._document.nodes if name in top])

    def _top(self) -> set[str]:
        """Every node that is in no region; of fans that lie in each other's bodies the first, so that all are shown."""
        top = {name for name in self._document.nodes if name not in self._survey.home}
        met: set[str] = set()
        # A broken document may hold fans in each other's bodies; without this walk none of them would be drawn.
        for name in [*(name for name in self._document.nodes if name in top), *self._document.nodes]:
            if name in met:
                continue
            top.add(name)
            rest = [name]
            while rest:
                here = rest.pop()
                if here not in met:
                    met.add(here)
                    for region in self._survey.regions.get(here, {}).values():
                        rest += region.nodes
        return top

    def _level(self, id: str, title: str, start: str, names: Iterable[str]) -> Level:
        level = Level(id, title, start)
        own = [name for name in names if name not in self._place]
        self._place.update(dict.fromkeys(own, id))
        for name in own:
            self._add_node(level, name)
        for name in own:
            level.links += self._links(level, name)
        known = {item.id for item in level.items}
        # `end`, `fail` and names without a node get a box on each level that leads there: no line crosses a group.
        for link in level.links:
            if link.ends[1] not in known:
                known.add(link.ends[1])
                level.items.append(LevelItem(link.ends[1], "node", link.target))
        order = {name: place for place, name in enumerate(RESERVED_NODES, 1)}  # both close the picture
        level.items.sort(key=lambda item: order.get(item.name, 0) if item.kind == "node" else 0)
        return level

    def _add_node(self, level: Level, name: str) -> None:
        level.items.append(LevelItem(name, "node", name))
        node = self._document.nodes[name]
        for region in self._survey.regions.get(name, {}).values():
            inner = self._body(region, node)
            level.inner[inner.id] = inner
            level.items.append(LevelItem(inner.id, "group", name))
        if self._survey.regions.get(name):
            level.items.append(LevelItem(f"{name}/join", "join", name))

    def _body(self, region: Region, node: NodeDefinition) -> Level:
        group, title = group_id(region), body_title(region, node)
        if region.graph is not None:
            key = region.graph.graph
            kind = f"graph:{key}" if isinstance(key, str) else "graph"
            whole = LevelItem(f"{group}/graph", "node", body_name(region.fan, region.branch))
            return Level(group, title, whole.name, [whole], graphs={whole.id: kind})
        entry = region.entry or ""
        inside = [name for name in self._document.nodes if name in region.nodes]
        made = self._level(group, title, entry, inside)
        if entry not in region.nodes:  # a name that no node has, or that belongs elsewhere
            made.items.insert(0, LevelItem(f"{group}/{entry}", "node", entry))
        return made

    # --- links

    def _links(self, level: Level, name: str) -> Iterator[Link]:
        node = self._document.nodes[name]
        regions = self._survey.regions.get(name, {})
        yield from self._body_links(name, regions)
        source = f"{name}/join" if regions else name
        bare = level.id != "" and not isinstance(node.next, tuple | Choose)
        for target, condition in _next_of(node):
            if not (bare and target == END):  # a branch that simply ends: the join says so
                yield self._link(level, source, name, target, condition, "route")
        for error in node.error:
            yield self._link(level, name, name, error.to, ", ".join(error.on), "error")
        if node.ask is not None and node.ask.on_expire:
            yield self._link(level, name, name, node.ask.on_expire, "expired", "error")

    def _link(
        self,
        level: Level,
        source_id: str,
        source: str,
        target: str,
        condition: str | None,
        kind: Literal["route", "error"],
    ) -> Link:
        end = target if self._place.get(target) == level.id or not level.id else f"{level.id}/{target}"
        if not level.id and self._place.get(target, "") != "":
            end = f"/{target}"  # a route into a body, which is an error: it leads to a name without a node
        return Link((source_id, end), source, target, condition, kind)

    def _body_links(self, name: str, regions: Mapping[str, Region]) -> Iterator[Link]:
        waited = {branch for region in regions.values() for branch in region.after}
        ids = {branch: group_id(region) for branch, region in regions.items()}
        for branch, region in regions.items():
            entry = region.entry or body_name(name, branch)
            title = body_title(region, self._document.nodes[name])
            others = [other for other in region.after if other in ids]
            for other in others:
                yield Link((ids[other], ids[branch]), name, entry, title, "branch")
            if not others:
                yield Link((name, ids[branch]), name, entry, title, "branch")
        for branch in regions:
            if branch not in waited:
                yield Link((ids[branch], f"{name}/join"), name, name, None, "join")


def _next_of(node: NodeDefinition) -> Iterator[tuple[str, str | None]]:
    if isinstance(node.next, str):
        yield node.next, None
    elif isinstance(node.next, Choose):
        for target in node.next.choose:
            yield target, "chosen"
    else:
        for route in node.next or ():
            yield route.to, route.when
