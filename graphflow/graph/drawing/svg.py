"""A layout as SVG: one file without scripts, fonts or links to other files.

Boxes and labels have their own background and lines are a middle grey, so that the picture fits light and dark pages;
if the viewer prefers dark colours (`prefers-color-scheme`), the boxes follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape as _escape_html
from itertools import pairwise

from graphflow.graph.definition.document import RESERVED_NODES
from graphflow.graph.drawing.layout import UNIT, Box, Edge, Group, JoinMark, Layout
from graphflow.text_width import units

_STYLE = """
text { font: 12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif; }
.box { fill: #ffffff; stroke: #afb8c1; stroke-width: 1; }
.name { fill: #1f2328; font-weight: 600; font-size: 13px; }
.kind { fill: #59636e; font-size: 11px; }
.line { fill: none; stroke: #818b98; stroke-width: 1.4; }
.error { stroke-dasharray: 4 3; stroke: #d1606b; }
.back { stroke: #8250df; }
.branch, .join { stroke-width: 2.2; }
.group { fill: #818b98; fill-opacity: 0.07; stroke: #afb8c1; stroke-width: 1; stroke-dasharray: 6 4; }
.title { fill: #59636e; font-size: 11px; font-weight: 600; }
.joined { fill: #f6f8fa; stroke: #8250df; stroke-width: 1.2; }
.taken { stroke: #2da44e; stroke-width: 2.4; }
.tag { fill: #f6f8fa; stroke: #d1d9e0; stroke-width: 0.8; }
.label { fill: #424a53; font-size: 11px; }
.arrow { fill: #818b98; }
.arrow-error { fill: #d1606b; }
.arrow-back { fill: #8250df; }
.arrow-taken { fill: #2da44e; }
.visited { stroke: #2da44e; stroke-width: 2; }
.current { stroke: #d4900a; stroke-width: 3; }
.badge { fill: #2da44e; }
.badge-current { fill: #d4900a; }
.count { fill: #ffffff; font-size: 10px; font-weight: 700; }
.model { fill: #2f81f7; } .tools { fill: #d4900a; } .agent { fill: #1a9c94; } .python { fill: #818b98; }
.ask { fill: #bf3989; } .graph { fill: #8250df; } .unknown { fill: #cf222e; }
.dot { fill: #818b98; }
@media (prefers-color-scheme: dark) {
  .box { fill: #161b22; stroke: #444c56; } .name { fill: #e6edf3; } .kind { fill: #9198a1; }
  .tag { fill: #21262d; stroke: #3d444d; } .label { fill: #c9d1d9; }
  .title { fill: #9198a1; } .joined { fill: #21262d; }
  .visited { stroke: #3fb950; } .current { stroke: #e3a82b; }
}
"""
_MARKERS = ("", "-error", "-back", "-taken")


def render_svg(
    plan: Layout,
    *,
    visits: Mapping[str, int],
    current: Collection[str],
    steps: Collection[tuple[str, str]],
    across: bool = False,
) -> str:
    """The picture; `visits`, `current` and `steps` mark a thread's path and may be empty. `across`: as it was laid out."""
    left, top = (18.0, 0.0) if across else (0.0, 18.0)  # room for the dot that marks the start
    width, height = plan.width + left, plan.height + top
    size = f'width="{width:g}" height="{height:g}" viewBox="{0 - left:g} {0 - top:g} {width:g} {height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="graph">',
        f"<style>{_STYLE}</style>",
        "<defs>",
        *(_marker(suffix) for suffix in _MARKERS),
        "</defs>",
        *map(_group, plan.groups),
        *_start(plan, across=across),
        *(_line(edge, (edge.source, edge.target) in steps, across=across) for edge in plan.edges),
        *(_tag(edge) for edge in plan.edges if edge.label and edge.label_at),
        *map(_join, plan.joins),
        *(_box(box, visits.get(box.name, 0), box.name in current) for box in plan.nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _start(plan: Layout, *, across: bool) -> list[str]:
    box = next((box for box in plan.nodes if box.name == plan.start), None)
    if box is None:
        return []
    if across:
        x, y = box.x, box.y + box.h / 2
        return [
            f'<circle class="dot" cx="{x - 26:g}" cy="{y:g}" r="5"/>',
            f'<path class="line" d="M{x - 21:g} {y:g} H{x - 3:g}" marker-end="url(#arrow)"/>',
        ]
    x, y = box.x + box.w / 2, box.y
    return [
        f'<circle class="dot" cx="{x:g}" cy="{y - 26:g}" r="5"/>',
        f'<path class="line" d="M{x:g} {y - 21:g} V{y - 3:g}" marker-end="url(#arrow)"/>',
    ]


def _marker(suffix: str) -> str:
    shape = f'<path class="arrow{suffix}" d="M0 0 L9 4.5 L0 9 Z"/>'
    place = 'viewBox="0 0 9 9" refX="7" refY="4.5" markerWidth="9" markerHeight="9"'
    return f'<marker id="arrow{suffix}" {place} markerUnits="userSpaceOnUse" orient="auto">{shape}</marker>'


def _line(edge: Edge, taken: bool, *, across: bool) -> str:
    kind = "taken" if taken else edge.kind if edge.kind in ("error", "back") else ""
    classes = f"line {edge.kind}" + (" taken" if taken else "")
    marker = f"url(#arrow{'-' + kind if kind else ''})"
    title = f"{edge.source} → {edge.target}" + (f": {edge.condition}" if edge.condition else "")
    return f'<path class="{classes}" d="{_curve(edge, across=across)}" marker-end="{marker}"><title>{_escape(title)}</title></path>'


def _curve(edge: Edge, *, across: bool) -> str:
    points = edge.points
    if edge.ends[0] == edge.ends[1]:
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = points
        end = (dx, dy + 2) if across else (dx + 2, dy)
        return f"M{ax:g} {ay:g} C{bx:g} {by:g} {cx:g} {cy:g} {end[0]:g} {end[1]:g}"
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for (ax, ay), (bx, by) in pairwise(points):
        if across:
            middle = (ax + bx) / 2
            path += f" H{bx:g}" if ay == by else f" C{middle:g} {ay:g} {middle:g} {by:g} {bx:g} {by:g}"
        elif ax == bx:
            path += f" V{by:g}"
        else:
            middle = (ay + by) / 2
            path += f" C{ax:g} {middle:g} {bx:g} {middle:g} {bx:g} {by:g}"
    return path


def _group(group: Group) -> str:
    ground = f'<rect class="group" x="{group.x:g}" y="{group.y:g}" width="{group.w:g}" height="{group.h:g}" rx="10"/>'
    return f'<g>{ground}<text class="title" x="{group.x + 10:g}" y="{group.y + 15:g}">{_escape(group.title)}</text></g>'


def _join(join: JoinMark) -> str:
    shape = f'<rect class="joined" x="{join.x:g}" y="{join.y:g}" width="{join.w:g}" height="{join.h:g}" rx="{join.h / 2:g}"/>'
    return f"<g>{shape}{_text('label', join.x + join.w / 2, join.y + 15, join.title)}</g>"


def _tag(edge: Edge) -> str:
    assert edge.label
    assert edge.label_at
    x, y = edge.label_at
    width = units(edge.label) * UNIT * 0.92 + 10
    ground = f'<rect class="tag" x="{x - width / 2:g}" y="{y - 9:g}" width="{width:g}" height="18" rx="9"/>'
    return (
        f"<g>{ground}{_text('label', x, y + 4, edge.label)}<title>{_escape(edge.condition or edge.label)}</title></g>"
    )


def _box(box: Box, visits: int, current: bool) -> str:
    state = " current" if current else " visited" if visits else ""
    middle = box.x + box.w / 2
    if box.form in RESERVED_NODES:
        shape = f'<rect class="box{state}" x="{box.x:g}" y="{box.y:g}" width="{box.w:g}" height="{box.h:g}" rx="{box.h / 2:g}"/>'
        return f"<g>{shape}{_text('kind', middle, box.y + box.h / 2 + 4, box.name)}</g>"
    parts = [
        f'<rect class="box{state}" x="{box.x:g}" y="{box.y:g}" width="{box.w:g}" height="{box.h:g}" rx="8"/>',
        f'<rect class="{_colour(box)}" x="{box.x + 7:g}" y="{box.y + 10:g}" width="4" height="{box.h - 20:g}" rx="2"/>',
        _text("name", middle + 3, box.y + 19, box.name),
        _text("kind", middle + 3, box.y + 34, box.kind),
        f"<title>{_escape(box.description or f'{box.name}: {box.kind}')}</title>",
    ]
    if visits or current:
        parts.append(_badge(box, visits, current))
    return f"<g>{''.join(parts)}</g>"


def _badge(box: Box, visits: int, current: bool) -> str:
    mark = str(visits) if visits > 1 else "▸" if current else "✓"
    x, y = box.x + box.w - 2, box.y + 2
    ground = f'<circle class="badge{"-current" if current else ""}" cx="{x:g}" cy="{y:g}" r="9"/>'
    return ground + _text("count", x, y + 3.5, mark)


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{_escape(text)}</text>'


def _colour(box: Box) -> str:
    if box.form != "use":
        return {"ask": "ask", "unknown": "unknown"}.get(box.form, "graph")
    word = box.kind.partition(":")[0]
    return {
        "model": "model",
        "verify": "model",
        "plan": "model",
        "tools": "tools",
        "tool": "tools",
        "agent": "agent",
    }.get(word, "python")


def _escape(text: str) -> str:
    """Text for XML: markup escaped, and characters that XML 1.0 has no place for replaced."""
    # One such character, from a description, and a browser shows an error instead of the picture.
    legal = "".join(c if c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff" else " " for c in text)
    return _escape_html(legal)
