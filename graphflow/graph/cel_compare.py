"""Comparisons of two simple operands, answered without CEL where Python's answer is surely the same.

Most conditions are of this kind: `state.score >= 0.8`, `visits.judge < limits.rounds`, `answer.decision == 'no'`.
Both values must be ASCII texts (others may hold what CEL refuses), or both 64-bit integers, or both floats; everything else (mixed numbers, null, lists)
goes to CEL, which also type-checks every expression when it is loaded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from graphflow.graph import cel_syntax
from graphflow.graph.cel_syntax import Constant, Opaque, Outline, Path, SyntaxFault

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]

_COMPARISON = re.compile(r"(?P<left>[^=<>!]+?)\s*(?P<op>==|!=|<=|>=|<|>)\s*(?P<right>[^=<>!].*)", re.DOTALL)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LEAST, _MOST = -(2**63), 2**63 - 1

Operand = Path | Constant


def operands(outline: Outline, node: Opaque) -> tuple[Operand, str, Operand] | None:
    """The two sides of a comparison and its operator; None when the expression is anything else."""
    match = _COMPARISON.fullmatch(outline.text[node.start : node.end].strip())
    if match is None:
        return None
    left, right = _operand(match["left"]), _operand(match["right"])
    return None if left is None or right is None else (left, match["op"], right)


def _operand(text: str) -> Operand | None:
    try:
        root = cel_syntax.parse(text).root
    except SyntaxFault:
        return None
    return root if isinstance(root, Path | Constant) else None


def comparison(left: Evaluate, op: str, right: Evaluate, otherwise: Evaluate, *, numbers: bool) -> Evaluate:
    """Compares what both sides give, or asks CEL.

    Args:
        otherwise: CEL's evaluation of the whole comparison.
        numbers: a side is a `number` key, whose integers CEL takes as doubles: only floats are compared here.
    """
    compare = _OPERATORS[op]

    def evaluate(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        kind = type(a)
        if kind is type(b):
            if kind is int:
                if not numbers and _LEAST <= a <= _MOST and _LEAST <= b <= _MOST:
                    return compare(a, b)
            elif kind is float or (kind is str and a.isascii() and b.isascii()):
                return compare(a, b)
        return otherwise(scope)

    return evaluate
