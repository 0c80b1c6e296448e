"""`map`, `filter`, `all`, `exists` and `exists_one` give what the CEL library gives, in linear time and within a bound."""

from __future__ import annotations

import cProfile
import math
import pstats
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphflow.bounds import Bounds
from graphflow.errors import DefinitionError, ExpressionFailed, LimitExceeded
from graphflow.graph.expressions import evaluation, loops
from graphflow.graph.expressions.cel_library import Program
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from tests.campaign import size

# --- the same as the library -----------------------------------------------------------------------

plain = st.integers(-2, 3) | st.sampled_from(["", "a", "b", "é", "a\0", None, True, False, 1.5, 2.0, 2**70, 2**63 - 1])
items = plain | st.fixed_dictionaries(
    {}, optional={"a": plain, "b": plain, "l": st.lists(plain, max_size=3), "m": st.dictionaries(st.just("k"), plain)}
)
VALUES = st.fixed_dictionaries(
    {"xs": st.lists(items, max_size=4), "ys": st.lists(plain, max_size=3), "m": st.dictionaries(st.just("k"), plain), "v": plain}
)  # fmt: skip


@st.composite
def values_within(draw: st.DrawFn, names: tuple[str, ...], depth: int) -> Any:
    """An expression that may name these variables of comprehensions."""
    below = names and draw(st.sampled_from(names))
    leaves = [
        "out.v",
        "1",
        "'a'",
        "2.0",
        "null",
        "true",
        *((below, f"{below}.a", f"{below}.b", f"{below}.l") if below else ()),
    ]
    kind = draw(st.integers(0, 9 if depth > 0 else 5 if depth == 0 else 2))
    if kind < 3:
        return draw(st.sampled_from(leaves))
    first, other = draw(values_within(names, -1)), draw(values_within(names, -1))
    match kind:
        case 3:
            return f"{first} {draw(st.sampled_from(['+', '-', '*', '/', '%', '==', '!=', '<', '>=', 'in']))} {other}"
        case 4:
            return draw(st.sampled_from(["string({0})", "int({0})", "double({0})", "size({0})", "[{0}, {1}]", "{{'k': {0}}}",
                                         "{0}.startsWith({1})", "{0}.contains({1})", "{0} in out.ys", "{0} in out.m",
                                         "({0} == {1} ? {0} : {1})", "dyn({0})"])).format(first, other)  # fmt: skip
        case 5:
            word = draw(st.sampled_from(["&&", "||"]))
            return f"{draw(values_within(names, -1))} == 1 {word} {draw(values_within(names, -1))} > 0"
        case 6:
            return f"size({draw(comprehensions(names, depth - 1))}) + 1"
        case 7:
            return f"{draw(comprehensions(names, depth - 1))} == [{first}]"
    return draw(comprehensions(names, depth - 1))


@st.composite
def comprehensions(draw: st.DrawFn, names: tuple[str, ...] = (), depth: int = 2) -> str:
    targets = [
        "out.xs",
        "out.xs",
        "out.ys",
        "out.m",
        "[1, 'a', out.v]",
        "out.v",
        "(out.xs + out.ys)",
        *(f"{name}.l" for name in names),
    ]
    target = (
        draw(comprehensions(names, depth - 1))
        if depth and draw(st.integers(0, 3)) == 0
        else draw(st.sampled_from(targets))
    )
    variable = draw(st.sampled_from(["x", "y", "x", "state"]))
    within = values_within((*names, variable), depth)
    macro = draw(st.sampled_from(["map", "map", "filter", "all", "exists", "exists_one", "map3"]))
    if macro == "map3":
        return f"{target}.map({variable}, {draw(within)}, {draw(within)})"
    return f"{target}.{macro}({variable}, {draw(within)})"


def outcome(source: str, out: dict[str, Any]) -> Any:
    try:
        return compile_expression(source, Environment(), check=False).evaluate({"out": out})
    except ExpressionFailed:
        return "failed"


def by_the_library(source: str, out: dict[str, Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "decided", lambda *_: None)
        for module in (evaluation, loops):
            patch.setattr(module, "is_taken", lambda *_: False)
        return outcome(source, out)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other)))


def is_accepted(source: str) -> bool:
    try:
        compile_expression(source, Environment())
    except DefinitionError:
        return False
    return True


def has_wide(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(has_wide, value))
    if isinstance(value, dict):
        return any(map(has_wide, value.values()))
    return type(value) is int and value >= 2**64


