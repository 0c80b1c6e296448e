"""The layered layout as a pure graph algorithm over integers: row, order within the row, and position.

The steps are those of Sugiyama, Tagawa and Toda: break cycles, put vertices in rows by longest path, cut long
edges into one piece a row, order each row by barycenters, then place. Everything is deterministic and iterative;
the work is linear in vertices and pieces but for the sorting, so that graphs of thousands of nodes can be drawn.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

ORDER_SWEEPS = 8
PLACE_SWEEPS = 40
"""Passes over all rows; more do not change pictures of usual size."""
LARGE = 2_000
"""Vertices above which fewer passes run: in such a picture details do not matter, the waiting time does."""
STRAIGHTNESS = 4.0
"""Weight of a piece of an edge against a node when it is placed under its neighbour: long edges stay straight."""


@dataclass
class LayeredRows:
    """Vertices in rows; `0..n-1` are the nodes, the rest are pieces of long edges."""

    rows: list[list[int]]
    nodes: int
    left: list[float] = field(default_factory=list)
    """How far each vertex reaches to the left of its middle."""
    right: list[float] = field(default_factory=list)
    up: list[list[int]] = field(default_factory=list)
    """Neighbours in the row above."""
    down: list[list[int]] = field(default_factory=list)

    def add(self, row: int, width: float) -> int:
        """A new vertex, `width` wide, at the end of the row."""
        self.rows[row].append(len(self.left))
        self.left.append(width / 2)
        self.right.append(width / 2)
        self.up.append([])
        self.down.append([])
        return len(self.left) - 1

    def join(self, above: int, below: int) -> None:
        self.down[above].append(below)
        self.up[below].append(above)


def longest_path_layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Each vertex's layer, 0 on top: one below its lowest predecessor. `edges` have no cycle."""
    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for source, target in edges:
        out[source].append(target)
        missing[target] += 1
    layers = [0] * count
    ready = [vertex for vertex in range(count) if not missing[vertex]]
    for vertex in ready:  # grows while it is walked
        for target in out[vertex]:
            layers[target] = max(layers[target], layers[vertex] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return layers


def order_rows(rows: LayeredRows) -> None:
    """Orders each row so that few edges cross: barycenter sweeps, the best order seen wins."""
    best, fewest = [list(row) for row in rows.rows], crossings(rows)
    for sweep in range(ORDER_SWEEPS):
        # No crossing left to remove, as in most graphs.
        if not fewest:
            break
        downwards = sweep % 2 == 0
        order = range(1, len(rows.rows)) if downwards else range(len(rows.rows) - 2, -1, -1)
        for i in order:
            _sort_by_barycenter(
                rows.rows[i], rows.rows[i - 1 if downwards else i + 1], rows.up if downwards else rows.down
            )
        count = crossings(rows)
        # A sweep can make it worse again, so the best order is kept and not the last.
        if count < fewest:
            best, fewest = [list(row) for row in rows.rows], count
    rows.rows[:] = best


def _sort_by_barycenter(row: list[int], fixed: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
    place = {vertex: i for i, vertex in enumerate(fixed)}
    weight = {
        vertex: sum(place[n] for n in near) / len(near) if (near := neighbours[vertex]) else float(i)
        for i, vertex in enumerate(row)
    }
    row.sort(key=weight.__getitem__)  # stable: equal ones keep their order


def crossings(rows: LayeredRows) -> int:
    """How many pairs of edges cross between neighbouring rows."""
    total = 0
    for upper, lower in zip(rows.rows, rows.rows[1:], strict=False):
        place = {vertex: i for i, vertex in enumerate(lower)}
        seen: list[int] = []
        for vertex in upper:
            ends = sorted(place[n] for n in rows.down[vertex])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def place_rows(rows: LayeredRows, gap: float) -> list[float]:
    """The middle of each vertex: near its neighbours, in its row's order, at least `gap` from the next one."""
    middle = [0.0] * len(rows.left)
    for row in rows.rows:
        _spread(row, [0.0] * len(row), [1.0] * len(row), rows, gap, middle)
    sweeps = PLACE_SWEEPS if len(middle) <= LARGE else PLACE_SWEEPS // 5
    for sweep in range(sweeps):
        downwards = sweep % 2 == 0
        both = sweep >= sweeps // 4  # first from one side, to move far; then between both, to settle
        for row in rows.rows if downwards else reversed(rows.rows):
            wanted, weights = [], []
            for vertex in row:
                near = rows.up[vertex] + rows.down[vertex] if both else (rows.up if downwards else rows.down)[vertex]
                pulls = [_pull(vertex, other, rows.nodes) for other in near]
                total = sum(pulls)
                wanted.append(
                    sum(p * middle[n] for p, n in zip(pulls, near, strict=True)) / total if near else middle[vertex]
                )
                weights.append(total or 0.1)
            _spread(row, wanted, weights, rows, gap, middle)
    return middle


def _pull(vertex: int, other: int, nodes: int) -> float:
    """The weight with which two neighbours are aligned: highest for pieces of the same edge."""
    return STRAIGHTNESS ** ((vertex >= nodes) + (other >= nodes))


def _spread(
    row: Sequence[int],
    wanted: Sequence[float],
    weights: Sequence[float],
    rows: LayeredRows,
    gap: float,
    middle: list[float],
) -> None:
    """Sets the middles closest to the wanted ones (weighted least squares) that keep order and gaps.

    With each vertex's offset from the row's first taken off, "keep order and gaps" becomes "never decrease":
    pooling neighbours that would decrease into their mean is the exact solution.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    offsets: list[float] = []
    for i, vertex in enumerate(row):
        offsets.append(offsets[-1] + rows.right[row[i - 1]] + gap + rows.left[vertex] if i else 0.0)
        mean, weight, size = wanted[i] - offsets[i], weights[i], 1
        while pools and pools[-1][0] > mean:
            other, heavy, members = pools.pop()
            mean = (mean * weight + other * heavy) / (weight + heavy)
            weight, size = weight + heavy, size + members
        pools.append((mean, weight, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    for vertex, mean, offset in zip(row, means, offsets, strict=True):
        middle[vertex] = mean + offset
