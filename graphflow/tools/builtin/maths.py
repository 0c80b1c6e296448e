"""`math_eval`: arithmetic, by walking the syntax tree over a short list of what is allowed."""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

from graphflow.excerpts import excerpt_of
from graphflow.tools.port import tool
from graphflow.tools.result import ToolResult, failed

# Limits on size and depth: an expression runs on the event loop and must end at once.
MAX_CHARS = 1_000
MAX_BITS = 4_096
"""Limit of whole numbers, intermediate results included."""
_EXACT = 2**53
"""Beyond it JSON readers lose digits, so larger whole numbers are returned as text."""

Number = int | float

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(math, name)
    for name in "sqrt cbrt exp log log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh floor ceil trunc hypot "
    "degrees radians".split()
} | {"abs": abs, "round": lambda value, digits=0: _rounded(value, digits), "min": min, "max": max}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


class _NotEvaluated(ValueError):
    """An expression that is not evaluated, and why."""


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "For example (3 + 4) * 2 ** 0.5"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
)
async def math_eval(expression: str) -> dict[str, Any] | ToolResult:
    """Value of an arithmetic expression: + - * / // % **, brackets, pi, e, and functions such as sqrt, log, sin, round."""
    try:
        value = evaluate(expression)
    except (_NotEvaluated, ArithmeticError, ValueError, TypeError) as error:
        return failed("INVALID_PARAM", f"{excerpt_of(expression, 100)} has no value: {error}", "Fix the expression.")
    exact = isinstance(value, int) and abs(value) > _EXACT
    return {"expression": expression, "result": str(value) if exact else value}


def evaluate(expression: str) -> Number:
    """The value of an arithmetic expression.

    Raises:
        ValueError: for anything but arithmetic, and for what would grow too large.
        ArithmeticError: division by zero, overflow.
    """
    if len(expression) > MAX_CHARS:
        raise _NotEvaluated(f"it has {len(expression)} characters; the limit is {MAX_CHARS}")
    try:
        with warnings.catch_warnings():  # the parser warns about text that is Python but not arithmetic
            warnings.simplefilter("ignore")
            tree = ast.parse(expression.strip(), mode="eval")
        return _real(_value(tree.body))
    except SyntaxError as error:
        raise _NotEvaluated(f"it is not an arithmetic expression ({error.msg})") from None
    except (RecursionError, MemoryError):
        raise _NotEvaluated("its brackets are nested too deeply") from None


def _value(node: ast.expr) -> Number:
    match node:
        # Every node that is evaluated is listed here; anything else falls through to the error at the end.
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _bounded(_UNARY[type(op)](_value(operand)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(op=ast.BitXor()):
            # Models write `^` for powers; as Python's XOR it would give a wrong number.
            raise _NotEvaluated("^ is not a power here; write **")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*[_value(arg) for arg in args]))
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            raise _NotEvaluated(f"{name!r} is not known; names are {', '.join([*_CONSTANTS, *_FUNCTIONS])}")
    raise _NotEvaluated(f"{excerpt_of(ast.unparse(node), 60)} is not arithmetic")


def _power(base: Number, exponent: Number) -> Number:
    """The power; refused before it is computed if the result would be too large."""
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent > 0
    if whole and int(base).bit_length() * exponent > MAX_BITS * 2 and abs(base) > 1:
        raise _NotEvaluated("the power is too large")
    return _bounded(base**exponent)


def _rounded(value: Number, digits: Number) -> Number:
    """`round` with few digits: for many digits Python first computes that power of ten."""
    if not isinstance(digits, int) or abs(digits) > 30:
        raise _NotEvaluated("round takes at most 30 digits")
    return round(value, digits) if digits else round(value)


def _bounded(value: Any) -> Number:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _NotEvaluated("the numbers grow too large")
    # A negative number to a fractional power is complex.
    if not isinstance(value, int | float):
        raise _NotEvaluated("it has no real value")
    return value


def _real(value: Number) -> Number:
    if isinstance(value, float) and not math.isfinite(value):
        raise _NotEvaluated("it is infinite or undefined")
    return value
