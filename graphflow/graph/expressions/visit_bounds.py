"""What a condition says of `visits`, for proofs: the only part of it that is known without running (spec 2.1 rule 10).

`visits.judge < 3 && state.score < 0.8` is surely false once `judge` was entered three times, whatever the score is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.graph.expressions.parser import SyntaxFault, Token, tokens

_OPERATORS: dict[str, Callable[[int, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
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
        return _read(list(tokens(text)), figures)
    except SyntaxFault:
        return None


def holds(condition: Condition | None, visits: Mapping[str, int]) -> bool | None:
    """Whether it is surely true or false at these counts; None when that depends on more.

    Nodes that `visits` lacks are not known.
    """
    match condition:
        case None:
            return None
        case Count(node, word, number):
            return _OPERATORS[word](visits[node], number) if node in visits else None
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


def _read(words: Sequence[Token], figures: Mapping[str, Any]) -> Condition | None:
    texts = [word[1] if word[0] in ("op", "name", "int", "float") else "" for word in words]
    if "?" in texts:
        return None
    for joint in ("||", "&&"):
        parts = _split(texts, joint)
        if len(parts) > 1:
            read = tuple(_read(words[first:last], figures) for first, last in parts)
            return Junction(joint == "&&", read) if any(part is not None for part in read) else None
    if texts[:1] == ["!"]:
        negated = _read(words[1:], figures)
        return None if negated is None else Negation(negated)
    if texts[:1] == ["("] and texts[-1:] == [")"]:
        return _read(words[1:-1], figures) if _closes_last(texts) else None
    return _comparison(texts, figures)


def _split(texts: Sequence[str], joint: str) -> list[tuple[int, int]]:
    """The spans between the joints that stand in no bracket."""
    out, begin, depth = [], 0, 0
    for place, text in enumerate(texts):
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if text == joint and depth == 0:
            out.append((begin, place))
            begin = place + 1
    return [*out, (begin, len(texts))]


def _closes_last(texts: Sequence[str]) -> bool:
    depth = 0
    for place, text in enumerate(texts):
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if depth == 0:
            return place == len(texts) - 1
    return False


def _comparison(texts: Sequence[str], figures: Mapping[str, Any]) -> Count | None:
    match list(texts):
        case ["visits", ".", node, word, *rest] if word in _OPERATORS:
            number = _number(rest, figures)
            return None if number is None else Count(node, word, number)
        case [*rest, word, "visits", ".", node] if word in _OPERATORS:
            number = _number(rest, figures)
            return None if number is None else Count(node, _MIRRORED.get(word, word), number)
    return None


def _number(texts: Sequence[str], figures: Mapping[str, Any]) -> float | None:
    match list(texts):
        case [digits] if digits.isdigit():
            return int(digits)
        case ["limits", ".", name] if isinstance(figures.get(name), int | float):
            found: float = figures[name]
            return found
    return None
