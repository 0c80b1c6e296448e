"""Conditions and sums that are answered without CEL give what CEL gives."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from graphflow.errors import DefinitionError, ExpressionFailed
from graphflow.graph.definition.document import decode_document
from graphflow.graph.expressions import evaluation
from graphflow.graph.expressions.cel_library import CelError, compile_program
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from tests.campaign import size

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
values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["a", "a\0", "a\0b"])
)
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
        return compile_expression(source, Environment.of(DOCUMENT), check=False).evaluate(scope)
    except ExpressionFailed:
        return "failed"


def by_cel(source: str, scope: dict[str, Any]) -> Any:
    """What CEL alone gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "decided", lambda *_: None)
        return outcome(source, scope)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (
        one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))
    )


def is_accepted(source: str) -> bool:
    """Whether a document with it would be loaded."""
    try:
        compile_expression(source, Environment.of(DOCUMENT))
    except DefinitionError:
        return False
    return True


@pytest.mark.campaign
@settings(max_examples=size(200, long=15_000))
@given(sources, values, values)
def test_a_condition_gives_what_cel_gives(source: str, a: Any, b: Any) -> None:
    assume(is_accepted(source))
    scope = {"out": {"a": a, "b": b}, "state": {"n": 1, "f": 1, "any": a, "s": "x"}}
    assert same(outcome(source, scope), by_cel(source, scope))


whole = (
    st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63]) | st.integers(-(2**63), 2**63 - 1)
)


@pytest.mark.campaign
@settings(max_examples=size(200, long=15_000))
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
        compile_expression(source, Environment.of(DOCUMENT)).evaluate(scope)
    assert "zero" in str(direct.value) or "overflow" in str(direct.value)


def test_plain_conditions_never_meet_cel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("CEL was asked")

    monkeypatch.setattr(evaluation.Converted, "evaluate", refuse)
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


# --- well-typed expressions, against the library with every value in its source -----------------------

TEXTS = ("", "a", "b", "a\0", "a\0b", "a\0c", "\0", "ä", "x'\"\\\n", "😀")
STATE = st.fixed_dictionaries(
    {
        "n": st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63)]),
        "m": st.integers(-3, 3),
        "f": st.floats() | st.integers(-3, 3),
        "s": st.sampled_from(TEXTS),
        "t": st.sampled_from(TEXTS),
        "maybe": st.none() | st.sampled_from(TEXTS),
        "done": st.booleans(),
        "list": st.lists(st.sampled_from(TEXTS) | st.integers(0, 3), max_size=3),
        "map": st.dictionaries(
            st.sampled_from(TEXTS), st.sampled_from(TEXTS) | st.just([b"\0a", None, 1.5]), max_size=3
        ),
    }
)
TYPED = decode_document(
    {
        "graphflow": "1",
        "start": "a",
        "nodes": {"a": {"use": "x"}},
        "state": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"}, "m": {"type": "integer"}, "f": {"type": "number"}, "s": {"type": "string"}, "t": {"type": "string"},
                "maybe": {"type": ["string", "null"]}, "done": {"type": "boolean"}, "list": {"type": "array"}, "map": {"type": "object"},
            },
        },
    }
)  # fmt: skip


