"""From layers to pixels: where boxes, lines and labels of one picture lie. Works on integers and sizes only.

Between two layers lies a row of its own for labels, where there are any: a label takes part in ordering and
placing like a node, so no two overlap and no line runs through one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from graphflow.graph.drawing.sugiyama import LayeredRows, order_rows, place_rows

Point = tuple[float, float]
Size = tuple[float, float]

LABEL_HEIGHT = 20.0
GAP_X, GAP_Y, LABEL_GAP_Y, MARGIN = 26.0, 46.0, 20.0, 20.0
PORT_STEP = 30.0
"""Distance of two lines that leave one node by the same side."""
LOOP = 26.0
"""How far a node's route to itself reaches out."""
PIECE_WIDTH = 8.0
PIECES_A_NODE = 12
"""Pieces that long edges may be cut into, per node; the longest ones of a huge graph are drawn straight instead."""


class Coordinates:
    """One picture: `ends[i]` are edge i's source and target, `label_widths[i]` is 0 for an edge without label."""

    def __init__(
        self,
        layers: Sequence[int],
        boxes: Sequence[Size],
        ends: Sequence[tuple[int, int]],
        label_widths: Sequence[float],
        label_height: float = LABEL_HEIGHT,
    ) -> None:
        self._label_height = label_height
        self._layers, self._boxes, self._ends, self._label_widths = layers, boxes, ends, label_widths
        self._row_of_layer, self._label_rows = self._make_rows()
        self._row_of: list[int] = []
        self._rows = LayeredRows([[] for _ in range(len(self._row_of_layer) + len(self._label_rows))], nodes=len(boxes))
        for vertex, (width, _) in enumerate(boxes):
            self._add(self._row_of_layer[layers[vertex]], width)
        self._label_piece: dict[int, int] = {}
        cut = self._edges_to_cut()
        self._chains = [self._chain(i, i in cut) for i in range(len(ends))]
        self._make_room_for_loops()
        order_rows(self._rows)
        self._place()

    # --- what came out ---

    def corner(self, vertex: int) -> Point:
        """Top left corner of a box."""
        return px(self._middle[vertex] - self._boxes[vertex][0] / 2), px(self._top[vertex])

    def order(self, vertex: int) -> int:
        """Its place among the boxes of its layer, 0 at the left."""
        row = self._rows.rows[self._row_of[vertex]]
        return sum(1 for other in row[: row.index(vertex)] if other < len(self._boxes))

    def line(self, edge: int) -> tuple[Point, ...]:
        """From the source's border to the target's; vertical at each point."""
        if self._is_loop(edge):
            return self._loop(edge)
        chain = self._chains[edge]
        points = [(self._ports[chain[0], edge, True], self._top[chain[0]] + self._boxes[chain[0]][1])]
        for piece in chain[1:-1]:
            row = self._row_of[piece]
            points += [
                (self._middle[piece], self._row_top[row]),
                (self._middle[piece], self._row_top[row] + self._height[row]),
            ]
        points.append((self._ports[chain[-1], edge, False], self._top[chain[-1]]))
        # Chains run downwards; a route that goes back is drawn from its lower end.
        if chain[0] != self._ends[edge][0]:
            points.reverse()
        return tuple((px(x), px(y)) for x, y in points)

    def label_at(self, edge: int) -> Point | None:
        """Middle of the edge's label, or None."""
        width = self._label_widths[edge]
        if not width:
            return None
        source, target = self._ends[edge]
        if source == target:
            x = self._middle[source] + self._boxes[source][0] / 2 + LOOP + width / 2
            return px(x), px(self._top[source] + self._boxes[source][1] / 2)
        piece = self._label_piece.get(edge)
        if piece is None:
            return px((self._middle[source] + self._middle[target]) / 2), px(
                (self._top[source] + self._top[target]) / 2
            )
        return px(self._middle[piece]), px(self._row_top[self._row_of[piece]] + self._label_height / 2)

    # --- rows and pieces ---

    def _make_rows(self) -> tuple[list[int], set[int]]:
        gaps = {self._label_gap(i) for i, width in enumerate(self._label_widths) if width and not self._is_loop(i)}
        row_of_layer: list[int] = []
        label_rows: set[int] = set()
        for layer in range(max(self._layers, default=-1) + 1):
            row_of_layer.append(layer + len(label_rows))
            if layer in gaps:
                label_rows.add(row_of_layer[-1] + 1)
        return row_of_layer, label_rows

    def _label_gap(self, edge: int) -> int:
        """The layer above the label: a label stands next to the edge's source, where it is decided."""
        source, target = self._ends[edge]
        down = self._layers[source] < self._layers[target]
        return self._layers[source] if down else self._layers[source] - 1

    def _is_loop(self, edge: int) -> bool:
        return self._ends[edge][0] == self._ends[edge][1]

    def _rows_between(self, edge: int) -> range:
        upper, lower = sorted(self._row_of_layer[self._layers[v]] for v in self._ends[edge])
        return range(upper + 1, lower)

    def _edges_to_cut(self) -> set[int]:
        """Edges whose pieces take part in the layout: all but, in a huge graph, the longest."""
        left = PIECES_A_NODE * len(self._boxes) + 256
        cut: set[int] = set()
        # Shortest first: the few edges that cross a huge graph would take all the pieces.
        for edge in sorted(range(len(self._ends)), key=lambda i: len(self._rows_between(i))):
            left -= len(self._rows_between(edge))
            if left < 0:
                break
            cut.add(edge)
        return cut

    def _add(self, row: int, width: float) -> int:
        self._row_of.append(row)
        return self._rows.add(row, width)

    def _chain(self, edge: int, cut: bool) -> list[int]:
        """The edge's vertices from top to bottom: a node, pieces, a node."""
        if self._is_loop(edge):
            return []
        upper, lower = sorted(self._ends[edge], key=lambda v: self._layers[v])
        between = self._rows_between(edge)
        if not cut and len(between):
            return [upper, lower]
        chain = [upper]
        for row in between:
            here = self._label_widths[edge] and row == self._row_of_layer[self._label_gap(edge)] + 1
            chain.append(self._add(row, self._label_widths[edge] if here else PIECE_WIDTH))
            if here:
                self._label_piece[edge] = chain[-1]
        chain.append(lower)
        for above, below in pairwise(chain):
            self._rows.join(above, below)
        return chain

    def _make_room_for_loops(self) -> None:
        for edge, (vertex, _) in enumerate(self._ends):
            if self._is_loop(edge):
                reach = self._boxes[vertex][0] / 2 + LOOP + self._label_widths[edge]
                self._rows.right[vertex] = max(self._rows.right[vertex], reach)

    # --- places ---

    def _place(self) -> None:
        middle = place_rows(self._rows, GAP_X)
        shift = MARGIN - min((m - self._rows.left[v] for v, m in enumerate(middle)), default=0.0)
        self._middle = [m + shift for m in middle]
        self.width = px(max((m + self._rows.right[v] for v, m in enumerate(self._middle)), default=0.0) + MARGIN)
        self._row_top: list[float] = []
        self._height: list[float] = []
        y = MARGIN
        for i, row in enumerate(self._rows.rows):
            beside_label = i in self._label_rows or i - 1 in self._label_rows
            y += 0 if i == 0 else LABEL_GAP_Y if beside_label else GAP_Y
            heights = [self._boxes[v][1] for v in row if v < len(self._boxes)]
            self._row_top.append(y)
            self._height.append(max(heights, default=self._label_height))
            y += self._height[-1]
        self.height = px(y + MARGIN)
        self._top = [
            self._row_top[self._row_of[v]] + (self._height[self._row_of[v]] - height) / 2
            for v, (_, height) in enumerate(self._boxes)
        ]  # fmt: skip
        self._ports = self._make_ports()

    def _make_ports(self) -> dict[tuple[int, int, bool], float]:
        """(node, edge, below) → x: lines leave a side in the order of where they go."""
        sides: dict[tuple[int, bool], list[tuple[float, int]]] = {}
        for edge, chain in enumerate(self._chains):
            if chain:
                sides.setdefault((chain[0], True), []).append((self._middle[chain[1]], edge))
                sides.setdefault((chain[-1], False), []).append((self._middle[chain[-2]], edge))
        ports: dict[tuple[int, int, bool], float] = {}
        for (vertex, below), lines in sides.items():
            step = min(PORT_STEP, 0.7 * self._boxes[vertex][0] / len(lines))
            # Sorted by where they lead, so lines that leave one side do not cross at the node.
            for i, (_, edge) in enumerate(sorted(lines)):
                ports[vertex, edge, below] = self._middle[vertex] + (i - (len(lines) - 1) / 2) * step
        return ports

    def _loop(self, edge: int) -> tuple[Point, ...]:
        vertex = self._ends[edge][0]
        width, height = self._boxes[vertex]
        x, y = self._middle[vertex] + width / 2, self._top[vertex]
        corners = (
            (x, y + height * 0.3),
            (x + LOOP, y + height * 0.3),
            (x + LOOP, y + height * 0.7),
            (x, y + height * 0.7),
        )
        return tuple((px(a), px(b)) for a, b in corners)


def px(value: float) -> float:
    """Tenths of a pixel are enough, and keep drawings equal between platforms."""
    return round(value, 1) + 0.0
