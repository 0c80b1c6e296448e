"""Words of Python, JavaScript and SQL in expressions: the hint is the expression in CEL, and it was tried."""

from __future__ import annotations

import pytest

from graphflow.errors import DefinitionError, Issue
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment

KEYS = {
    "n": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"}, "s": {"type": "string"}, "l": {"type": "array"},
    "maybe": {"type": ["string", "null"]}, "x": {},
}  # fmt: skip
HERE = Environment(state=KEYS)

WRITTEN = [
    ("state.maybe == None", "state.maybe == null"),
    ("None != state.maybe", "null != state.maybe"),
    ("state.maybe is None", "state.maybe == null"),
    ("state.maybe is not None", "state.maybe != null"),
    ("state.x == undefined", "state.x == null"),
    ("state.b == True", "state.b == true"),
    ("state.b != FALSE", "state.b != false"),
    ("True", "true"),
    ("not state.b", "!state.b"),
    ("not state.n > 1", "!(state.n > 1)"),
    ("not state.n in [1] and state.b", "!(state.n in [1]) && state.b"),
    ("state.n not in [1, 2] or state.b", "!(state.n in [1, 2]) || state.b"),
    ("not (state.b and state.n > 1)", "!(state.b && state.n > 1)"),
    ("not not state.b", "!!state.b"),
    ("state.n > 1 and not state.b or state.maybe == None", "state.n > 1 && !state.b || state.maybe == null"),
    ("state.b AND state.b", "state.b && state.b"),
    ("state.l.exists(one, one == None and state.b)", "state.l.exists(one, one == null && state.b)"),
    ("state.b ? not state.b : state.b", "state.b ? !state.b : state.b"),
    ("state.n = 1", "state.n == 1"),
    ("state.n === 1", "state.n == 1"),
    ("state.n !== 1", "state.n != 1"),
    ("state.n <> 1", "state.n != 1"),
    ("state.b & state.b | state.b", "state.b && state.b || state.b"),
    ("!state.n", "!(state.n != 0)"),
    ("state.n && state.b", "state.n != 0 && state.b"),
    ("state.s || state.l", "state.s != '' || size(state.l) > 0"),
    ("not state.s", "!(state.s != '')"),
    ("state.b and state.l", "state.b && size(state.l) > 0"),
]


def issues_of(source: str) -> tuple[Issue, ...]:
    with pytest.raises(DefinitionError) as refused:
        compile_expression(source, HERE)
    return tuple(refused.value.errors)


@pytest.mark.parametrize(("source", "better"), WRITTEN)
def test_the_hint_is_the_expression_in_cel_and_it_validates(source: str, better: str) -> None:
    hints = {issue.hint for issue in issues_of(source)}
    assert hints == {f"write {better!r}"}
    assert compile_expression(better, HERE).type == "bool"


@pytest.mark.parametrize("source", ["state.n == None", "state.n == null", "null != state.n"])
def test_of_a_key_that_is_never_null_the_hint_names_the_type_that_lets_it_be(source: str) -> None:
    (issue,) = issues_of(source)
    assert issue.hint is not None
    assert 'declare the key as "type": ["integer", "null"]' in issue.hint
    nullable = Environment(state={**KEYS, "n": {"type": ["integer", "null"]}})
    assert compile_expression(source.replace("None", "null"), nullable).type == "bool"


def test_texts_and_fields_with_such_names_are_left_alone() -> None:
    assert compile_expression("state.s == 'None and not True'", HERE).type == "bool"
    assert compile_expression("state.x.None == state.x.is", HERE).type == "bool"
    (issue,) = issues_of("state.s == 'and' and state.x.True == 1")
    assert issue.hint == "write \"state.s == 'and' && state.x.True == 1\""


@pytest.mark.parametrize("source", ["and", "not", "is is is", "not not", "(", "state.n = = 1", "& | &", "= " * 200])
def test_what_no_translation_helps_is_still_an_error_with_a_place(source: str) -> None:
    assert all("expression" in issue.message for issue in issues_of(source))


def test_a_count_of_a_list_is_named() -> None:
    (issue,) = issues_of("state.l.length > 0")
    assert issue.hint == "write size(state.l)"
