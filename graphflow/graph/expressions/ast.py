"""The forms that the outline of an expression tells apart; offsets are in its text."""

from __future__ import annotations

from typing import Any

import msgspec


class Index(msgspec.Struct, frozen=True):
    """A step `[expression]` of a path whose value is known only at run time."""

    text: str
    at: int


Step = str | int | Index


class Path(msgspec.Struct, frozen=True):
    """`root.step.step`: read by reference."""

    root: str
    steps: tuple[Step, ...]
    start: int
    end: int
    test: str = ""
    """`has` or `size` when the path stands inside that function; the span covers the call."""

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted part, up to the first index."""
        out = [self.root]
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


class Opaque(msgspec.Struct, frozen=True):
    """Anything else: CEL's own."""

    start: int
    end: int


Node = Path | Constant | ListOf | MapOf | Choice | Opaque


class Outline(msgspec.Struct, frozen=True):
    """What the parser found."""

    text: str
    root: Node
    paths: tuple[Path, ...]
    """Every path that is not bound by a comprehension, in order of their places."""
    integers: tuple[tuple[int, str], ...]
    """Offset and text of each whole-number literal, for hints."""
    calls: tuple[tuple[int, str], ...]
    """Offset and name of each function and method."""
