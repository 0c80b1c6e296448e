"""Expressions: read by reference where they allow it, checked and evaluated by CEL where not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.checkpoints import codec
from graphflow.errors import DefinitionError, ExpressionFailed
from graphflow.graph.core.immutable import FrozenDict, FrozenList, ListView, State
from graphflow.graph.definition.budget import LIMIT_NAMES
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import LIMITS, Environment
from graphflow.graph.expressions.templates import compile_template
from graphflow.messages import AIMessage, HumanMessage, ToolCall
from tests.printed import printed_by

CALL = ToolCall(id="c1", name="bash", arguments='{"command": "ls"}')
REPLY = AIMessage(content="done", tool_calls=(CALL,))
MESSAGES = ListView([HumanMessage(content="hi"), REPLY])

ROOTS = Environment(
    state={
        "score": {"type": "number"},
        "count": {"type": "integer"},
        "draft": {"type": ["string", "null"]},
        "title": {"type": "string"},
        "done": {"type": "boolean"},
        "steps": {"type": "array"},
        "facts": {"type": "object"},
        "rating": {"type": ["number", "null"]},
        "messages": {"type": "array"},
        "anything": {},
    },
    nodes=frozenset({"judge", "plan"}),
    names=frozenset({"step"}),
)

SCOPE = {
    "state": State(
        score=1,
        count=3,
        draft=None,
        title="Größe",
        done=True,
        steps=FrozenList([FrozenDict({"query": "a"}), FrozenDict({"query": "b"})]),
        facts=FrozenDict({"city": "Berlin"}),
        rating=2,
        messages=MESSAGES,
        anything=Decimal("1.5"),
    ),
    "input": {"query": "q"},
    "out": {"text": "x", "message": REPLY, "toolCalls": (CALL,), "score": 1},
    "answer": {"decision": "approve"},
    "visits": {"judge": 2, "plan": 0},
    "limits": {"rounds": 3},
    "usage": {"modelCalls": 4},
    "error": None,
    "step": {"query": "s"},
}


def value(source, scope=SCOPE):
    return compile_expression(source, ROOTS).evaluate(scope)


def issues(source, environment=ROOTS):
    with pytest.raises(DefinitionError) as caught:
        compile_expression(source, environment)
    return caught.value.errors


def failure(source, scope=SCOPE):
    with pytest.raises(ExpressionFailed) as caught:
        value(source, scope)
    assert caught.value.code == "expression"
    return caught.value.message


@pytest.mark.parametrize(
    ("source", "expected", "kind"),
    [
        ("state.score >= 0.8", True, "bool"),
        ("state.score + 0.5", 1.5, "double"),
        ("state.rating + 0.5", 2.5, "double"),
        ("state.count + 1", 4, "int"),
        ("state.count / 2", 1, "int"),
        ("state.title + '!'", "Größe!", "string"),
        ("size(state.title)", 5, "int"),
        ("size(state.steps) > 1 && state.done", True, "bool"),
        ("state.steps.size()", 2, "int"),
        ("state.draft == null", True, "bool"),
        ("state.draft != null && size(state.draft) > 3", False, "bool"),
        ("visits.judge < limits.rounds", True, "bool"),
        ("usage.modelCalls + usage.toolCalls", 4, "int"),
        ("has(answer.draft) ? answer.draft : state.draft", None, "dyn"),
        ("has(answer.decision)", True, "bool"),
        ("answer.decision == 'approve'", True, "bool"),
        ("answer.decision in ['approve', 'edit']", True, "bool"),
        ("out.nothing == 1 || true", True, "bool"),
        ("size(out.toolCalls) > 0", True, "bool"),
        ("out['text'] + state.steps[1].query", "xb", "dyn"),
        ("state.messages[size(state.messages) - 1].content + '!'", "done!", "string"),
        ("state.messages.exists(m, m.role == 'assistant' && size(m.toolCalls) == 1)", True, "bool"),
        ("state.steps.map(s, s.query)", ["a", "b"], "list"),
        ("state.steps.filter(score, score.query == 'a')", [{"query": "a"}], "list"),
        ("{'a': state.count, 'b': [out.text]}", {"a": 3, "b": ["x"]}, "map"),
        ("step.query == 's'", True, "bool"),
        ("out.message.role == 'assistant'", True, "bool"),
        ("out.message.toolCalls[0].name == 'bash'", True, "bool"),
        ("state.facts.city.startsWith('B')", True, "bool"),
        ("-2 + 1", -1, "int"),
        ("r'\\d' + \"\\t\" + '''x'''", "\\d\tx", "string"),
        ("0x1F", 31, "int"),
        ("timestamp('2026-01-02T00:00:00Z') > timestamp('2026-01-01T00:00:00Z')", True, "bool"),
        ("state.score < 1e9 // a comment", True, "bool"),
    ],
)
def test_an_expression_has_its_value_and_its_type(source, expected, kind):
    expression = compile_expression(source, ROOTS)
    assert expression.evaluate(SCOPE) == expected
    assert type(expression.evaluate(SCOPE)) is type(expected)
    assert expression.type == kind
    assert compile_expression(source, ROOTS, check=False).evaluate(SCOPE) == expected


def test_a_bare_path_gives_the_very_object_and_its_python_type():
    assert value("out.message") is REPLY
    assert value("state.messages") is MESSAGES
    assert value("out.message.toolCalls") is REPLY.tool_calls
    assert value("state.messages[1].toolCalls[0]") is CALL
    assert value("state.messages[size(state.messages) - 1]") is REPLY
    assert value("out.message.tool_calls") is REPLY.tool_calls
    assert type(value("state.score")) is int
    assert value("step") is SCOPE["step"]


def test_lists_maps_and_choices_of_paths_keep_their_objects():
    assert value("[out.message]")[0] is REPLY
    assert value("{'last': out.message}")["last"] is REPLY
    assert value("state.done ? [out.message] : []")[0] is REPLY


def test_a_list_literal_is_new_each_time():
    expression = compile_expression("['a', out.text]", ROOTS)
    assert expression.evaluate(SCOPE) is not expression.evaluate(SCOPE)


@pytest.mark.parametrize(
    ("source", "refs"),
    [
        (
            "state.score > 1.0 && limits.rounds > visits.judge",
            {("state", "score"), ("limits", "rounds"), ("visits", "judge")},
        ),
        ("[out.message]", {("out", "message")}),
        ("has(answer.draft) ? answer.draft : state.draft", {("answer", "draft"), ("state", "draft")}),
        ("state.steps[visits.plan].query", {("state", "steps"), ("visits", "plan")}),
        ("state.steps.map(out, out.query)", {("state", "steps")}),
        ("size(state.messages[0].content)", {("state", "messages")}),
        ("'state.score'", set()),
    ],
)
def test_refs_name_what_is_read_with_and_without_checking(source, refs):
    assert set(compile_expression(source, ROOTS).refs) == refs
    assert set(compile_expression(source, ROOTS, check=False).refs) == refs


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("state.scor > 0.5", "'scor' is not a state key", "did you mean 'score'"),
        ("stat.score", "'stat' is not a variable", "did you mean 'state'"),
        ("score > 0.5", "'score' is not a variable", "write 'state.score'"),
        ("env.HOME", "'env' is not a variable", "read the environment"),
        ("os.system", "'os' is not a variable", "read the environment or run code"),
        ("approve", "'approve' is not a variable", "put text in quotes"),
        ("state", "name a key of the state", "state.score"),
        ("state[out.text]", "name a key of the state", "state.score"),
        ("has(state.draft)", "always true", "state.draft != null"),
        ("visits.jugde > 1", "'jugde' is not a node", "did you mean 'judge'"),
        ("visits", "name one: visits.NAME", "visits.judge"),
        ("limits.round", "'round' is not a limit", "did you mean 'rounds'"),
        ("usage.tokens", "'tokens' is not a usage counter", "promptTokens"),
        ("state.score + 1", "'+' does not take (double, int)", "write 1.0 instead of 1"),
        ("2 * state.score > 1.0", "does not take", "write 2.0 instead of 2"),
        ("state.score >= limits.rounds", "does not take (double, int)", "double("),
        ("state.title + state.count", "does not take (string, int)", "string(…)"),
        ("state.title != null", "does not take (string, null_type)", '["string", "null"]'),
        ("state.score ? 1 : 2", "'? :' does not take", "true or false"),
        ("state.score && true", "does not take", "write 'state.score != 0.0 && true'"),
        ("state.count.x", "is a whole number, so it has no 'x'", None),
        ("state.steps.query", "is a list, so it has no 'query'", "state.steps[0].query"),
        ("size(state.count) > 1", "size() needs a list", None),
        ("lenght(state.steps)", "unknown function 'lenght'", "size"),
        ("__import__('os').system('x')", "unknown function '__import__'", "fn:NAME"),
        ("state.steps.mapp(s, s)", "unknown function 'mapp'", "did you mean 'map'"),
        ("type(state.count)", "a type, not a value", None),
        ("state.score >", "expected a value, found the end", None),
        ("state.title = 'x'", "'=' is not an operator", "state.title == 'x'"),
        ("state.done & true", "'&' is not an operator", "write 'state.done && true'"),
        ("'abc", "is not closed", "close it with '"),
        ("(state.done", "expected ')'", None),
        ("state.done)", "unexpected ')'", None),
        ("state.", "expected a name after '.'", None),
        ("", "empty", None),
        ("   ", "empty", None),
        ("state.title + '\\q'", "\\q is not an escape sequence", None),
        ("Point{x: 1}", "can't be built", "build a map"),
        ("for", "is a reserved word", None),
        ("x" * 1_001, "at most 1000 characters", "split it"),
        ("(" * 25 + "1" + ")" * 25, "nested deeper than 24", "split it"),
        ("!" * 30 + "true", "nested deeper than 24", None),
        ("+".join(["state.count"] * 50), "more than 32 operations are nested", "split it"),
    ],
)
def test_what_is_wrong_is_said_with_the_place_and_the_next_step(source, message, hint):
    (first, *_) = issues(source)
    assert message in first.message
    assert hint is None or hint in (first.hint or "")
    assert first.pointer == ""


def test_all_unknown_names_of_an_expression_are_reported_at_once():
    assert len(issues("state.a > 1 && visits.b > 1 && zzz == 1")) == 3


def test_the_place_of_a_type_error_is_that_of_the_text_as_written():
    (issue,) = issues("state.done && state.score + 1 > 2.0")
    assert "character 27" in issue.message


def test_caps_allow_what_they_say():
    assert value("(" * 24 + "1" + ")" * 24) == 1
    assert value("'" + "x" * 998 + "'") == "x" * 998


def test_roots_that_a_place_lacks_say_why():
    (issue,) = issues("out.text", ROOTS.without(out="only `set` and `next` see it"))
    assert "no 'out' here" in issue.message
    assert "only `set`" in (issue.hint or "")


def test_a_closed_schema_of_a_root_is_held_and_types_its_bare_paths():
    environment = ROOTS.having(
        out={"type": "object", "properties": {"code": {"type": "integer"}}, "additionalProperties": False}
    )
    assert compile_expression("out.code", environment).type == "int"
    (issue,) = issues("out.cod", environment)
    assert issue.hint == "did you mean 'code'?"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("out.nope", "out has no 'nope'; it has message, score, text, toolCalls"),
        ("out.nope == 1", "out has no 'nope'"),
        ("out.message.nope", "toolCalls"),
        ("error.code == 'timeout'", "error is null, so it has no 'code'"),
        ("state.steps[7]", "has 2 items, so there is no [7]"),
        ("out.text.more", "out.text is str, so it has no 'more'"),
        ("state.messages.content", "take an item"),
        ("state.steps[dyn(0.5)]", "its items have whole numbers, not 0.5: write int(…) around the index"),
        ("out[size(state.steps)] == 1", "out has no 2; it has"),
        ("1 / (state.count - 3) > 0", "divide by zero"),
        ("out.text + 1", "No matching overloads"),
        ("size(out.score)", "needs a list, a map or text, not int"),
        ("size(out.score) > 1", "needs a list, a map or text, not int"),
        ("has(error.code)", "error is null"),
        ("(out.text ? 'a' : 'b')", "not true or false"),
        ("out.text && true", "No matching overloads"),
        ("limits.tokens > 5", "limits has no 'tokens'"),
    ],
)
def test_a_failure_names_what_is_there_instead(source, message):
    if source.startswith("state.messages."):
        with pytest.raises(ExpressionFailed, match=message):
            compile_expression(source, ROOTS, check=False).evaluate(SCOPE)
    else:
        assert message in failure(source)
        assert repr(source)[1:-1] in failure(source) or source in failure(source)


def test_an_error_value_is_a_failure_and_never_true():
    with pytest.raises(ExpressionFailed):
        value("1 / 0 == 1 ? true : true")


@pytest.mark.parametrize(
    ("given", "source", "expected"),
    [
        (Decimal("1.5"), "state.anything * 2.0", 3.0),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "timestamp(state.anything) > timestamp('2026-01-01T00:00:00Z')", True),
        (dt.date(2026, 1, 2), "state.anything + ''", "2026-01-02"),
        (dt.timedelta(hours=1), "duration(state.anything) == duration('1h')", True),
        (UUID(int=1), "state.anything + ''", str(UUID(int=1))),
        ((1, 2), "state.anything[0] + state.anything[1]", 3),
        (frozenset({1}), "1 in state.anything", True),
        ({"a": HumanMessage(content="hi", name="Bo")}, "state.anything.map(k, k)[0]", "a"),
        (HumanMessage(content="hi", name="Bo"), "state.anything == {'role': 'user'}", False),
        (b"ab", "size(state.anything)", 2),
        (2**62, "state.anything + 1", 2**62 + 1),
        ({"x": ListView([1, 2])}, "state.anything == {'x': [1, 2]}", True),
    ],
)
def test_values_of_python_have_a_sensible_form_in_cel(given, source, expected):
    assert value(source, {"state": State(anything=given)}) == expected


@pytest.mark.parametrize("given", [object(), 2**70, "\ud800"])
def test_a_value_that_cel_can_not_hold_is_a_failure_and_not_a_crash(given):
    with pytest.raises(ExpressionFailed):
        value("state.anything + 'x' == 'y'", {"state": State(anything=given)})


def test_a_condition_never_converts_what_it_does_not_name():
    class Loud(list):
        def __iter__(self):
            raise AssertionError("converted")

    scope = {"state": State(messages=Loud([1, 2, 3]), done=True), "out": {"big": Loud([1]), "text": "x"}}
    assert value("size(state.messages) > 2 && out.text == 'x' && has(out.big)", scope) is True


def test_the_names_of_limits_are_those_of_the_plan():
    assert set(LIMITS) == set(LIMIT_NAMES)


def test_documents_that_were_checked_load_without_cel():
    """E20: resuming imports CEL at the first evaluation that needs it."""
    script = (
        "import sys\n"
        "from graphflow.graph.expressions.compiler import compile_expression\n"
        "from graphflow.graph.expressions.environment import Environment\n"
        "from graphflow.graph.expressions.templates import compile_template\n"
        "environment = Environment(state={'score': {'type': 'number'}})\n"
        "condition = compile_expression('state.score > 0.5', environment, check=False)\n"
        "compile_expression('[out.text]', environment, check=False).evaluate({'out': {'text': 'x'}})\n"
        "compile_template({'a': 'x ${out.text}'}, environment, check=False).evaluate({'out': {'text': 'x'}})\n"
        "print('cel_expr_python' in sys.modules)\n"
        "print(condition.evaluate({'state': {'score': 1}}), 'cel_expr_python' in sys.modules)\n"
        "print({'networkx', 'pydantic', 'jsonschema_rs'} & set(sys.modules))\n"
    )
    assert printed_by(script) == "False\nTrue True\nset()\n"


@given(st.text(alphabet="abs .'\"()[]{}?:&|!=<>+-*/%\\012state.scorein$_\n", max_size=40))
def test_no_text_makes_the_parser_do_anything_but_compile_or_refuse(source):
    try:
        expression = compile_expression(source, ROOTS)
    except DefinitionError:
        return
    try:
        value = expression.evaluate(SCOPE)
    except ExpressionFailed:
        return
    assert codec.decode(codec.encode(value)) == value, "nothing that could not be stored"


# --- templates ------------------------------------------------------------------------------------


def rendered(template, scope=SCOPE):
    return compile_template(template, ROOTS).evaluate(scope)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("${state.count}", 3),
        ("${out.message}", REPLY),
        ("n=${state.count}", "n=3"),
        ("${state.count}${state.count}", "33"),
        ("${state.done}/${!state.done}", "true/false"),
        ("[${state.draft}]", "[]"),
        ("${state.score} ${state.score + 0.5}", "1 1.5"),
        ("l: ${state.steps}", 'l: [{"query":"a"},{"query":"b"}]'),
        ("m: ${state.facts}", 'm: {"city":"Berlin"}'),
        ("$${not} ${out.text}", "${not} x"),
        ("$${a}", "${a}"),
        ("$$${out.text}", "$${out.text}"),
        ("$5 ${out.text}", "$5 x"),
        ("${'$'}{literal}", "${literal}"),
        ("${ {'a': {'b': '}'}}['a'].b }!", "}!"),
        ("${'a'}", "a"),
        ("${1}", 1),
        ("", ""),
        ({"a": ["${out.text}", 1, None], "b": {"c": "${state.count}"}}, {"a": ["x", 1, None], "b": {"c": 3}}),
    ],
)
def test_a_template_gives_its_value(template, expected):
    assert rendered(template) == expected
    assert type(rendered(template)) is type(expected)


def test_a_template_without_expressions_costs_nothing():
    template = compile_template({"a": [1, {"b": "x"}]}, ROOTS)
    assert template.is_constant
    assert template.evaluate({}) is template.evaluate({})
    assert template.refs == ()


def test_a_template_keeps_the_order_of_its_keys():
    assert list(rendered({"z": "${out.text}", "a": 1, "m": "${out.text}"})) == ["z", "a", "m"]


def test_a_template_tells_what_it_reads():
    assert set(compile_template({"a": "${state.count} ${out.text}", "b": ["${state.count}"]}, ROOTS).refs) == {
        ("state", "count"),
        ("out", "text"),
    }


@pytest.mark.parametrize(
    ("template", "pointer", "word"),
    [
        ({"a": ["x", "${state.count"]}, "/a/1", "has no '}'"),
        ({"a/b": "${'x}"}, "/a~1b", "is not closed"),
        ("${}", "", "empty"),
        ("${state.nope} ${zzz}", "", "not a state key"),
    ],
)
def test_a_broken_template_names_the_place(template, pointer, word):
    with pytest.raises(DefinitionError) as caught:
        compile_template(template, ROOTS)
    assert caught.value.errors[0].pointer == pointer
    assert word in caught.value.errors[0].message


@given(st.text(alphabet="ab$${}'\" .", max_size=30))
def test_any_text_is_a_template_or_is_refused(text):
    try:
        template = compile_template(text, ROOTS)
    except DefinitionError:
        return
    if "${" not in text:
        assert template.evaluate({}) == text