@pytest.mark.campaign
@settings(max_examples=size(150, long=20_000))
@given(comprehensions() | values_within((), 2), VALUES)
@example("out.xs.all(x, x.a == 1)", {"xs": [{}, {"a": 2}]})
@example("out.xs.exists_one(x, x == 1)", {"xs": [1, None, 1]})
@example("out.xs.map(x, out.xs.map(x, x + x))", {"xs": [1, "a\0"]})
@example("size(out.xs.filter(x, x != 'a\\000'))", {"xs": ["a\0", "a"]})
@example("out.xs.map(x, uint(x))[0] + 1u == 2u", {"xs": [1]})
@example("out.xs.map(x, timestamp(x))[0] == timestamp(out.xs[0])", {"xs": ["2026-01-01T00:00:00Z"]})
def test_a_comprehension_gives_what_the_library_gives(source: str, out: dict[str, Any]) -> None:
    """Errors too; but a number that only CEL can't hold fails nothing that does not compute with it."""
    if not is_accepted(source):
        return
    found, expected = outcome(source, out), by_the_library(source, out)
    if expected == "failed" and has_wide(out):
        return
    assert same(found, expected), (found, expected)


def test_what_is_no_condition_is_refused_by_name_when_it_is_loaded() -> None:
    """To write the hint, the condition is looked for, and the whole expression was taken for one without end."""
    with pytest.raises(DefinitionError, match="does not take"):
        compile_expression("out.xs.all(y, [1]) == true", Environment())


# --- linear, and bounded ---------------------------------------------------------------------------

ROWS = [{"n": n, "name": f"row {n}", "text": "é", "tags": ["a"]} for n in range(9_000)]


def calls(source: str, rows: list[Any]) -> int:
    """Calls of functions for one evaluation, which are the same in each run."""
    expression = compile_expression(source, Environment())
    expression.evaluate({"out": {"rows": rows[:1]}})
    with cProfile.Profile() as profile:
        expression.evaluate({"out": {"rows": rows}})
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def refuse(*_: Any) -> None:
    raise AssertionError("the library was asked")


PLAIN = [
    "out.rows.map(x, x.n)", "out.rows.filter(x, x.n % 2 == 0 || x.name == 'row 1')", "out.rows.all(x, x.n >= 0)",
    "out.rows.exists(x, x.name == 'none')", "out.rows.exists_one(x, x.name.startsWith('row 17'))",
    "out.rows.map(x, x.n >= 0, {'name': x.name + '!', 'n': string(x.n)})", "out.rows.filter(x, x.text in out.rows[0].tags)",
    "out.rows.filter(x, x.text.contains('é'))",
]  # fmt: skip


