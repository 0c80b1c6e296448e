"""Counters, gauges and histograms, and their text form for Prometheus.

Only what this project needs of https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4). Everything
is of one event loop's thread, so nothing is locked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of a histogram of durations."""


class Metric:
    """A named family of values, one for each combination of its labels' values."""

    kind = "untyped"

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        self.name, self.meaning, self.labels = name, meaning, tuple(labels)

    def lines(self) -> Iterator[str]:
        """The samples."""
        raise NotImplementedError


class _Values(Metric):
    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, meaning, labels)
        # A family without labels begins at 0, so that its series exists before the first event.
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield f"{self.name}{_braces(zip(self.labels, labels, strict=True))} {_number(value)}"


class Counter(_Values):
    """Only grows."""

    kind = "counter"

    def add(self, amount: float = 1, *labels: str) -> None:
        self._values[labels] = self._values.get(labels, 0) + amount


class Gauge(_Values):
    """Goes up and down."""

    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        self._values[labels] = value

    def add(self, amount: float, *labels: str) -> None:
        self._values[labels] = self._values.get(labels, 0) + amount


class Histogram(Metric):
    """How many values lay at or below each of some bounds; one series, without labels."""

    kind = "histogram"

    def __init__(self, name: str, meaning: str, bounds: Sequence[float] = SECONDS) -> None:
        super().__init__(name, meaning)
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        # A value equal to a bound lies in its bucket: `le` means at most.
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def lines(self) -> Iterator[str]:
        # Prometheus buckets are cumulative: each counts all values up to its bound.
        below = 0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            yield f'{self.name}_bucket{{le="{bound}"}} {below}'
        yield f"{self.name}_sum {_number(self._sum)}"
        yield f"{self.name}_count {below}"


def render(metrics: Iterable[Metric]) -> str:
    """The page that Prometheus reads."""
    out: list[str] = []
    for metric in metrics:
        out += (f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}", *metric.lines())
    return "\n".join(out) + "\n"


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
