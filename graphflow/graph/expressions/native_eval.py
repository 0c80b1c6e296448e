"""Conditions and sums that are answered without CEL where Python's answer is surely CEL's.

Most conditions are comparisons: `state.score >= 0.8`, `visits.judge < limits.rounds`, `answer.decision == 'no'`,
`state.draft != null`, `state.n % 3 == 0 && !state.done`; most other expressions add one. What is taken here is `&&`, `||`,
`!`, comparisons, and arithmetic of paths and literals; and of that only values whose meaning is the same on both sides: ASCII texts
(others may hold what CEL refuses), 64-bit integers, floats, booleans, null. An overflow, a division by zero, mixed
numbers, lists and everything else go to CEL as a whole, which also type-checks every expression when it is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from graphflow.graph.expressions import parser as cel_syntax
from graphflow.graph.expressions.environment import Roots
from graphflow.graph.expressions.parser import Constant, Opaque, Outline, Path, SyntaxFault, Token
from graphflow.graph.expressions.paths import Missing

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]
Reader = Callable[[Path, Roots], Evaluate]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LEVELS = (frozenset({"||"}), frozenset({"&&"}), frozenset(_COMPARISONS), frozenset("+-"), frozenset("*/%"))
"""Binary operators, loosest first; all are left-associative."""
_LEAST, _MOST = -(2**63), 2**63 - 1


class _Unsure(Exception):
    """Only CEL knows."""


class _Operand:
    """One side of a comparison or of an arithmetic operation."""

    __slots__ = ("constant", "dyn", "number", "read")

    def __init__(self, read: Evaluate, *, number: bool, dyn: bool, constant: Any = None) -> None:
        self.read = read
        self.number = number
        """A `number` key is in it, whose integers CEL takes as doubles: only floats are looked at here."""
        self.dyn = dyn
        """It may be null for CEL too."""
        self.constant = constant
        """The value of a whole-number literal."""


def decided(outline: Outline, node: Opaque, roots: Roots, reader: Reader, otherwise: Evaluate) -> Evaluate | None:
    """What answers the expression in place, or asks CEL; None when it is anything but a plain condition or sum.

    Args:
        reader: reads a path by reference.
        otherwise: CEL's evaluation of the whole.
    """
    try:
        decide = _Reading(outline.text, node.start, node.end, roots, reader).whole()
    except (_Unsure, SyntaxFault):
        return None

    def evaluate(scope: Scope) -> Any:
        try:
            return decide(scope)
        except (_Unsure, Missing):
            return otherwise(scope)

    return evaluate


class _Reading:
    """A span of an expression, read as a condition or a sum; raises `_Unsure` where it is something else."""

    def __init__(self, text: str, start: int, end: int, roots: Roots, reader: Reader) -> None:
        self._text, self._roots, self._reader = text[:end], roots, reader
        self._tokens = list(cel_syntax.tokens(self._text, start))

    def whole(self) -> Evaluate:
        tokens = _bared(self._tokens)
        if any(_split(tokens, level) for level in (0, 1, 2)) or (tokens and tokens[0][1] == "!"):
            return self._condition(tokens)
        return self._operand(tokens).read

    def _condition(self, tokens: list[Token]) -> Evaluate:
        tokens = _bared(tokens)
        if (split := _split(tokens, 0)) or (split := _split(tokens, 1)):
            left, word, right = split
            return _both(self._condition(left), self._condition(right), until=word == "||")
        if split := _split(tokens, 2):
            left, word, right = split
            if _split(left, 2):
                raise _Unsure
            return _compared(self._operand(left), word, self._operand(right))
        if tokens and tokens[0][1] == "!":
            return _negated(self._condition(tokens[1:]))
        return _boolean(self._operand(tokens).read)

    def _operand(self, tokens: list[Token]) -> _Operand:
        tokens = _bared(tokens)
        for level in (3, 4):
            if split := _split(tokens, level):
                left, word, right = split
                return _arithmetic(self._operand(left), word, self._operand(right))
        if not tokens:
            raise _Unsure
        text = self._text[tokens[0][2] : tokens[-1][2] + len(tokens[-1][1])]
        node = cel_syntax.parse(text).root
        if isinstance(node, Path):
            roots = self._roots
            dyn = roots.variable_type(node) == "dyn"
            return _Operand(self._reader(node, roots), number=roots.is_number(node), dyn=dyn)
        if isinstance(node, Constant):
            value = node.value
            constant = value if node.type == "int" else None
            return _Operand(lambda scope: value, number=False, dyn=value is None, constant=constant)
        raise _Unsure


# --- the operators of a span -----------------------------------------------------------------------

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def _split(tokens: list[Token], level: int) -> tuple[list[Token], str, list[Token]] | None:
    """At the last operator of this level that stands in no brackets."""
    depth, found = 0, None
    for index, (kind, word, _) in enumerate(tokens):
        if kind == "op":
            if word in _OPENING:
                depth += 1
            elif word in _CLOSING:
                depth -= 1
            elif depth == 0 and word == "?":
                raise _Unsure
            elif depth == 0 and word in _LEVELS[level] and index and _ends_operand(tokens[index - 1]):
                found = index
        elif kind == "name" and word == "in" and depth == 0:
            raise _Unsure
    return None if found is None else (tokens[:found], tokens[found][1], tokens[found + 1 :])


def _ends_operand(token: Token) -> bool:
    """Whether the operator after this token is a binary one."""
    return token[0] != "op" or token[1] in _CLOSING


def _bared(tokens: list[Token]) -> list[Token]:
    """Without the parentheses around the whole."""
    while tokens and tokens[0][1] == "(" and _closing(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _closing(tokens: list[Token]) -> int:
    """Where the bracket that comes first is closed."""
    depth = 0
    for index, (kind, word, _) in enumerate(tokens):
        if kind == "op":
            depth += (word in _OPENING) - (word in _CLOSING)
        if depth == 0:
            return index
    raise _Unsure


# --- logic ----------------------------------------------------------------------------------------


def _boolean(read: Evaluate) -> Evaluate:
    def evaluate(scope: Scope) -> bool:
        value = read(scope)
        if value is True or value is False:
            return bool(value)
        raise _Unsure

    return evaluate


def _negated(condition: Evaluate) -> Evaluate:
    return lambda scope: not condition(scope)


def _both(left: Evaluate, right: Evaluate, *, until: bool) -> Evaluate:
    """`&&` and `||`. What the right side would have failed with counts for CEL no more than here."""
    return lambda scope: until if left(scope) is until else right(scope)


def _compared(left: _Operand, word: str, right: _Operand) -> Evaluate:
    """Two values of one kind; or, for equality, one that is null."""
    compare, read, read_other = _COMPARISONS[word], left.read, right.read
    numbers = left.number or right.number
    equality = word in ("==", "!=")
    nulls, unequal = equality and left.dyn and right.dyn, word == "!="

    def evaluate(scope: Scope) -> bool:
        a, b = read(scope), read_other(scope)
        kind = type(a)
        if kind is type(b):
            if kind is int:
                alike = not numbers and _LEAST <= a <= _MOST and _LEAST <= b <= _MOST
            elif kind is str:
                alike = a.isascii() and b.isascii()
            else:
                alike = kind is float or (kind is bool and equality) or (a is None and nulls)
            if alike:
                return compare(a, b)
        elif nulls and (_beside_null(a) if b is None else a is None and _beside_null(b)):
            return unequal
        raise _Unsure

    literal = right.constant
    if literal is None or left.number:
        return evaluate

    def evaluate_literal(scope: Scope) -> bool:
        a = read(scope)
        if type(a) is int and _LEAST <= a <= _MOST:
            return compare(a, literal)
        return evaluate(scope)

    return evaluate_literal


def _beside_null(value: Any) -> bool:
    """Whether the value is one that CEL surely holds, and so is surely not null."""
    kind = type(value)
    if kind is int:
        return bool(_LEAST <= value <= _MOST)
    return kind is bool or kind is float or (kind is str and value.isascii())


# --- arithmetic -----------------------------------------------------------------------------------


def _arithmetic(left: _Operand, word: str, right: _Operand) -> _Operand:
    """Two integers or two floats; the result of integers fits into 64 bits, or CEL is asked for its error."""
    numbers = left.number or right.number
    whole, broken = _WHOLE[word], _BROKEN.get(word)
    read, read_other = left.read, right.read
    literal = right.constant

    def evaluate(scope: Scope) -> Any:
        a, b = read(scope), read_other(scope)
        kind = type(a)
        if kind is type(b):
            if kind is int and not numbers and _LEAST <= a <= _MOST and _LEAST <= b <= _MOST:
                out = whole(a, b)
                if _LEAST <= out <= _MOST:
                    return out
            elif kind is float and broken is not None:
                return broken(a, b)
        raise _Unsure

    def evaluate_rest(scope: Scope) -> Any:
        a = read(scope)
        return a % literal if type(a) is int and 0 <= a <= _MOST else evaluate(scope)

    chosen = evaluate_rest if word == "%" and literal and literal > 0 and not numbers else evaluate
    return _Operand(chosen, number=numbers, dyn=False)


def _quotient(a: int, b: int) -> int:
    """CEL's division, as C's, goes towards zero; Python's downwards."""
    if b == 0:
        raise _Unsure
    out = abs(a) // abs(b)
    return out if (a < 0) == (b < 0) else -out


def _rest(a: int, b: int) -> int:
    """The rest has the sign of `a`."""
    if b in (0, -1):  # the least integer has no rest by -1 in CEL
        raise _Unsure
    out = abs(a) % abs(b)
    return -out if a < 0 else out


_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _rest,
}
_BROKEN: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
"""Division of floats is CEL's, which divides by zero too."""
