"""Drawings of a graph for people: a text list, Mermaid, and (`drawing_svg.py`) SVG, all from one layout.

A thread's path can be laid over each: the nodes that finished, how often, and where the thread is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from graphflow.graph.document import RESERVED_NODES, GraphDefinition
from graphflow.graph.drawing_svg import render_svg
from graphflow.graph.layout import Box, Edge, Layout, layout, shorten, units


@dataclass(frozen=True, kw_only=True)
class PathTaken:
    """What a thread did in a graph: `nodes` that finished, in order, and the `current` ones (running or waiting)."""

    nodes: tuple[str, ...] = ()
    current: tuple[str, ...] = ()

    def visits(self) -> Counter[str]:
        """How often each node was entered, the present visit included."""
        return Counter(self.nodes) + Counter(self.current)

    def steps(self) -> set[tuple[str, str]]:
        """The pairs of nodes that followed each other."""
        last = [(self.nodes[-1], name) for name in self.current] if self.nodes else []
        return {*pairwise(self.nodes), *last}


def draw_text(document: GraphDefinition, path: PathTaken | None = None) -> str:
    """One line a node, in layout order, its routes after it, columns aligned.

    `→` goes on, `↺` goes back, `✗` is where a failure goes; the condition stands in brackets. With `path`, a first
    column shows `✓` for a finished node (`✓2` after two visits) and `▶` for where the thread is.
    """
    plan = layout(document)
    routes = _routes_by_source(plan)
    nodes = [box for box in plan.nodes if box.form not in (*RESERVED_NODES, "unknown")]
    name_width = max((units(box.name) for box in nodes), default=0)
    kind_width = max((units(box.kind) for box in nodes), default=0)
    marks = {box.name: _mark(box.name, path) for box in nodes}
    mark_width = max(map(len, marks.values()), default=0)
    lines = []
    for box in nodes:
        cells = [marks[box.name].ljust(mark_width)] if mark_width else []
        cells += [_pad(box.name, name_width), _pad(box.kind, kind_width), *map(_text_route, routes.get(box.name, ()))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def draw_mermaid(document: GraphDefinition, path: PathTaken | None = None) -> str:
    """The graph as a Mermaid flowchart (https://mermaid.js.org/syntax/flowchart.html)."""
    plan = layout(document)
    ids = {box.name: f"n{i}" for i, box in enumerate(plan.nodes)}
    visits = path.visits() if path else Counter[str]()
    lines = ["flowchart TD"]
    lines += [f"  {ids[box.name]}{_mermaid_shape(box, visits[box.name])}" for box in plan.nodes]
    if plan.start in ids:
        lines.append(f"  start(( )) --> {ids[plan.start]}")
    lines += [f"  {ids[edge.source]} {_mermaid_arrow(edge)} {ids[edge.target]}" for edge in plan.edges]
    if path:
        lines += _mermaid_path(path, ids)
    return "\n".join(lines)


def draw_svg(document: GraphDefinition, path: PathTaken | None = None) -> str:
    """The graph as one self-contained SVG file, readable on light and on dark ground."""
    path = path or PathTaken()
    return render_svg(layout(document), visits=path.visits(), current=path.current, steps=path.steps())


# --- text --------------------------------------------------------------------------------------------------------------

_ARROWS = {"normal": "→", "conditional": "→", "back": "↺", "error": "✗"}
_TEXT_LABEL = 72
"""Letters of a condition in the text list, which has more room than a picture."""


def _routes_by_source(plan: Layout) -> dict[str, list[Edge]]:
    routes: dict[str, list[Edge]] = {}
    for edge in plan.edges:
        routes.setdefault(edge.source, []).append(edge)
    return routes


def _text_route(edge: Edge) -> str:
    label = shorten(edge.condition, _TEXT_LABEL)
    return f"{_ARROWS[edge.kind]} {edge.target}" + (f" [{label}]" if label else "")


def _mark(name: str, path: PathTaken | None) -> str:
    if path is None:
        return ""
    count = path.visits()[name]
    mark = "▶" if name in path.current else "✓" if count else ""
    return mark + (str(count) if count > 1 else "")


def _pad(text: str, width: int) -> str:
    return text + " " * (width - units(text))


# --- Mermaid -----------------------------------------------------------------------------------------------------------

_SHAPES = {
    "ask": ("{{", "}}"),
    "end": ("([", "])"),
    "fail": ("([", "])"),
    "map": ("[[", "]]"),
    "parallel": ("[[", "]]"),
}
_CLASSES = {
    "visited": "stroke:#2da44e,stroke-width:2px",
    "current": "stroke:#bf8700,stroke-width:4px",
}


def _mermaid_shape(box: Box, visits: int) -> str:
    opening, closing = _SHAPES.get(box.form, ("[", "]"))
    text = _mermaid_text(box.name)
    if box.form not in RESERVED_NODES:
        text = f"<b>{text}</b><br/>{_mermaid_text(box.kind)}"
    if visits > 1:
        text += f" ×{visits}"
    return f'{opening}"{text}"{closing}'


def _mermaid_arrow(edge: Edge) -> str:
    arrow = "-.->" if edge.kind == "error" else "-->"
    return f'{arrow}|"{_mermaid_text(edge.label)}"|' if edge.label else arrow


def _mermaid_text(text: str) -> str:
    """Mermaid's own entities: inside quotes these five would end the text or be read as markup."""
    entities = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}
    return "".join(entities.get(letter, letter) for letter in " ".join(text.split()))


def _mermaid_path(path: PathTaken, ids: dict[str, str]) -> list[str]:
    current = [ids[name] for name in dict.fromkeys(path.current) if name in ids]
    visited = [ids[name] for name in dict.fromkeys(path.nodes) if name in ids and name not in path.current]
    lines = []
    for name, members in (("visited", visited), ("current", current)):
        if members:
            lines += [f"  classDef {name} {_CLASSES[name]}", f"  class {','.join(members)} {name}"]
    return lines
