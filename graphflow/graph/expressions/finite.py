"""What an expression gives is finite: JSON has neither infinity nor NaN, and a client would read null.

What it only computes with may be infinite, as in CEL: `1.0 / state.n > 5.0`.
"""

from __future__ import annotations

import math
from typing import Any

from graphflow.graph.expressions.ast import COMPARISONS, Binary, Constant, Loop, Node, Path, Unary
from graphflow.graph.expressions.cel_library import CelError
from graphflow.graph.expressions.environment import Environment


def may_be_double(node: Node, environment: Environment) -> bool:
    """Whether the value may be or hold a double: for what can't, nothing is looked at in a run."""
    match node:
        case Constant(type=kind):
            return kind == "double"
        case Path():
            return environment.variable_type(node) not in ("int", "bool", "string")
        case Unary(word, operand):
            return word == "-" and may_be_double(operand, environment)
        case Binary(word, left, right):
            logic = word in COMPARISONS or word in ("&&", "||", "in")
            return not logic and (may_be_double(left, environment) or may_be_double(right, environment))
        case Loop(macro=macro):
            return macro in ("map", "filter")
    return True


def checked_finite(value: Any) -> Any:
    """The value.

    Raises:
        CelError: a number in it is not finite.
    """
    rest = [("", value)]
    while rest:
        place, part = rest.pop()
        if type(part) is float:
            if not math.isfinite(part):
                raise CelError(_told(place, part))
        elif type(part) is list:
            rest += [(f"{place}[{index}]", item) for index, item in enumerate(part)]
        elif type(part) is dict:
            rest += [(f"{place}[{key!r}]", item) for key, item in part.items()]
    return value


def _told(place: str, value: float) -> str:
    what = "not a number (NaN)" if math.isnan(value) else "infinite"
    why = "it divides zero by zero" if math.isnan(value) else "it divides by zero, or is larger than a double can be"
    return f"its value{place and f' at {place}'} is {what}, which JSON can't hold: {why}; test for that first"
