"""Evaluates conditions and sums without CEL where Python is certain to give the same answer.

Most conditions are comparisons: `state.score >= 0.8`, `visits.judge < limits.rounds`, `answer.decision == 'no'`,
`state.draft != null`, `state.n % 3 == 0 && !state.done`; most other expressions add one. Supported are `&&`, `||`, `!`,
comparisons, `in`, arithmetic and a few functions (`native_calls.py`) of paths and literals, for values that mean the same in Python
and CEL: texts without half a surrogate pair, 64-bit integers, floats, booleans, null. An overflow, a division by zero, mixed numbers,
lists and everything else go to CEL as a whole, which also type-checks every expression when it is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from graphflow.graph.expressions.ast import COMPARISONS, Binary, Constant, FunctionCall, Index, Node, Path, Unary
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.native_calls import CALLS, LEAST, MOST, Unsure, is_sound, joined, membership
from graphflow.graph.expressions.paths import Missing

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]
Reader = Callable[[Path, Environment], Evaluate]


class _Operand:
    """One side of a comparison or of an arithmetic operation."""

    __slots__ = ("constant", "dyn", "number", "read")

    def __init__(self, read: Evaluate, *, number: bool, dyn: bool, constant: Any = None) -> None:
        self.read = read
        self.number = number
        """It contains a `number` key, whose integers are doubles for CEL: only floats are compared here."""
        self.dyn = dyn
        """It may be null for CEL too."""
        self.constant = constant
        """The value of a whole-number literal."""


def decided(node: Node, environment: Environment, reader: Reader, otherwise: Evaluate) -> Evaluate | None:
    """A function that evaluates the expression, asking CEL if in doubt; None if it is not a plain condition or sum.

    Args:
        reader: reads a path by reference.
        otherwise: CEL's evaluation of the whole.
    """
    try:
        decide = _Walk(environment, reader).whole(node)
    except Unsure:
        return None

    def evaluate(scope: Scope) -> Any:
        try:
            return decide(scope)
        # A missing path also goes to CEL: `a || missing.path` may be true without it.
        except (Unsure, Missing):
            return otherwise(scope)

    return evaluate


class _Walk:
    """Compiles the tree of a condition or a sum; raises `Unsure` for any other form."""

    def __init__(self, environment: Environment, reader: Reader) -> None:
        self._environment, self._reader = environment, reader

    def whole(self, node: Node) -> Evaluate:
        if isinstance(node, Unary) or (isinstance(node, Binary) and node.operator not in _WHOLE):
            return self._condition(node)
        return self._operand(node).read

    def _condition(self, node: Node) -> Evaluate:
        match node:
            case Binary("||" | "&&" as joint, left, right):
                return _both(self._condition(left), self._condition(right), until=joint == "||")
            case Binary(word, left, right) if word in COMPARISONS:
                return _compared(self._operand(left), word, self._operand(right))
            case Binary("in", left, Path(test="") as right):
                return self._membership(left, right)
            case Unary("!", operand):
                return _negated(self._condition(operand))
        return _boolean(self._operand(node).read)

    def _operand(self, node: Node) -> _Operand:
        match node:
            case Binary(word, left, right) if word in _WHOLE:
                return _arithmetic(self._operand(left), word, self._operand(right))
            case Path():
                environment = self._environment
                dyn = environment.variable_type(node) == "dyn"
                return _Operand(self._reader(node, environment), number=environment.is_number(node), dyn=dyn)
            case Constant(value, kind):
                constant = value if kind == "int" else None
                return _Operand(lambda scope: value, number=False, dyn=value is None, constant=constant)
            case FunctionCall(name, arguments) if (name, len(arguments)) in CALLS:
                return self._call(CALLS[name, len(arguments)], [self._operand(part) for part in arguments])
        raise Unsure

    def _membership(self, left: Node, right: Path) -> Evaluate:
        environment, operand = self._environment, self._operand(left)
        if operand.number:
            raise Unsure
        loops = environment.bound
        kept = bool(loops) and right.variable not in loops and not any(isinstance(step, Index) for step in right.steps)
        return membership(operand.read, self._reader(right, environment), kept=kept)

    def _call(self, function: Callable[..., Any], arguments: list[_Operand]) -> _Operand:
        if any(argument.number for argument in arguments):
            raise Unsure
        if len(arguments) == 1:
            (read,) = (argument.read for argument in arguments)
            return _Operand(lambda scope: function(read(scope)), number=False, dyn=False)
        read, read_other = (argument.read for argument in arguments)
        return _Operand(lambda scope: function(read(scope), read_other(scope)), number=False, dyn=False)


# --- logic ----------------------------------------------------------------------------------------


def _boolean(read: Evaluate) -> Evaluate:
    def evaluate(scope: Scope) -> bool:
        value = read(scope)
        if value is True or value is False:
            return bool(value)
        raise Unsure

    return evaluate


def _negated(condition: Evaluate) -> Evaluate:
    return lambda scope: not condition(scope)


def _both(left: Evaluate, right: Evaluate, *, until: bool) -> Evaluate:
    """`&&` and `||`. CEL too ignores an error of the right side once the left side decides."""
    return lambda scope: until if left(scope) is until else right(scope)


def _compared(left: _Operand, word: str, right: _Operand) -> Evaluate:
    """Compares two values of one type; for equality, also a value with null."""
    compare, read, read_other = COMPARISONS[word], left.read, right.read
    numbers = left.number or right.number
    equality = word in ("==", "!=")
    nulls, unequal = equality and left.dyn and right.dyn, word == "!="

    def evaluate(scope: Scope) -> bool:
        a, b = read(scope), read_other(scope)
        kind = type(a)
        # One type on both sides: mixed numbers follow rules of CEL that differ between literals, keys and dyn values.
        if kind is type(b):
            if kind is int:
                alike = not numbers and LEAST <= a <= MOST and LEAST <= b <= MOST
            elif kind is str:
                # Both compare code points. Most texts are ASCII, which takes no call to see.
                alike = (a.isascii() or is_sound(a)) and (b.isascii() or is_sound(b))
            else:
                alike = kind is float or (kind is bool and equality) or (a is None and nulls)
            if alike:
                return compare(a, b)
        elif nulls and (_beside_null(a) if b is None else a is None and _beside_null(b)):
            return unequal
        raise Unsure

    literal = right.constant
    # The usual comparison, `visits.judge < 3`, skips the checks of a side that is known when the graph is loaded.
    if literal is None or left.number:
        return evaluate

    def evaluate_literal(scope: Scope) -> bool:
        a = read(scope)
        if type(a) is int and LEAST <= a <= MOST:
            return compare(a, literal)
        return evaluate(scope)

    return evaluate_literal


def _beside_null(value: Any) -> bool:
    """Whether CEL can certainly hold the value, so that it is certainly not null there."""
    kind = type(value)
    if kind is int:
        return bool(LEAST <= value <= MOST)
    return kind is bool or kind is float or is_sound(value)


# --- arithmetic -----------------------------------------------------------------------------------


def _arithmetic(left: _Operand, word: str, right: _Operand) -> _Operand:
    """Arithmetic of two integers or two floats; if integers overflow 64 bits, CEL is asked for its error."""
    numbers = left.number or right.number
    whole, broken = _WHOLE[word], _BROKEN.get(word)
    read, read_other = left.read, right.read
    literal = right.constant

    def evaluate(scope: Scope) -> Any:
        a, b = read(scope), read_other(scope)
        kind = type(a)
        if kind is type(b):
            if kind is int and not numbers and LEAST <= a <= MOST and LEAST <= b <= MOST:
                out = whole(a, b)
                if LEAST <= out <= MOST:
                    return out
            elif kind is float and broken is not None:
                # Floats never overflow to an error, so only `+ - *` are here; CEL divides by zero and gives infinity.
                return broken(a, b)
            elif kind is str and word == "+":
                return joined(a, b)
        raise Unsure

    def evaluate_rest(scope: Scope) -> Any:
        a = read(scope)
        # For a value that is not negative and a positive literal, Python and CEL agree, and nothing can overflow.
        return a % literal if type(a) is int and 0 <= a <= MOST else evaluate(scope)

    chosen = evaluate_rest if word == "%" and literal and literal > 0 and not numbers else evaluate
    return _Operand(chosen, number=numbers, dyn=False)


def _quotient(a: int, b: int) -> int:
    """Integer division as in CEL and C, which rounds towards zero; Python rounds down."""
    if b == 0:
        raise Unsure
    out = abs(a) // abs(b)
    return out if (a < 0) == (b < 0) else -out


def _rest(a: int, b: int) -> int:
    """The remainder as in CEL, with the sign of `a`; Python gives it the sign of `b`."""
    if b in (0, -1):  # in CEL the smallest integer modulo -1 is an error
        raise Unsure
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
"""Without division: CEL divides floats by zero, Python raises."""
