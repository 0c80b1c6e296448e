"""A span of an expression with its paths replaced by variables that the CEL library knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphflow.graph.expressions import cel_library
from graphflow.graph.expressions.ast import Outline, Path


class Rewritten:
    """An expression with its paths replaced by typed variables, and the way back for columns."""

    def __init__(self, text: str, variables: list[tuple[str, str, Path]], places: list[tuple[int, int]]) -> None:
        self.text = text
        self.variables = variables
        """Name, CEL type and path of each."""
        self._places = places
        self.width = max((int(name[1:]) + 1 for name, _, _ in variables), default=0)

    def offset(self, line: int, column: int) -> int:
        """Offset in the expression of a place in the rewritten text (both 1-based)."""
        lines = self.text.split("\n")
        at = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
        inside, outside = max((place for place in self._places if place[0] <= at), default=(0, 0))
        return outside + (at - inside)


def rewrite(outline: Outline, start: int, end: int, type_of: Callable[[Path], str]) -> Rewritten:
    """The span with each path as a variable named by its type: `state.score > 1.0` → `f0 > 1.0`."""
    out: list[str] = []
    places = [(0, start)]
    names: dict[tuple[Any, ...], str] = {}
    counts: dict[str, int] = {}
    variables: list[tuple[str, str, Path]] = []
    at, length = start, 0
    for path in outline.paths:
        # Paths of other parts of the expression, such as the branches of a choice that are read by reference.
        if not start <= path.start < end:
            continue
        kind = type_of(path)
        # The same path twice is one variable: it is read and converted once.
        same = (path.variable, path.steps, path.test, kind)
        name = names.get(same)
        if name is None:
            letter = cel_library.VARIABLE_LETTERS[kind.removesuffix("[]")]
            name = f"{letter}{counts.get(letter, 0)}"
            counts[letter] = counts.get(letter, 0) + 1
            variables.append((name, kind, path))
            name = names[same] = f"[{name}]" if kind.endswith("[]") else name
        between = outline.text[at : path.start]
        out += (between, name)
        length += len(between)
        places.append((length, path.start))
        length += len(name)
        places.append((length, path.end))
        at = path.end
    out.append(outline.text[at:end])
    return Rewritten("".join(out), variables, places)