@pytest.mark.parametrize("source", PLAIN)
def test_twice_the_items_take_twice_the_steps_and_none_in_the_library(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_expression(source, Environment())
    monkeypatch.setattr(Program, "run", refuse)
    small, large = calls(source, ROWS[:200]), calls(source, ROWS[:800])
    assert large < 4.1 * small
    assert large < 800 * 120


@pytest.mark.parametrize("source", ["out.rows.map(x, x.name.matches('1$'))", "size(out.rows.filter(x, -x.n < 0))"])
def test_what_only_the_library_can_evaluate_takes_as_many_steps_as_there_are_items(source: str) -> None:
    assert calls(source, ROWS[:800]) < 4.1 * calls(source, ROWS[:200])


def limited(source: str, most: int = 10_000, **out: Any) -> LimitExceeded:
    environment = Environment(bounds=Bounds(expression_items=most))
    with pytest.raises(LimitExceeded) as caught:
        compile_expression(source, environment).evaluate({"out": out})
    return caught.value


def test_too_many_items_are_an_error_that_names_the_expression_the_count_the_limit_and_the_setting() -> None:
    error = limited("out.rows.map(x, x.n)", rows=ROWS * 2)
    assert error.message == (
        "expression 'out.rows.map(x, x.n)' goes through too many items: map() has 18,000, and comprehensions in each other "
        "multiply; the setting bounds.expression_items allows 10,000: pass fewer items, compute it in a Python node, or raise it"
    )
    assert (error.code, error.detail) == ("limit_exceeded", {"setting": "bounds.expression_items", "limit": 10_000})
    more = Environment(bounds=Bounds(expression_items=20_000))
    made = compile_expression("out.rows.map(x, x.n)", more).evaluate({"out": {"rows": ROWS * 2}})
    assert len(made) == 18_000


@pytest.mark.parametrize(
    "source",
    [
        "out.rows.map(x, out.rows.filter(y, y == x))",
        "out.rows.filter(x, x.n >= 0).map(x, x.n)",
        "size(out.rows.map(x, x.n)) + size(out.rows.map(x, x.name))",
        "out.rows.map(x, out.rows == [x])",
        "out.rows.all(x, x.name.matches('row'))",
        "out.rows.map(x, -(x.n))",
        "[1, 2].map(i, out.rows.exists(x, x.n < 0))",
    ],
)
def test_all_comprehensions_of_an_expression_share_one_limit_and_steps_of_the_library_count_twice(
    source: str,
) -> None:
    assert "expression_items allows 9,000" in limited(source, 9_000, rows=ROWS).message


@pytest.mark.parametrize("macro", ["map(x, x)", "filter(x, x > 1)", "all(x, x >= 0)"])
@pytest.mark.parametrize("rows", [list(range(60_000)), [{"deep": list(range(30_000))}, [0] * 30_000]])
def test_a_list_that_is_made_of_too_much_is_refused_before_any_of_it_is_converted(
    macro: str, rows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation.Converted, "evaluate", refuse)
    error = limited(f"(out.rows + out.rows).{macro}", rows=rows)
    assert "its list is made of a value with more than 50,005 values in it" in error.message
    assert error.detail["setting"] == "bounds.expression_items"


def test_a_list_that_is_made_of_few_values_is_gone_through() -> None:
    expression = compile_expression("(out.rows + out.more).map(x, x + 1)", Environment())
    assert expression.evaluate({"out": {"rows": [1], "more": [2, 3]}}) == [2, 3, 4]


def test_an_item_that_decides_ends_the_count() -> None:
    environment = Environment(bounds=Bounds(expression_items=3))
    for source in ("out.xs.exists(x, x == 3)", "!out.xs.all(x, x < 3)"):
        assert compile_expression(source, environment).evaluate({"out": {"xs": list(range(1, 100))}}) is True


def test_lists_that_a_step_makes_are_refused_before_they_are_too_large_together() -> None:
    environment = Environment(bounds=Bounds(value_bytes=50_000))
    expression = compile_expression("out.xs.map(x, out.text + out.text)", environment)
    with pytest.raises(LimitExceeded, match="value_bytes allows 50,000"):
        expression.evaluate({"out": {"xs": list(range(100)), "text": "x" * 1_000}})


@pytest.mark.parametrize("source", ["size(out.xs.map(x, uint(x)))", "out.xs.map(x, timestamp(x))"])
def test_values_that_only_the_library_has_are_made_of_so_many_items(source: str) -> None:
    with pytest.raises(ExpressionFailed, match="at most 1,000 items and lists of items, and there are 1,001"):
        compile_expression(source, Environment()).evaluate({"out": {"xs": list(range(1_001))}})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("out.n.map(x, x)", "map() goes through a list or a map, not 5"),
        ("out.n.all(x, x)", "all() goes through a list or a map, not 5"),
        ("out.xs.filter(x, x)", "the condition of filter() is 7, not true or false"),
        ("out.xs.exists(x, x)", "the condition of exists() is 7, not true or false"),
        ("out.xs.map(x, x.price)", "x is int, so it has no 'price'"),
        ("out.xs.map(x, x / 0)", "divide by zero"),
    ],
)
def test_a_failure_names_what_is_wrong(source: str, message: str) -> None:
    expression = compile_expression(source, Environment())
    with pytest.raises(ExpressionFailed) as caught:
        expression.evaluate({"out": {"n": 5, "xs": [7]}})
    assert caught.value.message == f"expression {source!r} failed: {message}"


def test_an_item_of_a_list_of_messages_is_read_as_a_map() -> None:
    from graphflow.messages import AIMessage, HumanMessage

    state = {"messages": [HumanMessage(content="hi"), AIMessage(content="yes")]}
    environment = Environment(state={"messages": {"type": "array"}})
    for source, expected in (
        ("state.messages.filter(m, m.role == 'user').map(m, m.content)", ["hi"]),
        ("state.messages.exists(m, m.role == 'assistant' && m.content.contains('yes'))", True),
        ("size(state.messages.filter(m, m.role == 'system'))", 0),
    ):
        assert compile_expression(source, environment).evaluate({"state": state}) == expected