def in_source(value: Any, *, number: bool = False) -> str:
    """A value as CEL source, every character of a text escaped."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case float():
            return f"double('{value!r}')"
        case int():
            return f"double('{float(value)!r}')" if number else f"({value})"
        case str():
            return "'" + "".join(f"\\U{ord(character):08x}" for character in value) + "'"
        case bytes():
            return "b'" + "".join(f"\\{byte:03o}" for byte in value) + "'"
        case list():
            return f"[{', '.join(map(in_source, value))}]"
    return "{" + ", ".join(f"{in_source(key)}: {in_source(item)}" for key, item in value.items()) + "}"


def joined(operators: str, operands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """`a OPERATOR b`, sometimes in parentheses."""
    form = st.sampled_from(["{0} {1} {2}", "({0} {1} {2})", "({0}) {1} ({2})"])
    return st.tuples(form, operands, st.sampled_from(operators.split()), operands).map(
        lambda parts: parts[0].format(*parts[1:])
    )


COMPARISONS = "== != < <= > >="
whole_numbers = st.recursive(
    st.sampled_from(["state.n", "state.m", "0", "1", "-1", "3", "9223372036854775807", "size(state.s)"]),
    lambda inner: joined("+ - * / %", inner),
    max_leaves=4,
)
broken_numbers = st.recursive(
    st.sampled_from(["state.f", "0.5", "-2.0", "1e300"]), lambda inner: joined("+ - * /", inner), max_leaves=3
)
texts = st.recursive(
    st.sampled_from(["state.s", "state.t", "'a'", "''", r"'a\000b'", "string(state.n)"]),
    lambda inner: joined("+", inner),
    max_leaves=2,
)
plain_conditions = (
    st.sampled_from(
        ["state.done", "true", "state.maybe == null", "null != state.maybe", "state.maybe == state.s", "'a' != state.maybe",
         "state.s in state.list", "state.s in state.map", "state.list.exists(x, x == state.t)", "state.list == [state.s, state.t]",
         "state.map == {'a': state.s}", "state.map.all(k, size(k) < 2) // each"]
    )
    | joined(COMPARISONS, whole_numbers)
    | joined(COMPARISONS, broken_numbers)
    | joined(COMPARISONS, texts)
    | st.tuples(texts, texts).map(lambda pair: f"({pair[0]}).contains({pair[1]})")
)  # fmt: skip
typed_conditions = st.recursive(
    plain_conditions.map(lambda source: f"({source}\n)"),
    lambda inner: (
        joined("&& ||", inner)
        | inner.map(lambda source: f"!({source})")
        | st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} ? {parts[1]} : {parts[2]})")
    ),
    max_leaves=4,
)
typed = (
    typed_conditions
    | whole_numbers
    | broken_numbers.filter(lambda source: source != "state.f")
    | texts
    | st.just("state.list + [state.s]")
)
"""But for a bare `state.f`: that one gives the very object, an integer too."""


@pytest.mark.campaign
@settings(max_examples=size(250, long=20_000))
@given(typed, STATE)
@example("state.s == 'a'", {"s": "a\0b"})
@example("state.s + state.t", {"s": "a\0b", "t": "c"})
@example("state.map", {"map": {"a\0b": "c"}})
def test_well_typed_expressions_give_what_the_library_gives_for_the_values_in_its_source(
    source: str, state: dict[str, Any]
) -> None:
    """Texts with U+0000 included, which the library's binding cuts off when they come as data."""
    spelled = re.sub(r"state\.(\w+)", lambda name: f"dyn({in_source(state[name[1]], number=name[1] == 'f')})", source)
    try:
        expected = compile_program(spelled, 8).run({})
        if isinstance(expected, float) and not math.isfinite(expected):
            expected = "failed"  # what an expression gives is finite
    except CelError:
        expected = "failed"
    environment = Environment.of(TYPED)
    for check in (True, False):
        try:
            found = compile_expression(source, environment, check=check).evaluate({"state": state})
        except ExpressionFailed:
            found = "failed"
        assert same(found, expected)


def test_a_text_with_u0000_is_whole_for_cel_wherever_it_stands() -> None:
    scope = {"state": {"any": [{"k\0": "a\0b"}, b"\0x"], "s": "a\0b", "f": 1}, "out": {"a": "a\0c"}}
    assert outcome("state.s + '!'", scope) == "a\0b!"
    assert outcome("state.s == out.a", scope) is False
    assert outcome("state.any[0]['k\\000'] + string(size(state.any[1]))", scope) == "a\0b2"
    assert outcome("state.any.map(i, i)", scope) == [{"k\0": "a\0b"}, b"\0x"]
    assert outcome("state.s.size() + 1 > 3 && state.f == 1.0", scope) is True
    assert outcome("state.s.startsWith('a') && out.nope == 1", scope) == "failed"
    assert outcome("out.nope == 1 || state.s.startsWith('a')", scope) is True
