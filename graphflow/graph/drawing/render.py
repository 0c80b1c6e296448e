"""Drawings of a graph for people: a text list, Mermaid, and (`svg.py`) SVG, all from one layout.

A thread's path can be laid over each: the nodes that finished, how often, and where the thread is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphflow.graph.definition.document import RESERVED_NODES, GraphDefinition
from graphflow.graph.drawing.layout import Box, Edge, Group, JoinMark, Layout, layout, plain_condition
from graphflow.graph.drawing.svg import render_svg
from graphflow.text_width import units, wrap


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


def draw_text(document: GraphDefinition, path: PathTaken | None = None, width: int | None = None) -> str:
    """One line a node, in layout order, its routes after it, columns aligned.

    `→` goes on, `↺` goes back, `✗` is where a failure goes, `⇉` where branches begin; the condition stands in brackets.
    What branches run is indented below their node, which also tells how it joins them. With `path`, a first column
    shows `✓` for a finished node (`✓2` after two visits) and `▶` for where the thread is. Conditions stand in full:
    where a line is wider than `width` columns, each route has lines of its own below the node.
    """
    plan = layout(document)
    routes = _routes_by_source(plan)
    depth = {group.id: group.depth + 1 for group in plan.groups}
    # Of each node the box of its own: the `end` of a body, say, has none and stands in the routes.
    nodes = [box for box in plan.nodes if box.form not in (*RESERVED_NODES, "unknown") and box.id == box.name]
    names = {box.name: "  " * depth.get(box.group or "", 0) + box.name for box in nodes}
    joins = {join.fan: f"⋈ {join.title}" for join in plan.joins}
    name_width = max((units(name) for name in names.values()), default=0)
    kind_width = max((units(box.kind) for box in nodes), default=0)
    visits = path.visits() if path else Counter[str]()
    marks = {box.name: _mark(visits[box.name], current=path is not None and box.name in path.current) for box in nodes}
    mark_width = max(map(len, marks.values()), default=0)
    lines = []
    for box in nodes:
        cells = [marks[box.name].ljust(mark_width)] if mark_width else []
        cells += [_pad(names[box.name], name_width), _pad(box.kind, kind_width)]
        lines += _text_lines(cells, _text_routes(routes.get(box.name, []), joins.get(box.name)), width)
    return "\n".join(lines)


def _text_lines(cells: list[str], routes: list[str], width: int | None) -> list[str]:
    whole = "  ".join([*cells, *routes]).rstrip()
    if width is None or units(whole) <= width:
        return [whole]
    left = " " * 4
    below = [left + line for route in routes for line in wrap(route, width - len(left), "  ")]
    return ["  ".join(cells).rstrip(), *below]


def draw_mermaid(document: GraphDefinition, path: PathTaken | None = None, *, across: bool = False) -> str:
    """The graph as a Mermaid flowchart (https://mermaid.js.org/syntax/flowchart.html).

    Args:
        across: from left to right, with conditions in full; else from top to bottom.
    """
    plan = layout(document, across=across)
    drawn: list[Box | Group | JoinMark] = [*plan.nodes, *plan.joins, *plan.groups]
    ids = {item.id: f"n{i}" for i, item in enumerate(drawn)}
    visits = path.visits() if path else Counter[str]()
    lines = [f"flowchart {'LR' if across else 'TD'}", *_mermaid_boxes(plan, ids, visits)]
    if plan.start in ids:
        lines.append(f"  start(( )) --> {ids[plan.start]}")
    lines += [f"  {ids[edge.ends[0]]} {_mermaid_arrow(edge)} {ids[edge.ends[1]]}" for edge in plan.edges]
    if path:
        lines += _mermaid_path(path, ids)
    return "\n".join(lines)


def draw_svg(document: GraphDefinition, path: PathTaken | None = None, *, across: bool = False) -> str:
    """The graph as one self-contained SVG file, readable on light and on dark ground; `across` as in `draw_mermaid`."""
    path, plan = path or PathTaken(), layout(document, across=across)
    return render_svg(plan, visits=path.visits(), current=path.current, steps=path.steps(), across=across)


def draw_dot(document: GraphDefinition, path: PathTaken | None = None, *, across: bool = False) -> str:
    """The graph in the DOT language (https://graphviz.org/doc/info/lang.html), with conditions in full.

    Bodies of `map` and `parallel` nodes are clusters; their lines begin and end at nodes, as Graphviz draws them.
    """
    plan = layout(document, across=True)
    path = path or PathTaken()
    visits = path.visits()
    lines = [
        "digraph {",
        f"  rankdir={'LR' if across else 'TB'}",
        "  compound=true",
        "  node [shape=box, style=rounded]",
    ]
    lines += [f"  {line}" for line in _dot_boxes(plan, visits, path.current)]
    inside: dict[str, str] = {}
    for box in plan.nodes:
        inside.setdefault(box.group or "", box.id)
    if any(box.id == plan.start for box in plan.nodes):
        lines += ["  __start [shape=point]", f"  __start -> {_dot(plan.start)}"]
    for edge in plan.edges:
        source, target = (inside.get(end, end) for end in edge.ends)
        styles = {"error": "dashed", "back": "bold"}
        marks = [f"label={_dot(edge.label)}"] if edge.label else []
        marks += [f"style={styles[edge.kind]}"] if edge.kind in styles else []
        lines.append(f"  {_dot(source)} -> {_dot(target)}" + (f" [{', '.join(marks)}]" if marks else ""))
    return "\n".join([*lines, "}"])


def _dot_boxes(plan: Layout, visits: Counter[str], current: Sequence[str]) -> Iterator[str]:
    for box in plan.nodes:
        title = box.name if box.form in RESERVED_NODES else f"{box.name}\\n{box.kind}"
        colour = "orange" if box.name in current else "green" if visits[box.name] else ""
        mark = f" ×{visits[box.name]}" if visits[box.name] > 1 else ""
        yield f"{_dot(box.id)} [label={_dot(title + mark)}" + (f", color={colour}]" if colour else "]")
    for join in plan.joins:
        yield f"{_dot(join.id)} [label={_dot(join.title)}, shape=oval]"
    children: dict[str | None, list[Group]] = {}
    owner = {box.id: box.group for box in plan.nodes}
    for group in plan.groups:
        children.setdefault(owner.get(group.fan), []).append(group)

    def cluster(group: Group, indent: str) -> Iterator[str]:
        yield f"{indent}subgraph {_dot(f'cluster {group.id}')} {{"
        yield f"{indent}  label={_dot(group.title)}"
        for box in plan.nodes:
            if box.group == group.id:
                yield f"{indent}  {_dot(box.id)}"
        for inner in children.get(group.id, ()):
            yield from cluster(inner, indent + "  ")
        yield f"{indent}}}"

    for group in children.get(None, ()):
        yield from cluster(group, "")


def _dot(text: str) -> str:
    """A quoted string; a backslash before an n in it is a line break."""
    return '"' + re.sub(r'(\\(?!n)|")', r"\\\1", " ".join(text.split())) + '"'


# --- text -----------------------------------------------------------------------------------------

_ARROWS = {"normal": "→", "conditional": "→", "back": "↺", "error": "✗", "branch": "⇉"}


def _routes_by_source(plan: Layout) -> dict[str, list[Edge]]:
    routes: dict[str, list[Edge]] = {}
    for edge in plan.edges:
        routes.setdefault(edge.source, []).append(edge)
    return routes


def _text_routes(edges: list[Edge], join: str | None) -> list[str]:
    """The branches that a node opens and how it joins them, then where it goes."""
    branches = list(dict.fromkeys(_text_route(edge) for edge in edges if edge.kind == "branch"))
    routes = [_text_route(edge) for edge in edges if edge.kind not in ("branch", "join")]
    return [*branches, *([join] if join is not None else []), *routes]


def _text_route(edge: Edge) -> str:
    label = plain_condition(edge.condition)
    return f"{_ARROWS[edge.kind]} {edge.target}" + (f" [{label}]" if label else "")


def _mark(count: int, *, current: bool) -> str:
    mark = "▶" if current else "✓" if count else ""
    return mark + (str(count) if count > 1 else "")


def _pad(text: str, width: int) -> str:
    return text + " " * (width - units(text))


# --- Mermaid --------------------------------------------------------------------------------------

_SHAPES = {
    "ask": ("{{", "}}"),
    "end": ("([", "])"),
    "fail": ("([", "])"),
    "map": ("[[", "]]"),
    "parallel": ("[[", "]]"),
}
_CLASSES = {"visited": "stroke:#2da44e,stroke-width:2px", "current": "stroke:#bf8700,stroke-width:4px"}


def _mermaid_boxes(plan: Layout, ids: dict[str, str], visits: Counter[str]) -> list[str]:
    """Every box, those of a body inside its subgraph, which stands below the node that opens it."""
    boxes: dict[str | None, list[Box]] = {}
    for box in plan.nodes:
        boxes.setdefault(box.group, []).append(box)
    groups: dict[str, list[Group]] = {}
    for group in plan.groups:
        groups.setdefault(group.fan, []).append(group)
    joins = {join.fan: join for join in plan.joins}

    def level(name: str | None, indent: str) -> Iterator[str]:
        for box in boxes.get(name, ()):
            yield f"{indent}{ids[box.id]}{_mermaid_shape(box, visits[box.name])}"
            for group in groups.get(box.id, ()):
                yield f'{indent}subgraph {ids[group.id]}["{_mermaid_text(group.title)}"]'
                yield from level(group.id, indent + "  ")
                yield f"{indent}end"
            if box.id in joins:
                yield f'{indent}{ids[joins[box.id].id]}(["{_mermaid_text(joins[box.id].title)}"])'

    return list(level(None, "  "))


def _mermaid_shape(box: Box, visits: int) -> str:
    opening, closing = _SHAPES.get(box.form, ("[", "]"))
    text = _mermaid_text(box.name)
    if box.form not in RESERVED_NODES:
        text = f"<b>{text}</b><br/>{_mermaid_text(box.kind)}"
    if visits > 1:
        text += f" ×{visits}"
    return f'{opening}"{text}"{closing}'


def _mermaid_arrow(edge: Edge) -> str:
    arrow = {"error": "-.->", "branch": "==>", "join": "==>"}.get(edge.kind, "-->")
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
