"""The one layout behind every picture of a graph: text, Mermaid, SVG and the studio's positions.

`layout(document)` needs no model, store or checked document: it draws what is there, including names without
a node, so that a broken file can be drawn too.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from graphflow.graph.definition.document import RESERVED_NODES, GraphDefinition
from graphflow.graph.definition.graph_queries import back_edges
from graphflow.graph.drawing.coordinates import LABEL_HEIGHT, Coordinates, Point, px
from graphflow.graph.drawing.hierarchy import Level, LevelItem, Link, join_title, levels_of
from graphflow.graph.drawing.sugiyama import longest_path_layers
from graphflow.text_width import units

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
    """The group around it; None is the main flow."""
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
    """Number of groups around it."""
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


def layout(document: GraphDefinition, *, across: bool = False) -> Layout:
    """Where everything goes; the same document always gives the same layout.

    Args:
        across: from left to right, with labels in full; else from top to bottom.
    """
    placed = _PlacedLevel(levels_of(document), document, across=across)
    made = _DrawnParts()
    placed.collect(made, 0.0, 0.0, 0)
    return Layout(
        start=document.start,
        width=placed.width,
        height=placed.height,
        nodes=tuple(made.nodes),
        edges=tuple(made.edges),
        groups=tuple(sorted(made.groups, key=lambda group: group.depth)),
        joins=tuple(made.joins),
    )


@dataclass
class _DrawnParts:
    nodes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    joins: list[JoinMark] = field(default_factory=list)


class _PlacedLevel:
    """One level laid out; what is inside its groups is laid out first, so that their sizes are known."""

    def __init__(self, level: Level, document: GraphDefinition, *, across: bool) -> None:
        self._level, self._document, self._across = level, document, across
        # The size of a group depends on what is inside, so layout goes from the inside outwards.
        self.inner = {group: _PlacedLevel(inside, document, across=across) for group, inside in level.inner.items()}
        self._number = {item.id: place for place, item in enumerate(level.items)}
        ends = [(self._number[link.ends[0]], self._number[link.ends[1]]) for link in level.links]
        self._back = self._back_edges(ends)
        self._layers = self._make_layers(ends)
        shown = plain_condition if across else shorten
        self._labels = [None if link.kind in ("branch", "join") else shown(link.condition) for link in level.links]
        self._sizes = [self._size(item) for item in level.items]
        sizes, labels, height = (
            [self._turned(size) for size in self._sizes],
            list(map(_label_width, self._labels)),
            LABEL_HEIGHT,
        )
        if across:  # laid out from top to bottom all the same, with every size and every place turned
            labels, height = [LABEL_HEIGHT if width else 0.0 for width in labels], max(labels, default=0.0)
        self.coordinates = Coordinates(self._layers, sizes, ends, labels, height)
        self.width, self.height = self._turned((self.coordinates.width, self.coordinates.height))

    def _turned(self, pair: Point) -> Point:
        return (pair[1], pair[0]) if self._across else pair

    def collect(self, made: _DrawnParts, x: float, y: float, depth: int) -> None:
        """Adds everything with its place in the whole picture, whose corner is `(x, y)` away."""
        items = self._level.items
        made.edges += [self._edge(place, link, x, y) for place, link in enumerate(self._level.links)]
        nodes = sorted(
            (place for place, item in enumerate(items) if item.kind == "node"),
            key=lambda place: (self._layers[place], self.coordinates.order(place)),
        )
        groups: dict[str, list[LevelItem]] = {}
        for item in items:
            if item.kind == "group":
                groups.setdefault(item.name, []).append(item)
        for place in nodes:
            made.nodes.append(self._box(place, x, y))
            for item in groups.get(items[place].id, ()):
                self._collect_group(made, item, x, y, depth)
        for place, item in enumerate(items):
            if item.kind == "join":
                node = self._document.nodes[item.name]
                made.joins.append(
                    JoinMark(id=item.id, fan=item.name, title=join_title(node), **self._area(place, x, y))
                )

    def _collect_group(self, made: _DrawnParts, item: LevelItem, x: float, y: float, depth: int) -> None:
        place, inner = self._number[item.id], self.inner[item.id]
        area = self._area(place, x, y)
        made.groups.append(Group(id=item.id, fan=item.name, title=inner._level.title, depth=depth, **area))
        middle = (area["w"] - inner.width) / 2
        inner.collect(made, area["x"] + middle, area["y"] + TITLE_HEIGHT, depth + 1)

    def _area(self, place: int, x: float, y: float) -> dict[str, float]:
        left, top = self._turned(self.coordinates.corner(place))
        w, h = self._sizes[place]
        return {"x": px(left + x), "y": px(top + y), "w": w, "h": h}

    def _box(self, place: int, x: float, y: float) -> Box:
        item = self._level.items[place]
        node = self._document.nodes.get(item.name) if item.id == item.name else None
        return Box(
            name=item.name, kind=self._kind(item), form=self._form(item), layer=self._layers[place],
            order=self.coordinates.order(place), description=node.description if node else None,
            group=self._level.id or None, id=item.id, **self._area(place, x, y),
        )  # fmt: skip

    def _kind(self, item: LevelItem) -> str:
        return self._level.graphs.get(item.id) or kind_of(item.name, self._document)

    def _form(self, item: LevelItem) -> str:
        if item.id in self._level.graphs:
            return "graph"
        if item.id != item.name and item.name not in RESERVED_NODES:
            return "unknown"
        return form_of(item.name, self._document)

    def _edge(self, place: int, link: Link, x: float, y: float) -> Edge:
        found = self.coordinates.label_at(place)
        at = None if found is None else self._turned(found)
        points = map(self._turned, self.coordinates.line(place))
        return Edge(
            source=link.source, target=link.target, kind=self._edge_kind(place, link), label=self._labels[place],
            condition=link.condition, points=tuple((px(a + x), px(b + y)) for a, b in points),
            label_at=None if at is None else (px(at[0] + x), px(at[1] + y)), ends=link.ends,
        )  # fmt: skip

    def _edge_kind(self, place: int, link: Link) -> EdgeKind:
        if link.kind != "route":
            return link.kind
        return "back" if place in self._back else "conditional" if link.condition else "normal"

    def _size(self, item: LevelItem) -> tuple[float, float]:
        if item.kind == "group":
            inner = self.inner[item.id]
            title = units(inner._level.title) * UNIT + 24
            return px(max(inner.width, title)), px(inner.height + TITLE_HEIGHT)
        if item.kind == "join":
            return px(units(join_title(self._document.nodes[item.name])) * UNIT * 0.92 + 24), 22.0
        return _size(item.name, self._kind(item))

    # --- layers

    def _back_edges(self, ends: list[tuple[int, int]]) -> set[int]:
        out: list[list[tuple[int, int]]] = [[] for _ in self._number]
        for i, (source, target) in enumerate(ends):
            out[source].append((i, target))
        first = [self._number[self._level.start]] if self._level.start in self._number else []
        return back_edges(out, [*first, *range(len(self._number))])

    def _make_layers(self, ends: list[tuple[int, int]]) -> list[int]:
        layers = longest_path_layers(len(self._number), [pair for i, pair in enumerate(ends) if i not in self._back])
        closing = [place for place, item in enumerate(self._level.items) if item.name in RESERVED_NODES]
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


# --- labels and sizes -----------------------------------------------------------------------------


def plain_condition(condition: str | None) -> str | None:
    """One line, without the root that nearly every condition begins with."""
    return None if condition is None else re.sub(r"\bstate\.", "", " ".join(condition.split()))


def shorten(condition: str | None, limit: int = LABEL_UNITS) -> str | None:
    """The plain condition, cut at `limit` letters."""
    text = plain_condition(condition)
    if text is None or units(text) <= limit:
        return text
    # Letter by letter: a slice would count wide characters as one.
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
