"""What a condition says of `visits`, for proofs: the only part of it that is known without running (spec 2.1 rule 10).

`visits.judge < 3 && state.score < 0.8` is surely false once `judge` was entered three times, whatever the score is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from graphflow.graph.expressions.ast import COMPARISONS, Binary, Constant, Node, Path, Unary
from graphflow.graph.expressions.parser import ExpressionSyntaxError, parse

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Count(msgspec.Struct, frozen=True):
    """`visits.NODE OPERATOR NUMBER`."""

    node: str
    operator: str
    number: float


class Junction(msgspec.Struct, frozen=True):
    """Parts joined by `&&` or `||`; None is a part of which nothing is known."""

    every: bool
    parts: tuple[Condition | None, ...]


class Negation(msgspec.Struct, frozen=True):
    part: Condition


Condition = Count | Junction | Negation


def read_condition(text: str | None, figures: Mapping[str, Any]) -> Condition | None:
    """What is known of a condition; None when nothing is.

    Args:
        figures: `limits.NAME` → its figure, where the document has one.
    """
    if text is None:
        return None
    try:
        return _read(parse(text).root, figures)
    except ExpressionSyntaxError:
        return None


def holds(condition: Condition | None, visits: Mapping[str, int]) -> bool | None:
    """Whether it is surely true or false at these counts; None when that depends on more.

    Nodes that `visits` lacks are not known.
    """
    match condition:
        case None:
            return None
        case Count(node, word, number):
            return COMPARISONS[word](visits[node], number) if node in visits else None
        case Negation(part):
            value = holds(part, visits)
            return None if value is None else not value
        case Junction(every, parts):
            values = [holds(part, visits) for part in parts]
            if (not every) in values:
                return not every
            return None if None in values else every


def thresholds(condition: Condition | None) -> Iterator[tuple[str, int]]:
    """`(node, count)` pairs: from this count on the comparison no longer changes."""
    match condition:
        case Count(node, _, number):
            yield node, max(0, int(number) + 1)
        case Negation(part):
            yield from thresholds(part)
        case Junction(_, parts):
            for joined in parts:
                yield from thresholds(joined)


def _read(node: Node, figures: Mapping[str, Any]) -> Condition | None:
    match node:
        case Binary("||" | "&&" as joint, left, right):
            parts = _read(left, figures), _read(right, figures)
            return Junction(joint == "&&", parts) if parts != (None, None) else None
        case Unary("!", operand):
            negated = _read(operand, figures)
            return None if negated is None else Negation(negated)
        case Binary(word, left, right) if word in COMPARISONS:
            if (count := _count(left, word, right, figures)) is not None:
                return count
            return _count(right, _MIRRORED.get(word, word), left, figures)
    return None


def _count(visits: Node, word: str, number: Node, figures: Mapping[str, Any]) -> Count | None:
    match visits, number:
        case Path(variable="visits", steps=(str(node),)), Constant(int(value), "int"):
            return Count(node, word, value)
        case Path(variable="visits", steps=(str(node),)), Path(variable="limits", steps=(str(name),)):
            figure = figures.get(name)
            return Count(node, word, figure) if isinstance(figure, int | float) else None
    return None
