"""The one layout behind every picture of a graph: text, Mermaid, SVG and the studio's positions.

`layout(document)` needs no model, store or checked document: it draws what is there, names that lead nowhere
included, so that a broken file can be looked at too.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from graphflow.graph.definition.document import RESERVED_NODES, GraphDefinition
from graphflow.graph.drawing.coordinates import Point, Sketch, px
from graphflow.graph.drawing.hierarchy import Level, Thing, Way, join_title, levels_of
from graphflow.graph.drawing.sugiyama import back_edges, longest_path_layers

EdgeKind = Literal["normal", "conditional", "error", "back", "branch", "join"]
"""`branch` leads from a fan into a body, or to one that waits for another; `join` from a body to the fan's join."""

UNIT = 7.0
"""Width of one Latin letter in a drawing, in px at 12 px; a CJK character takes two."""
LABEL_UNITS = 34
"""Longer labels are shortened in pictures; the whole condition stays in `Edge.condition`."""
TITLE_HEIGHT = 16.0
"""Room for a group's title, over what is in it."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """One node, or the `end` or `fail` that some route leads to; `x` and `y` are its top left corner, in px."""

    name: str
    kind: str
    """What is shown beside the name: `model`, `tool:bash`, `ask`, `map`, …"""
    form: str
    """`use`, `map`, `parallel`, `graph`, `ask`, or `end`, `fail`, or `unknown` for a name that no node has."""
    layer: int
    """0 at the top."""
    order: int
    """0 at the left, within the layer."""
    x: float
    y: float
    w: float
    h: float
    description: str | None = None
    group: str | None = None
    """The group that it stands in; None is the main flow."""
    id: str = ""
    """Tells the `end` of a body from that of another; a node's is its name."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """What one branch of a `map` or `parallel` runs: a box around its nodes, below the fan."""

    id: str
    """`fan[]` of a map, `fan[branch]` of a parallel."""
    fan: str
    title: str
    depth: int
    """How many groups it stands in."""
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, kw_only=True)
class JoinMark:
    """Where the branches of a fan come together, and from where its routes go on."""

    id: str
    fan: str
    title: str
    """`join all`, `join 2 of 3, collect failures`."""
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One route; `points` run from the source's border to the target's, through the gaps between nodes."""

    source: str
    target: str
    kind: EdgeKind
    label: str | None = None
    """The condition or the error codes, short enough to draw."""
    condition: str | None = None
    """The same in full; of a `branch` the title of its body."""
    points: tuple[Point, ...] = ()
    label_at: Point | None = None
    """Middle of the label."""
    ends: tuple[str, str] = ("", "")
    """Ids of what the line is drawn between: boxes, groups, joins."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`nodes` from top to bottom and left to right, those of a body after their fan; `edges` in the order of the
    document, those of a body after those around it; sizes in px.
    """

    start: str
    width: float
    height: float
    nodes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    groups: tuple[Group, ...] = ()
    """From the outermost inwards."""
    joins: tuple[JoinMark, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, as the studio takes it."""
        return asdict(self)


def layout(document: GraphDefinition) -> Layout:
    """Where everything goes; the same document always gives the same layout."""
    placed = _Placed(levels_of(document), document)
    made = _Collected()
    placed.collect(made, 0.0, 0.0, 0)
    return Layout(
        start=document.start,
        width=placed.sketch.width,
        height=placed.sketch.height,
        nodes=tuple(made.nodes),
        edges=tuple(made.edges),
        groups=tuple(sorted(made.groups, key=lambda group: group.depth)),
        joins=tuple(made.joins),
    )


@dataclass
class _Collected:
    nodes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    joins: list[JoinMark] = field(default_factory=list)


