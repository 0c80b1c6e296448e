"""The syntax tree of an expression; every offset is one in its text.

The parser builds it; the native evaluator, the bounds of `visits` and the compiler walk it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import msgspec

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Index(msgspec.Struct, frozen=True):
    """A step `[expression]` of a path whose value is known only at run time."""

    outline: Outline

    @property
    def text(self) -> str:
        return self.outline.text[self.outline.root.start : self.outline.root.end]


PathStep = str | int | Index


class Path(msgspec.Struct, frozen=True):
    """`variable.step.step`: read by reference."""

    variable: str
    steps: tuple[PathStep, ...]
    start: int
    end: int
    test: str = ""
    """`has` or `size` when the path stands inside that function; the span covers the call."""

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted part, up to the first index."""
        out = [self.variable]
        for step in self.steps:
            if not isinstance(step, str):
                break
            out.append(step)
        return tuple(out)


class Constant(msgspec.Struct, frozen=True):
    value: Any
    type: str
    start: int
    end: int


class ListOf(msgspec.Struct, frozen=True):
    items: tuple[Node, ...]
    start: int
    end: int


class MapOf(msgspec.Struct, frozen=True):
    """A map whose keys are text literals."""

    entries: tuple[tuple[str, Node], ...]
    start: int
    end: int


class Choice(msgspec.Struct, frozen=True):
    """`condition ? then : other`."""

    condition: Node
    then: Node
    other: Node
    start: int
    end: int


class Unary(msgspec.Struct, frozen=True):
    """`!operand` or `-operand`; a number with its sign is a `Constant`."""

    operator: str
    operand: Node
    start: int
    end: int


class Binary(msgspec.Struct, frozen=True):
    """`left operator right`; all operators are left-associative."""

    operator: str
    left: Node
    right: Node
    start: int
    end: int


class Opaque(msgspec.Struct, frozen=True):
    """Anything else: only the CEL library looks into it."""

    start: int
    end: int
    parts: tuple[Node, ...] = ()
    type: str = "dyn"
    """`uint` for a literal of this type; `dyn` for anything else."""


class FunctionCall(msgspec.Struct, frozen=True):
    """A function or a method, whose target is the first argument; the CEL library calls it."""

    name: str
    arguments: tuple[Node, ...]
    start: int
    end: int


class Loop(msgspec.Struct, frozen=True):
    """A comprehension: `list.map(variable, …)` and its siblings."""

    start: int
    """Of what it goes through."""
    opens: int
    """Its parenthesis."""
    end: int
    variable: str
    macro: str
    target: Node
    bodies: tuple[tuple[int, int], ...]
    """Where its expressions stand. They are outlines of their own (`parser.parse_part`): there the variable is a path like any other."""


Node = Path | Constant | ListOf | MapOf | Choice | Unary | Binary | FunctionCall | Loop | Opaque


class Outline(msgspec.Struct, frozen=True):
    """What the parser found."""

    text: str
    root: Node
    paths: tuple[Path, ...]
    """Every path that is not bound by a comprehension, in order of their places; those of an `Index` are in its own."""
    operations: tuple[tuple[int, Binary], ...] = ()
    """Each operator's offset and what it joins, also inside of calls; for hints."""
    calls: tuple[tuple[int, str], ...] = ()
    """Offset and name of each function and method."""
    loops: tuple[Loop, ...] = ()
    uses: tuple[tuple[int, str], ...] = ()
    """Offset and name of each place that names the variable of a comprehension."""
