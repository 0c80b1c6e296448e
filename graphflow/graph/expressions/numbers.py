"""Finds arithmetic that mixes whole numbers with decimals in every run, from the types that schemas and literals declare.

CEL itself checks the types that the engine guarantees. It knows nothing of what schemas say below the keys of the state, nor of the
items that a comprehension goes through.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.graph.expressions import parser
from graphflow.graph.expressions.ast import (
    Binary,
    Choice,
    Constant,
    FunctionCall,
    Index,
    ListOf,
    Loop,
    MapOf,
    Node,
    Opaque,
    Outline,
    Path,
    Unary,
)
from graphflow.graph.expressions.diagnostics import mixed_numbers
from graphflow.graph.expressions.doubles import UNSAID
from graphflow.graph.expressions.environment import Environment, Problem

Types = frozenset[str] | None
"""The CEL types that a value may have; None if any."""

_NUMBERS = frozenset({"double", "int", "uint"})
_TAKEN = {**dict.fromkeys("+-*/", _NUMBERS), "%": frozenset({"int", "uint"})}
"""The numbers that each operator takes, two of one type."""
_GIVEN = {"int": "int", "size": "int", "double": "double", "uint": "uint", "string": "string"}
"""Functions whose name is the type of what they give."""
_OF_JSON = {
    "number": "double", "integer": "int", "string": "string", "boolean": "bool", "array": "list", "object": "map"
}  # fmt: skip


def mixed_arithmetic(outline: Outline, environment: Environment) -> list[Problem]:
    """Each operation that fails in every run, because its sides are numbers of different types.

    Unless the expression asks for types itself: what comes after `type(x) == int` is never reached then.
    """
    if any(name == "type" for _, name in outline.calls):
        return []
    return list(_Arithmetic(outline, environment).problems())


class _Arithmetic:
    """The operations of one outline; a comprehension's expressions and an index are outlines of their own."""

    def __init__(self, outline: Outline, environment: Environment) -> None:
        self._outline, self._environment = outline, environment

    def problems(self) -> Iterator[Problem]:
        yield from self._below(self._outline.root)

    def _below(self, node: Node) -> Iterator[Problem]:
        match node:
            case Path():
                for step in node.steps:
                    if isinstance(step, Index):
                        yield from _Arithmetic(step.outline, self._environment).problems()
            case Loop():
                yield from self._below(node.target)
                within = self._environment.within(node)
                for start, end in node.bodies:
                    yield from _Arithmetic(parser.parse_part(self._outline.text, start, end), within).problems()
            case _:
                for part in _parts(node):
                    yield from self._below(part)
                if isinstance(node, Binary) and node.operator in _TAKEN:
                    yield from self._operation(node)

    def _operation(self, node: Binary) -> Iterator[Problem]:
        left, right = self._types(node.left), self._types(node.right)
        # A side that may be something else, such as text, may make the operation work.
        if not left or not right or not left | right <= _NUMBERS or left & right & _TAKEN[node.operator]:
            return
        at = next((at for at, known in self._outline.operations if known.left is node.left), node.start)
        yield mixed_numbers(self._outline, at, node, [min(left), min(right)])

    def _types(self, node: Node) -> Types:
        match node:
            case Constant(type=kind) | Opaque(type=kind):
                return None if kind == "dyn" else frozenset({kind})
            case Path():
                return self._path_types(node)
            case Unary("-", operand):
                return self._types(operand)
            case Choice(then=then, other=other):
                some = self._types(then), self._types(other)
                return None if None in some else frozenset[str]().union(*filter(None, some))
            case Binary(operator=word, left=left, right=right) if word in _TAKEN:
                return self._result(word, self._types(left), self._types(right))
            case Binary() | Unary():
                return frozenset({"bool"})
            case FunctionCall(name=name) if name in _GIVEN:
                return frozenset({_GIVEN[name]})
        return None

    def _result(self, word: str, left: Types, right: Types) -> Types:
        """What the operation gives where it works; a number only beside one of its own type."""
        if left is None or right is None:
            known = left or right
            return known if known is not None and known <= _NUMBERS else None
        both = left & right & _TAKEN[word]
        return both if both and left | right <= _NUMBERS else None

    def _path_types(self, path: Path) -> Types:
        environment = self._environment
        kind = environment.variable_type(path)
        if kind != "dyn":
            return frozenset({kind})
        names = environment.places.names(environment.declared_place(path)) - {"null"}
        if not names or UNSAID in names:
            return None
        # Where only a run knows the step, the names are those of several places: an integer may be one of another key.
        if "number" in names and not any(isinstance(step, Index) for step in path.steps):
            names -= {"integer"}
        return frozenset(_OF_JSON[name] for name in names) if names <= _OF_JSON.keys() else None


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return left, right
        case Choice(condition=condition, then=then, other=other):
            return condition, then, other
        case ListOf(items=items):
            return items
        case MapOf(entries=entries):
            return tuple(value for _, value in entries)
        case FunctionCall(arguments=arguments):
            return arguments
        case Opaque(parts=parts):
            return parts
    return ()
