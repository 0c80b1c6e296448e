"""What a condition says of `visits`, for proofs: the only part of it that is known without running (spec 2.1 rule 10).

`visits.judge < 3 && state.score < 0.8` is surely false once `judge` was entered three times, whatever the score is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from graphflow.graph.expressions.ast import COMPARISONS, Binary, Constant, Node, Path, Unary
from graphflow.graph.expressions.parser import ExpressionSyntaxError, parse

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class VisitBound(msgspec.Struct, frozen=True):
    """A condition as far as `visits` decides it."""

    holds: Callable[[Mapping[str, int]], bool | None]
    """Whether it is surely true or false at these counts; None when that depends on more. Nodes that the counts lack
    are not known."""
    thresholds: tuple[tuple[str, int], ...]
    """`(node, count)` pairs: from this count on the comparison no longer changes."""


def visit_bound(text: str | None, limits: Mapping[str, Any]) -> VisitBound | None:
    """What is known of a condition; None when nothing is.

    Args:
        limits: `limits.NAME` → its value, where the document sets one.
    """
    try:
        return None if text is None else _read(parse(text).root, limits)
    except ExpressionSyntaxError:
        return None


def _read(node: Node, limits: Mapping[str, Any]) -> VisitBound | None:
    match node:
        case Binary("||" | "&&" as joint, left, right):
            return _joined(_read(left, limits), _read(right, limits), decisive=joint == "||")
        case Unary("!", operand) if (bound := _read(operand, limits)) is not None:
            holds = bound.holds
            return VisitBound(lambda visits: None if (held := holds(visits)) is None else not held, bound.thresholds)
        case Binary(word, left, right) if word in COMPARISONS:
            return _compared(left, word, right, limits) or _compared(right, _MIRRORED.get(word, word), left, limits)
    return None


def _joined(left: VisitBound | None, right: VisitBound | None, *, decisive: bool) -> VisitBound | None:
    """Either side decides the whole when it has the decisive value, even if nothing is known of the other."""
    parts = [part for part in (left, right) if part is not None]
    if not parts:
        return None

    def holds(visits: Mapping[str, int]) -> bool | None:
        values = [part.holds(visits) for part in parts]
        if decisive in values:
            return decisive
        return None if len(parts) < 2 or None in values else not decisive

    return VisitBound(holds, tuple(threshold for part in parts for threshold in part.thresholds))


def _compared(visits: Node, word: str, number: Node, limits: Mapping[str, Any]) -> VisitBound | None:
    """`visits.NODE OPERATOR NUMBER`."""
    most: Any = None
    match number:
        case Constant(int(value), "int"):
            most = value
        case Path(variable="limits", steps=(str(name),)):
            most = limits.get(name)
    match visits:
        case Path(variable="visits", steps=(str(node),)) if isinstance(most, int | float):
            # One more than the number: `<=` and `>` still change at the number itself.
            compare, enough = COMPARISONS[word], max(0, int(most) + 1)
            return VisitBound(lambda counts: compare(counts[node], most) if node in counts else None, ((node, enough),))
    return None
