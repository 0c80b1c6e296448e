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
    ("state.n =< 1", "state.n <= 1"),
    ("state.b xor state.x", "state.b != state.x"),
    ("state.n mod 2 == 0", "state.n % 2 == 0"),
    ("(state.n) div 2 == 0", "(state.n) / 2 == 0"),
    ("state.n // 2 > 1", "state.n / 2 > 1"),
    ("(state.n // 2) > 1", "(state.n / 2) > 1"),
    ("state.n // 2 // 3 == size('//')", "state.n / 2 / 3 == size('//')"),
    ("state.b && // as in\nstate.n // 2 > 1", "state.b && // as in\nstate.n / 2 > 1"),
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


def test_what_slashes_would_hide_is_refused_also_where_the_division_needs_more() -> None:
    (issue,) = issues_of("state.f // 2")
    assert issue.message.endswith("'//' begins a comment, so what follows it is not read")
    assert (
        issue.hint
        == "in CEL it is 'state.f / 2', and there: one side is a number with decimals: write 2.0 instead of 2"
    )


@pytest.mark.parametrize(
    "source",
    [
        "state.n > 2 // enough", "state.n > 2 // 2 is enough", "state.n > 2\n// state.n, doubled", "state.s == 'http://x' // see http://x",
        "// is it?\nstate.n > 2", "state.n > 2 //", "state.n > 2 // it's", "size('\\'//') == 3",
    ],
)  # fmt: skip
def test_words_after_slashes_are_a_comment(source: str) -> None:
    assert compile_expression(source, HERE).type == "bool"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("state.n ** 2", "CEL has no power"),
        ("state.n ^ 2", "CEL has no power"),
        ("state.n << 2", "CEL has no operations on bits"),
        ("~state.n", "CEL has no operations on bits"),
        ("state.n++", "an expression changes nothing"),
        ("state.n += 1", "an expression changes nothing"),
        ("state.n := 1", "an expression changes nothing"),
        ("state.n => 1", "write >="),
        ("state.l.map(x => x)", "list.map(x, …)"),
        ("[x for x in state.l]", "write list.map(x, …)"),
        ("state.maybe ?? 'a'", "write a != null ? a : b"),
        ("state.x?.a", "write a != null ? a.b : null"),
        ("1 if state.b else 2", "write condition ? a : b"),
        ("state.s contains 'a'", "write text.contains('part')"),
        ("state.s =~ 'a'", "write text.matches('pattern')"),
        ("state.n between 1 and 2", "write a <= x && x <= b"),
        ("1 < state.n < 3", "write 1 < state.n && state.n < 3"),
        ("state.n in (1, 2)", "write a list: [1, 2]"),
        ("state.l[-1]", "write state.l[size(state.l) - 1]"),
        ("state.l[0:2]", "compute it in a Python node"),
        ("state.n > 1 # why", "a comment begins with //"),
        ("${state.n}", "an expression names the variable alone"),
        ("len(state.l)", "did you mean 'size'?"),
        ("abs(state.n)", "CEL has size"),
    ],
)
def test_signs_and_functions_of_other_languages_get_what_to_write_instead(source: str, hint: str) -> None:
    assert [hint in (issue.hint or "") for issue in issues_of(source)] == [True]


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
