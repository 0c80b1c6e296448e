"""Our evaluator and the CEL library against the conformance texts of CEL that apply: no protocol buffers, no extensions.

`cel_conformance.json` has what https://github.com/google/cel-spec says, as `[name, expression, variables, value]`; JSON has
no form for some values, so `{"uint": n}`, `{"double": text}`, `{"bytes": hex}`, `{"map": pairs}` and `{"error": true}`
stand for them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import count, repeat
from pathlib import Path
from typing import Any

from graphflow.errors import DefinitionError, ExpressionFailed
from graphflow.graph.expressions.cel_library import CelError, CompileFailed, compile_program
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from tests.graph.test_cel_compare import TYPED, in_source

FAILED = "— failed —"
CHECKED_FIRST = (
    "basic/variables/unbound", "basic/functions/unbound", "comparisons/eq_literal/not_eq_list_length",
    "comparisons/eq_literal/eq_mixed_types", "comparisons/eq_literal/eq_list_elem_mixed_types",
    "comparisons/ne_literal/ne_mixed_types", "logic/conditional/mixed_type", "logic/AND/short_circuit_type",
    "logic/OR/short_circuit_type", "parse/receiver_function_names/",
)  # fmt: skip
"""The specification evaluates these without a type check; here every expression is checked when it is loaded."""
LIBRARY_DIFFERS = ("fields/qualified_identifier_resolution/map_value_repeat_key_heterogeneous",)
"""A key given twice as int and uint: the library takes one of them."""
NOT_HERE = ("fields/quoted_map_fields/", "parse/nest/parens", "parse/repeat/not", "parse/repeat/unary_neg")
"""Refused when a document is loaded: fields in backticks, and nesting beyond 24 levels."""


def value_of(given: Any) -> Any:
    match given:
        case list():
            return [value_of(item) for item in given]
        case {"uint": number}:
            return number
        case {"double": text}:
            return float(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"map": pairs}:
            return {value_of(key): value_of(item) for key, item in pairs}
        case {"error": _}:
            return FAILED
    return given


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return one == other or (math.isnan(one) and math.isnan(other))
        case list():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def given_by(value: Any) -> Any:
    """What an expression gives where CEL's value is this: JSON has no infinity and no NaN, so those are failures."""
    return FAILED if isinstance(value, float) and not math.isfinite(value) else value


def named(source: str, names: dict[str, str]) -> str:
    """The source with variables under other names."""
    for name, new in names.items():
        source = replaced(re.compile(rf"(?<![\w.'\"]){name}(?![\w('\"])"), source, repeat(new))
    return source


def replaced(pattern: re.Pattern[str], source: str, words: Iterable[str]) -> str:
    """The source with each match replaced by the next word."""
    following = iter(words)
    return pattern.sub(lambda _: next(following), source)


def by_library(source: str) -> Any:
    try:
        return compile_program(source, 8).run({})
    except (CompileFailed, CelError):
        return FAILED


def by_ours(source: str, out: dict[str, Any], *, check: bool) -> Any:
    try:
        return compile_expression(source, Environment.of(TYPED), check=check).evaluate({"out": out, "state": {}})
    except ExpressionFailed:
        return FAILED


CASES = json.loads((Path(__file__).parent / "cel_conformance.json").read_text(encoding="utf-8"))["cases"]


def test_the_library_gives_what_the_specification_says() -> None:
    wrong = []
    for name, source, given, expected in CASES:
        variables = {key: f"dyn({in_source(value_of(value))})" for key, value in given.items()}
        if not same(by_library(named(source, variables)), value_of(expected)):
            wrong.append(name)
    assert [name for name in wrong if not name.startswith(CHECKED_FIRST + LIBRARY_DIFFERS)] == []


def test_our_evaluator_gives_what_the_specification_says() -> None:
    assert len(CASES) > 900
    wrong, refused = [], []
    for name, source, given, expected in CASES:
        out = {key: value_of(value) for key, value in given.items()}
        for check in (True, False):
            try:
                found = by_ours(named(source, {key: f"out.{key}" for key in given}), out, check=check)
            except DefinitionError:
                found = FAILED
                refused.append(name)
            if not same(found, given_by(value_of(expected))):
                wrong.append(name)
    assert [name for name in wrong if not name.startswith(CHECKED_FIRST + LIBRARY_DIFFERS + NOT_HERE)] == []
    # What a document may not say is said when it is loaded, and is an error by the specification too, but for these.
    values = {name for name, _, _, expected in CASES if value_of(expected) != FAILED}
    assert [name for name in refused if name in values and not name.startswith(CHECKED_FIRST + NOT_HERE)] == []


_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e[+-]?\d+)?|\d+|true|false|null)(?![\w.(])|'[^'\\]*'|\"[^\"\\]*\"")


def test_values_that_come_as_data_give_what_they_give_in_the_source() -> None:
    """Each literal of the texts becomes a variable, which our own evaluator reads without the library where it can."""
    compared = 0
    for name, source, given, _ in CASES:
        if (
            given
            or name.startswith(CHECKED_FIRST)
            or re.search(r"\b[rRbB]['\"]|'''|\"\"\"|`|\\|\b(?:has|exists|all|map|filter|exists_one)\b", source)
        ):
            continue
        found: list[str] = _LITERAL.findall(source)
        values = [json.loads(text) if text[0] not in "'\"" else text[1:-1] for text in found]
        # `-9223372036854775808` is one literal; its digits alone are none.
        if not found or any(type(value) is int and value > 2**63 - 1 for value in values):
            continue
        as_data = replaced(_LITERAL, source, (f"out.v{index}" for index in count()))
        in_text = replaced(_LITERAL, source, (f"dyn({text})" for text in found))
        try:
            ours = by_ours(as_data, {f"v{index}": value for index, value in enumerate(values)}, check=False)
        except DefinitionError:
            continue
        compared += 1
        assert same(ours, given_by(by_library(in_text))), (name, as_data, values)
    assert compared > 300
