"""The one layout behind every picture of a graph: text, Mermaid, SVG and the studio's positions.

`layout(document)` needs no model, store or checked document: it draws what is there, names that lead nowhere
included, so that a broken file can be looked at too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphflow.graph.document import END, RESERVED_NODES, Branch, Choose, GraphDefinition, NodeDefinition
from graphflow.graph.layering import back_edges, longest_path_layers
from graphflow.graph.sketch import Point, Sketch

EdgeKind = Literal["normal", "conditional", "error", "back"]

UNIT = 7.0
"""Width of one Latin letter in a drawing, in px at 12 px; a CJK character takes two."""
LABEL_UNITS = 34
"""Longer labels are shortened in pictures; the whole condition stays in `Edge.condition`."""


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


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One route; `points` run from the source's border to the target's, through the gaps between nodes."""

    source: str
    target: str
    kind: EdgeKind
    label: str | None = None
    """The condition or the error codes, short enough to draw."""
    condition: str | None = None
    """The same in full."""
    points: tuple[Point, ...] = ()
    label_at: Point | None = None
    """Middle of the label."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`nodes` from top to bottom and left to right, `edges` in the order of the document; sizes in px."""

    start: str
    width: float
    height: float
    nodes: tuple[Box, ...]
    edges: tuple[Edge, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, as the studio takes it."""
        return asdict(self)


def layout(document: GraphDefinition) -> Layout:
    """Where everything goes; the same document always gives the same layout."""
    routes = list(_routes(document))
    number = {name: i for i, name in enumerate(_names(document, routes))}
    ends = [(number[r.source], number[r.target]) for r in routes]
    back = _back_edges(document, number, ends)
    layers = _layers(number, ends, back)
    labels = [shorten(r.condition) for r in routes]
    sketch = Sketch(layers, [_size(name, document) for name in number], ends, [_label_width(label) for label in labels])
    nodes = [_box(name, i, layers[i], document, sketch) for name, i in number.items()]
    edges = [
        Edge(
            source=r.source, target=r.target, kind=_edge_kind(r, i in back), label=labels[i], condition=r.condition,
            points=sketch.line(i), label_at=sketch.label_at(i),
        )
        for i, r in enumerate(routes)
    ]  # fmt: skip
    return Layout(
        start=document.start,
        width=sketch.width,
        height=sketch.height,
        nodes=tuple(sorted(nodes, key=lambda box: (box.layer, box.order))),
        edges=tuple(edges),
    )


def _box(name: str, vertex: int, layer: int, document: GraphDefinition, sketch: Sketch) -> Box:
    x, y = sketch.corner(vertex)
    w, h = _size(name, document)
    node = document.nodes.get(name)
    return Box(
        name=name, kind=kind_of(name, document), form=form_of(name, document), layer=layer, order=sketch.order(vertex),
        x=x, y=y, w=w, h=h, description=node.description if node else None,
    )  # fmt: skip


def _edge_kind(route: _Route, back: bool) -> EdgeKind:
    if route.error:
        return "error"
    return "back" if back else "conditional" if route.condition else "normal"


# --- what the document says --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Route:
    source: str
    target: str
    condition: str | None = None
    error: bool = False


def _routes(document: GraphDefinition) -> Iterator[_Route]:
    """Every way from a node to another, in the order of the document."""
    bodies = _bodies(document)
    for name, node in document.nodes.items():
        for route in (*_body_routes(name, node), *_next_routes(name, node)):
            if not (name in bodies and route.target == END):  # a branch's end is the join, not the run's end
                yield route


def _next_routes(name: str, node: NodeDefinition) -> Iterator[_Route]:
    if isinstance(node.next, str):
        yield _Route(name, node.next)
    elif isinstance(node.next, Choose):
        for target in node.next.choose:
            yield _Route(name, target, "chosen")
    else:
        for arrow in node.next or ():
            yield _Route(name, arrow.to, arrow.when)
    for error in node.error:
        yield _Route(name, error.to, ", ".join(error.on), error=True)
    if node.ask is not None and node.ask.on_expire:
        yield _Route(name, node.ask.on_expire, "expired", error=True)


def _body_routes(name: str, node: NodeDefinition) -> Iterator[_Route]:
    if isinstance(node.do, str):
        yield _Route(name, node.do, f"each {node.as_ or 'item'}")
    for label, branch in (node.parallel or {}).items():
        yield _Route(name, branch.do if isinstance(branch, Branch) else branch, label)


def _bodies(document: GraphDefinition) -> set[str]:
    """Nodes inside the body of a `map` or `parallel`: what its entries reach (E10)."""
    rest = [route.target for name, node in document.nodes.items() for route in _body_routes(name, node)]
    inside: set[str] = set()
    while rest:
        name = rest.pop()
        if name in document.nodes and name not in inside:
            inside.add(name)
            rest += [route.target for route in _next_routes(name, document.nodes[name])]
    return inside


def _names(document: GraphDefinition, routes: list[_Route]) -> list[str]:
    """The document's nodes, then what routes name besides: `end`, `fail` last, unknown names before them."""
    used = dict.fromkeys(route.target for route in routes)
    unknown = [name for name in used if name not in document.nodes and name not in RESERVED_NODES]
    return [*document.nodes, *unknown, *(name for name in RESERVED_NODES if name in used)]


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


def _size(name: str, document: GraphDefinition) -> tuple[float, float]:
    if name in RESERVED_NODES:
        return 60.0, 28.0
    letters = max(units(name) * 1.12, units(kind_of(name, document)) * 0.92)  # the name is bold, the kind small
    return max(96.0, round(letters * UNIT + 36)), 44.0


def _label_width(label: str | None) -> float:
    return units(label) * UNIT * 0.92 + 14 if label else 0.0


# --- layers ------------------------------------------------------------------------------------------------------------


def _back_edges(document: GraphDefinition, number: dict[str, int], ends: list[tuple[int, int]]) -> set[int]:
    out: list[list[tuple[int, int]]] = [[] for _ in number]
    for i, (source, target) in enumerate(ends):
        out[source].append((i, target))
    first = [number[document.start]] if document.start in number else []
    return back_edges(out, [*first, *range(len(number))])


def _layers(number: dict[str, int], ends: list[tuple[int, int]], back: set[int]) -> list[int]:
    layers = longest_path_layers(len(number), [pair for i, pair in enumerate(ends) if i not in back])
    last = max((layers[i] for name, i in number.items() if name not in RESERVED_NODES), default=-1)
    for name in RESERVED_NODES:  # both close the picture
        if name in number:
            layers[number[name]] = last + 1
    return layers