class _Placed:
    """One level laid out; what is inside its groups is laid out first, so that their sizes are known."""

    def __init__(self, level: Level, document: GraphDefinition) -> None:
        self._level, self._document = level, document
        self.inner = {group: _Placed(inside, document) for group, inside in level.inner.items()}
        self._number = {thing.id: place for place, thing in enumerate(level.things)}
        ends = [(self._number[way.ends[0]], self._number[way.ends[1]]) for way in level.ways]
        self._back = self._back_edges(ends)
        self._layers = self._make_layers(ends)
        self._labels = [None if way.kind in ("branch", "join") else shorten(way.condition) for way in level.ways]
        self._sizes = [self._size(thing) for thing in level.things]
        self.sketch = Sketch(self._layers, self._sizes, ends, [_label_width(label) for label in self._labels])

    def collect(self, made: _Collected, x: float, y: float, depth: int) -> None:
        """Adds everything with its place in the whole picture, whose corner is `(x, y)` away."""
        things = self._level.things
        made.edges += [self._edge(place, way, x, y) for place, way in enumerate(self._level.ways)]
        nodes = sorted(
            (place for place, thing in enumerate(things) if thing.kind == "node"),
            key=lambda place: (self._layers[place], self.sketch.order(place)),
        )
        groups: dict[str, list[Thing]] = {}
        for thing in things:
            if thing.kind == "group":
                groups.setdefault(thing.name, []).append(thing)
        for place in nodes:
            made.nodes.append(self._box(place, x, y))
            for thing in groups.get(things[place].id, ()):
                self._collect_group(made, thing, x, y, depth)
        for place, thing in enumerate(things):
            if thing.kind == "join":
                node = self._document.nodes[thing.name]
                made.joins.append(
                    JoinMark(id=thing.id, fan=thing.name, title=join_title(node), **self._area(place, x, y))
                )

    def _collect_group(self, made: _Collected, thing: Thing, x: float, y: float, depth: int) -> None:
        place, inner = self._number[thing.id], self.inner[thing.id]
        area = self._area(place, x, y)
        made.groups.append(Group(id=thing.id, fan=thing.name, title=inner._level.title, depth=depth, **area))
        middle = (area["w"] - inner.sketch.width) / 2
        inner.collect(made, area["x"] + middle, area["y"] + TITLE_HEIGHT, depth + 1)

    def _area(self, place: int, x: float, y: float) -> dict[str, float]:
        left, top = self.sketch.corner(place)
        w, h = self._sizes[place]
        return {"x": px(left + x), "y": px(top + y), "w": w, "h": h}

    def _box(self, place: int, x: float, y: float) -> Box:
        thing = self._level.things[place]
        node = self._document.nodes.get(thing.name) if thing.id == thing.name else None
        return Box(
            name=thing.name, kind=self._kind(thing), form=self._form(thing), layer=self._layers[place],
            order=self.sketch.order(place), description=node.description if node else None,
            group=self._level.id or None, id=thing.id, **self._area(place, x, y),
        )  # fmt: skip

    def _kind(self, thing: Thing) -> str:
        return self._level.graphs.get(thing.id) or kind_of(thing.name, self._document)

    def _form(self, thing: Thing) -> str:
        if thing.id in self._level.graphs:
            return "graph"
        if thing.id != thing.name and thing.name not in RESERVED_NODES:
            return "unknown"
        return form_of(thing.name, self._document)

    def _edge(self, place: int, way: Way, x: float, y: float) -> Edge:
        at = self.sketch.label_at(place)
        return Edge(
            source=way.source, target=way.target, kind=self._edge_kind(place, way), label=self._labels[place],
            condition=way.condition, points=tuple((px(a + x), px(b + y)) for a, b in self.sketch.line(place)),
            label_at=None if at is None else (px(at[0] + x), px(at[1] + y)), ends=way.ends,
        )  # fmt: skip

    def _edge_kind(self, place: int, way: Way) -> EdgeKind:
        if way.kind != "route":
            return way.kind
        return "back" if place in self._back else "conditional" if way.condition else "normal"

    def _size(self, thing: Thing) -> tuple[float, float]:
        if thing.kind == "group":
            inner = self.inner[thing.id]
            title = units(inner._level.title) * UNIT + 24
            return px(max(inner.sketch.width, title)), px(inner.sketch.height + TITLE_HEIGHT)
        if thing.kind == "join":
            return px(units(join_title(self._document.nodes[thing.name])) * UNIT * 0.92 + 24), 22.0
        return _size(thing.name, self._kind(thing))

    # --- layers

    def _back_edges(self, ends: list[tuple[int, int]]) -> set[int]:
        out: list[list[tuple[int, int]]] = [[] for _ in self._number]
        for i, (source, target) in enumerate(ends):
            out[source].append((i, target))
        first = [self._number[self._level.start]] if self._level.start in self._number else []
        return back_edges(out, [*first, *range(len(self._number))])

    def _make_layers(self, ends: list[tuple[int, int]]) -> list[int]:
        layers = longest_path_layers(len(self._number), [pair for i, pair in enumerate(ends) if i not in self._back])
        closing = [place for place, thing in enumerate(self._level.things) if thing.name in RESERVED_NODES]
        last = max((layer for place, layer in enumerate(layers) if place not in closing), default=-1)
        for place in closing:  # both close the picture
            layers[place] = last + 1
        return layers


def kind_of(name: str, document: GraphDefinition) -> str:
    """The word beside a node's name."""
    node = document.nodes.get(name)
    if node is None:
        return name if name in RESERVED_NODES else "?"
    if node.graph is not None:
        return f"graph:{node.graph}" if isinstance(node.graph, str) else "graph"
    return node.use or form_of(name, document)


def form_of(name: str, document: GraphDefinition) -> str:
    node = document.nodes.get(name)
    if node is None:
        return name if name in RESERVED_NODES else "unknown"
    return next((form for form in ("use", "ask", "map", "parallel", "graph") if getattr(node, form) is not None), "use")


# --- labels and sizes --------------------------------------------------------------------------------------------------


def units(text: str) -> int:
    """Width of a text in letters; wide and full-width characters (CJK) count two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(condition: str | None, limit: int = LABEL_UNITS) -> str | None:
    """One line, without the root that nearly every condition begins with, cut at `limit` letters."""
    if condition is None:
        return None
    text = re.sub(r"\bstate\.", "", " ".join(condition.split()))
    if units(text) <= limit:
        return text
    while units(text) > limit - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def _size(name: str, kind: str) -> tuple[float, float]:
    if name in RESERVED_NODES:
        return 60.0, 28.0
    letters = max(units(name) * 1.12, units(kind) * 0.92)  # the name is bold, the kind small
    return max(96.0, round(letters * UNIT + 36)), 44.0


def _label_width(label: str | None) -> float:
    return units(label) * UNIT * 0.92 + 14 if label else 0.0
