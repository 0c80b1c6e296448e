"""The messages of CEL's type check in our words, each with the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from graphflow.graph.definition.types import CEL_OF_JSON
from graphflow.graph.expressions.ast import COMPARISONS, Binary, Constant, Opaque, Outline
from graphflow.graph.expressions.environment import Problem
from graphflow.graph.expressions.growth import ITERATIONS
from graphflow.graph.expressions.parser import Token, tokens
from graphflow.suggestions import Suggestion, nearest

FUNCTIONS = (
    "all", "bool", "bytes", "contains", "double", "duration", "dyn", "endsWith", "exists", "exists_one", "filter", "getDate",
    "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth",
    "getSeconds", "has", "int", "map", "matches", "size", "startsWith", "string", "timestamp", "type", "uint",
)  # fmt: skip
"""What CEL offers here; there are no others, and none can be added from a document."""

_NO_FUNCTION = (
    "CEL has size, has, exists, all, map, filter, contains, startsWith, string, int, …; Python runs in `fn:NAME` nodes"
)

_MEANT = {
    "len": "size", "length": "size", "count": "size", "str": "string", "String": "string", "toString": "string", "float": "double",
    "Number": "double", "number": "double", "includes": "contains", "defined": "has", "any": "exists", "some": "exists",
    "every": "all", "startswith": "startsWith", "endswith": "endsWith", "match": "matches", "test": "matches",
}  # fmt: skip
"""Functions of other languages → those of CEL."""
_FOREIGN = frozenset(
    "abs max min round floor ceil sum sorted sort reversed reverse range upper lower split join strip trim".split()
)
"""Those that CEL has nothing for: a name that looks alike would mislead."""

_OVERLOAD = re.compile(r"found no matching overload for '(?P<function>[^']*)' applied to '(?P<types>.*)'")
_TOO_DEEP = re.compile(r"Exceeded max recursion depth of (?P<depth>\d+)")

_ARITHMETIC = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_NUMBERS = frozenset({"double", "int", "uint"})
_NUMERIC = _ARITHMETIC | {"_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"}

Reworded = tuple[str, str | None, str]
"""Message, hint and kind."""


def unknown_functions(outline: Outline) -> Iterator[Problem]:
    """Calls of functions that CEL has not."""
    for at, name in outline.calls:
        if name not in FUNCTIONS:
            near = _MEANT.get(name) or (None if name in _FOREIGN else nearest(name, FUNCTIONS))
            hint = _NO_FUNCTION if near is None else Suggestion.of(name, near, _NO_FUNCTION)
            yield f"unknown function {name!r}", at, hint, "reference"


def literal_patterns(outline: Outline) -> Iterator[tuple[int, str]]:
    """Offset and text of each pattern of `matches` that is made of text literals alone."""
    for at, name in outline.calls:
        if name != "matches":
            continue
        depth, argument = 0, list[Token]()
        # The pattern is the last argument, both of `text.matches(pattern)` and of `matches(text, pattern)`.
        for kind, word, place in islice(tokens(outline.text, at), 1, None):
            if word in ("(", "[", "{"):
                depth += 1
            elif word in (")", "]", "}"):
                depth -= 1
            if not depth:
                break
            if depth == 1 and word == ",":
                argument = []
            elif depth > 1 or word != "(":
                argument.append((kind, word, place))
        if argument and all(kind == "string" or word in ("+", "(", ")") for kind, word, _ in argument):
            (_, _, start), (_, last, end) = argument[0], argument[-1]
            yield start, outline.text[start : end + len(last)]


def reworded(text: str, outline: Outline, at: int) -> Reworded:
    """A complaint of the compiler about the place `at` of the expression."""
    if match := _OVERLOAD.match(text):
        return _overload(match["function"], match["types"], outline, at)
    if match := _TOO_DEEP.match(text):
        message = f"more than {match['depth']} operations are nested"
        return message, "split it over several nodes, or register a function", "syntax"
    return text[:1].lower() + text[1:], None, "type"


def mixed_numbers(outline: Outline, at: int, node: Binary, types: list[str]) -> Problem:
    """The error of an operator between two numbers of these types, with the next step."""
    hint = _number_hint(outline, at, types, node.operator)
    return f"{node.operator!r} does not take ({', '.join(types)})", at, hint, "type"


_RUN = re.compile(
    r"No matching overloads found : (?P<function>_[-+*/%]_)\((?P<types>(?:double|u?int64), (?:double|u?int64))\)"
)


def reworded_run(text: str, outline: Outline) -> str:
    """An error of a run; of arithmetic that mixes numbers and of too many items, with the next step."""
    if "Iteration budget exceeded" in text:
        return f"its comprehensions go through more than {ITERATIONS:,} items together: pass fewer, or compute it in a Python node"
    match = _RUN.fullmatch(text)
    if match is None:
        return text
    operator, types = match["function"].strip("_"), match["types"].replace("int64", "int").split(", ")
    fitting = [
        at
        for at, node in outline.operations
        if node.operator == operator
        and all(
            not isinstance(side, Constant) or side.type == kind
            for side, kind in zip((node.left, node.right), types, strict=True)
        )
    ]
    hint = _number_hint(outline, fitting[0] if len(fitting) == 1 else -1, types, operator)
    return f"{operator!r} does not take ({', '.join(types)}): {hint}"


def _overload(function: str, types: str, outline: Outline, at: int) -> Reworded:
    operator = function.strip("_!") if function.startswith(("_", "!")) else function
    operator = {"!_": "!", "-_": "-", "_?_:_": "? :", "_[_]": "[ ]", "@in": "in"}.get(function, operator)
    given = [word.strip() for word in types.strip("()").split(",")]
    shown = "(" + ", ".join(given) + ")"
    message = f"{operator!r} does not take {shown}"
    mixed = len(set(given)) > 1 and set(given) <= _NUMBERS and function in _NUMERIC
    if mixed or (function == "_%_" and "double" in given):
        return message, _number_hint(outline, at, given, operator), "type"
    if "null_type" in given or "null" in given:
        return message, _null_hint(outline, at, given), "type"
    if function == "_?_:_" and given[0] != "bool":
        return message, "the condition before '?' must be true or false: compare it with something", "type"
    if function in ("_&&_", "_||_", "!_"):
        return message, TRUE_OR_FALSE, "type"
    if (chained := _chained(outline, at)) is not None:
        return message, chained, "type"
    if "string" in given and len(set(given)) > 1:
        return message, "convert one side: string(…), int(…), double(…)", "type"
    return message, "both sides need one type: convert with int(…), double(…), string(…)", "type"


def _chained(outline: Outline, at: int) -> str | None:
    """The hint for `1 < a < 3`, which compares true or false with 3."""
    node = next((node for place, node in outline.operations if place == at), None)
    if node is None or node.operator not in COMPARISONS or not isinstance(left := node.left, Binary):
        return None
    if left.operator not in COMPARISONS or outline.text[node.start] == "(":
        return None
    middle = outline.text[left.right.start : left.right.end]
    return f"write {outline.text[left.start : left.end]} && {middle} {outline.text[at : node.end]}"


TRUE_OR_FALSE = "what it joins is true or false: compare it with something"


def _null_hint(outline: Outline, at: int, given: list[str]) -> str:
    """Names the state key that is nearest to the operator, and the type that lets it be null."""
    keys = [path for path in outline.paths if path.variable == "state" and len(path.steps) == 1 and not path.test]
    kind = next((_JSON_OF_CEL[name] for word in given if (name := word.partition("<")[0]) in _JSON_OF_CEL), None)
    if not keys or kind is None or kind == "null":
        return "this is never null: leave the comparison out"
    key = min(keys, key=lambda path: abs(path.end - at)).steps[0]
    return f'state.{key} is never null: leave the comparison out, or declare the key as "type": ["{kind}", "null"]'


_JSON_OF_CEL = {cel: json for json, cel in CEL_OF_JSON.items()}


def _number_hint(outline: Outline, at: int, types: list[str], operator: str) -> str:
    """How the numbers beside the operator become ones of one type."""
    node = next((node for place, node in outline.operations if place == at), None)
    if operator == "%" and "double" in types:
        fitting, lead, general = "int", "'%' takes whole numbers only", "convert with int(…)"
    elif "double" in types:
        fitting, lead, general = "double", "one side is a number with decimals", "convert the other with double(…)"
    else:
        fitting, lead, general = "int", "one side has no sign", "convert it with int(…)"
    if node is None:
        return f"{lead}: {general}"
    sides = [outline.text[node.start : at], outline.text[at + len(operator) : node.end]]
    written = []
    for kind, operand, side in zip(types, (node.left, node.right), sides, strict=True):
        if kind == fitting:
            continue
        text = side.strip()
        if kind == "double" and isinstance(operand, Constant):
            if not operand.value.is_integer():
                return f"{lead}: compute the remainder in a Python node"
            written.append(f"{int(operand.value)} instead of {text}")
        elif isinstance(operand, Constant) or (isinstance(operand, Opaque) and operand.type == "uint"):
            bare = text.rstrip("uU") + (".0" if fitting == "double" else "")
            written.append(f"{bare} instead of {text}")
        else:
            written.append(f"{fitting}({text})")
    return f"{lead}: write {' and '.join(written)}"
