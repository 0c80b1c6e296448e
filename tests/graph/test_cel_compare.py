"""Conditions and sums that are answered without CEL give what CEL gives."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphflow.errors import DefinitionError, ExpressionFailed
from graphflow.graph.definition.document import decode_document
from graphflow.graph.expressions import compiler as cel_expression
from graphflow.graph.expressions.api import Roots, compile_expression

DOCUMENT = decode_document(
    {
        "graphflow": "1",
        "start": "a",
        "nodes": {"a": {"use": "x"}},
        "state": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"}, "m": {"type": "integer"}, "f": {"type": "number"}, "any": {}, "s": {"type": "string"},
                "done": {"type": "boolean"},
            },
        },
    }
)  # fmt: skip
values = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text(max_size=3) | st.just("a")
paths = ("out.a", "out.b", "state.any")
literals = ("1", "-1", "3", "0", "1.5", "'a'", "null", "true", "9223372036854775807")
leaves = st.sampled_from(paths) | st.sampled_from(paths) | st.sampled_from(literals)


@st.composite
def sums(draw: st.DrawFn) -> str:
    """A leaf, mostly, or arithmetic of leaves, with parentheses where it matters."""
    out = draw(leaves)
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
        operator = draw(st.sampled_from("+-*/%"))
        out = f"{out} {operator} {draw(leaves)}"
        if draw(st.booleans()):
            out = f"({out})"
    return out


@st.composite
def conditions(draw: st.DrawFn) -> str:
    out = ""
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        part = draw(st.sampled_from(paths))
        if draw(st.sampled_from((True, True, True, False))):
            part = f"{draw(sums())} {draw(st.sampled_from(('==', '!=', '<', '<=', '>', '>=')))} {draw(sums())}"
        if draw(st.sampled_from((True, False, False))):
            part = f"!({part})"
        out = f"{out} {draw(st.sampled_from(('&&', '||')))} {part}" if out else part
        if draw(st.booleans()):
            out = f"({out})"
    return out


sources = conditions() | sums().map(lambda source: f"{source} + 1")


def outcome(source: str, scope: dict[str, Any]) -> Any:
    try:
        return compile_expression(source, Roots.of(DOCUMENT), check=False).evaluate(scope)
    except ExpressionFailed:
        return "failed"


def by_cel(source: str, scope: dict[str, Any]) -> Any:
    """What CEL alone gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cel_expression, "decided", lambda *_: None)
        return outcome(source, scope)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (
        one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))
    )


def is_accepted(source: str) -> bool:
    """Whether a document with it would be loaded."""
    try:
        compile_expression(source, Roots.of(DOCUMENT))
    except DefinitionError:
        return False
    return True


@settings(max_examples=300)
@given(sources, values, values)
def test_a_condition_gives_what_cel_gives(source: str, a: Any, b: Any) -> None:
    assume(is_accepted(source))
    scope = {"out": {"a": a, "b": b}, "state": {"n": 1, "f": 1, "any": a, "s": "x"}}
    assert same(outcome(source, scope), by_cel(source, scope))


whole = (
    st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63]) | st.integers(-(2**63), 2**63 - 1)
)


@settings(max_examples=300)
@given(whole, whole, st.sampled_from("+-*/%"), whole)
def test_whole_numbers_are_reckoned_as_cel_does_to_the_last_bit(a: int, b: int, operator: str, literal: int) -> None:
    scope = {"out": {}, "state": {"n": a, "m": b, "any": b}}
    for right in ("state.m", "state.any", str(literal)):
        source = f"state.n {operator} {right}"
        assert same(outcome(source, scope), by_cel(source, scope))
        assert same(outcome(f"{source} == {b}", scope), by_cel(f"{source} == {b}", scope))


@pytest.mark.parametrize(
    "source", ["state.n % 0", "state.n / 0", "state.n % 0 == 1", "state.n + 9223372036854775807 > 0"]
)
def test_what_has_no_result_is_the_error_of_cel(source: str) -> None:
    scope = {"state": {"n": 5}}
    with pytest.raises(ExpressionFailed) as direct:
        compile_expression(source, Roots.of(DOCUMENT)).evaluate(scope)
    assert "zero" in str(direct.value) or "overflow" in str(direct.value)


def test_plain_conditions_never_meet_cel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("CEL was asked")

    monkeypatch.setattr(cel_expression._Converted, "evaluate", refuse)
    scope = {"state": {"n": 7, "m": 2, "f": 0.5, "any": None, "s": "x", "done": False}}
    for source in (
        "state.n % 3 == 1", "state.n + state.m * 2 >= 11", "state.f * 2.0 == 1.0", "state.any == null", "!state.done", "state.s == 'x'",
        "state.done || (state.n > 3 && state.any == null)", "state.done == false", "size(state.s) == 1", "has(state.any) || state.n / 2 == 3",
    ):  # fmt: skip
        assert outcome(source, scope) is True, source
    assert outcome("state.n + 1", scope) == 8
    assert outcome("-7 / state.m", scope) == -3


def test_what_is_not_read_does_not_fail() -> None:
    assert outcome("state.n == 1 || out.x.y == 1", {"state": {"n": 1}, "out": {}}) is True
    assert outcome("out.x.y == 1 || state.n == 1", {"state": {"n": 1}, "out": {}}) is True
    assert outcome("out.x.y == 1 && state.n == 1", {"state": {"n": 1}, "out": {}}) == "failed"


def test_a_number_key_that_holds_an_integer_is_compared_as_a_double() -> None:
    assert outcome("state.f >= 0.5", {"state": {"f": 1}}) is True


def test_operators_inside_texts_are_no_comparison() -> None:
    assert outcome("out.a == 'x<=y'", {"out": {"a": "x<=y"}}) is True
    assert outcome("'a<b' == out.a", {"out": {"a": "a<b"}}) is True
