"""Comparisons that are answered without CEL give what CEL gives."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphflow.errors import ExpressionFailed
from graphflow.graph import cel_compare
from graphflow.graph.document import decode_document
from graphflow.graph.expressions import Roots, compile_expression

DOCUMENT = decode_document(
    {
        "graphflow": "1",
        "start": "a",
        "nodes": {"a": {"use": "x"}},
        "state": {"type": "object", "properties": {"n": {"type": "integer"}, "f": {"type": "number"}, "any": {}, "s": {"type": "string"}}},
    }
)  # fmt: skip
values = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text(max_size=3) | st.just("a")
sources = st.sampled_from(
    [f"{left} {op} {right}" for left in ("out.a", "state.any") for op in ("==", "!=", "<", "<=", ">", ">=") for right in ("out.b", "1", "1.5", "'a'")]
)  # fmt: skip


def outcome(source: str, scope: dict[str, Any]) -> Any:
    try:
        return compile_expression(source, Roots.of(DOCUMENT), check=False).evaluate(scope)
    except ExpressionFailed:
        return "failed"


@given(sources, values, values)
def test_a_comparison_gives_what_cel_gives(source: str, a: Any, b: Any) -> None:
    scope = {"out": {"a": a, "b": b}, "state": {"n": 1, "f": 1, "any": a, "s": "x"}}
    direct = outcome(source, scope)
    kept, cel_compare._COMPARISON = cel_compare._COMPARISON, re.compile("(?!)")
    try:
        assert direct == outcome(source, scope)
    finally:
        cel_compare._COMPARISON = kept


def test_a_number_key_that_holds_an_integer_is_compared_as_a_double() -> None:
    assert outcome("state.f >= 0.5", {"state": {"f": 1}}) is True


def test_operators_inside_texts_are_no_comparison() -> None:
    assert outcome("out.a == 'x<=y'", {"out": {"a": "x<=y"}}) is True
    assert outcome("'a<b' == out.a", {"out": {"a": "a<b"}}) is True
