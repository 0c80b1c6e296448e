"""Where a schema says `number`, an expression gets a double, whatever JSON wrote."""

import pytest

from graphflow.errors import DefinitionError, ExpressionFailed
from graphflow.graph.definition.whole_numbers import whole_numbers
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.templates import compile_template

NUMBER = {"type": "number"}
PROPERTIES = {
    "x": NUMBER,
    "n": {"type": "integer"},
    "maybe": {"type": ["number", "null"]},
    "either": {"anyOf": [{"type": "integer"}, NUMBER]},
    "both": {"allOf": [{"type": "integer"}, NUMBER]},
    "optional": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]},
    "list": {"type": "array", "items": NUMBER},
    "pair": {"type": "array", "prefixItems": [{"type": "integer"}, NUMBER]},
    "rows": {
        "type": "array",
        "items": {"type": "object", "properties": {"price": NUMBER, "n": {"type": "integer"}}},
    },
    "named": {"type": "object", "additionalProperties": NUMBER},
    "by_pattern": {"type": "object", "patternProperties": {"^x_": NUMBER, "^n_": {"type": "integer"}}},
    "mixed": {"type": "object", "properties": {"a": NUMBER, "b": {"type": "integer"}}},
    "word_or_number": {"anyOf": [{"const": "auto"}, NUMBER]},
    "some": {"enum": [1, 2.5]},
    "some_numbers": {"type": "number", "enum": [1, 2.5]},
    "both_below": {"allOf": [{"properties": {"x": NUMBER}}, {"properties": {"x": {"type": "integer"}}}]},
    "one_of": {"oneOf": [{"properties": {"k": {"const": 1}, "x": NUMBER}}, {"properties": {"k": {"const": 2}}}]},
    "tree": {"$ref": "#/$defs/tree"},
    "within": {"$id": "within", "$ref": "#/$defs/own", "$defs": {"own": NUMBER}},
    "anchored": {"$ref": "#here"},
    "untyped": {"minimum": 1},
    "mostly": {"type": ["number", "string"]},
    "key": {"type": "string"},
}
SCHEMA = {
    "type": "object",
    "properties": PROPERTIES,
    "$defs": {
        "point": {"type": "object", "properties": {"x": NUMBER}},
        "here": {"$anchor": "here", "type": "number"},
        "tree": {
            "allOf": [{"properties": {"value": NUMBER}}, {"properties": {"more": {"$ref": "#/$defs/tree"}}}],
            "properties": {"less": {"$ref": "#/$defs/tree"}},
        },
    },
}
VALUE = {
    "x": 2, "n": 2, "maybe": 2, "either": 2, "both": 2, "optional": {"x": 2}, "list": [2, 3], "pair": [2, 2],
    "rows": [{"price": 2, "n": 2}], "named": {"a": 2}, "by_pattern": {"x_a": 2, "n_a": 2}, "mixed": {"a": 2, "b": 2},
    "word_or_number": 2, "some": 1, "some_numbers": 1, "both_below": {"x": 2}, "one_of": {"k": 2, "x": 2}, "within": 2,
    "tree": {"more": {"less": {"value": 2}}}, "anchored": 2, "untyped": 2, "mostly": 2, "key": "b",
}  # fmt: skip


@pytest.mark.parametrize("variable", ["input", "answer", "out", "item"])
@pytest.mark.parametrize(
    "source",
    [
        "V.x * 2.0 == 4.0", "V.n * 2 == 4", "V.maybe * 2.0 == 4.0", "V.either * 2.0 == 4.0", "V.both * 2 == 4",
        "V.optional.x * 2.0 == 4.0", "V.list[0] * 2.0 == 4.0", "V.list[V.n - 1] * 2.0 == 6.0", "V.pair[0] * 2 == 4",
        "V.pair[1] * 2.0 == 4.0", "V.rows[0].price * 2.0 == 4.0", "V.rows[0].n * 2 == 4", "V.named['a'] * 2.0 == 4.0",
        "V.list.map(v, v * 2.0) == [4.0, 6.0]", "V.rows.all(row, row.price * 2.0 == 4.0 && row.n * 2 == 4)", "V.x > 1",
        "V.by_pattern.x_a * 2.0 == 4.0", "V.by_pattern.n_a * 2 == 4", "V.mixed[V.key] * 2 == 4", "V.mixed['a'] * 2.0 == 4.0",
        "V.word_or_number * 2.0 == 4.0", "V.both_below.x * 2 == 4", "V.one_of.x * 2.0 == 4.0", "V.within * 2.0 == 4.0",
        "V.tree.more.less.value * 2.0 == 4.0", "V.anchored * 2.0 == 4.0", "V.mostly * 2.0 == 4.0",
        "V.some_numbers * 2.0 == 2.0", "V.some * 2 == 2", "V.untyped * 2 == 4", "V.x == 2 && V.x > 1 && V.x in [2]",
        "string(V.x) == '2'", "V.x / V.named['a'] == 1.0", "V.list[int(V.x) - 1] * 2.0 == 6.0",
    ],
)  # fmt: skip
def test_whole_numbers_are_doubles_where_the_schema_says_number(variable, source):
    environment = Environment(schemas={variable: SCHEMA}, names=frozenset({"item"}))
    expression = compile_expression(source.replace("V", variable), environment)
    assert expression.evaluate({variable: VALUE}) is True


@pytest.mark.parametrize("source", ["answer * 2.0", "2.0 * answer"])
def test_an_answer_that_is_a_number_is_a_double(source):
    assert compile_expression(source, Environment(schemas={"answer": NUMBER})).evaluate({"answer": 2}) == 4.0


def test_null_is_still_null_where_the_schema_allows_it():
    environment = Environment(schemas={"input": SCHEMA})
    expression = compile_expression("input.maybe == null ? 0.0 : input.maybe * 2.0", environment)
    assert [expression.evaluate({"input": {"maybe": value}}) for value in (None, 2, 2.5)] == [0.0, 4.0, 5.0]


@pytest.mark.parametrize("variable", ["input", "answer", "out", "item"])
@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("V.x + V.n", "double(V.n)"),
        ("V.n / V.x", "double(V.n)"),
        ("V.n * 2.0", "double(V.n)"),
        ("-V.n * 2.0", "double(-V.n)"),
        ("V.rows[0].n - 0.5", "double(V.rows[0].n)"),
        ("V.either + V.n", "double(V.n)"),
        ("size(V.rows) * 0.5", "double(size(V.rows))"),
        ("V.n * (V.c ? 1.0 : 2.5)", "double(V.n)"),
        ("V.untyped * 2.0 + 1", "1.0 instead of 1"),
        ("[V.x * V.n]", "double(V.n)"),
        ("{'a': V.x * V.n}.a > 1.0", "double(V.n)"),
        ("V.a[V.n * 2.0]", "double(V.n)"),
        ("V.list.map(v, v * 2)", "2.0 instead of 2"),
        ("V.rows.map(row, row.price * row.n)", "double(row.n)"),
        ("V.rows.filter(r, r.n > 0).exists(row, row.price + row.n > 1.0)", "double(row.n)"),
        ("V.rows.all(r, V.pair.exists(p, r.n * 0.5 > 1.0))", "double(r.n)"),
        ("V.x * 2u", "2.0 instead of 2u"),
        ("state.count * V.x", "double(state.count)"),
        ("V.count + 0.5", "double(V.count)"),
        ("visits.a * V.x", "double(visits.a)"),
    ],
)
def test_arithmetic_of_declared_numbers_that_always_fails_is_refused_when_it_is_loaded(variable, source, written):
    """Both by what `input`, `answer`, `out` and the items of a map declare, and by the types of what is made of them."""
    schema = {**SCHEMA, "properties": {**PROPERTIES, "count": {"type": ["integer", "null"]}}}
    known = Environment(state={"count": {"type": "integer"}}, nodes=frozenset({"a"}), names=frozenset({"item"}))
    with pytest.raises(DefinitionError) as caught:
        compile_expression(source.replace("V", variable), known.having(**{variable: schema}))
    (issue,) = caught.value.errors
    assert "does not take" in issue.message
    assert issue.hint == f"one side is a number with decimals: write {written.replace('V', variable)}"


@pytest.mark.parametrize("source", ["input.n * 2u", "2u - input.n", "state.n % 2u", "size(input.list) / 2u"])
def test_whole_numbers_with_and_without_a_sign_are_refused_when_they_are_loaded(source):
    environment = Environment(schemas={"input": SCHEMA}, state={"n": {"type": "integer"}})
    with pytest.raises(DefinitionError) as caught:
        compile_expression(source, environment)
    assert caught.value.errors[0].hint == "one side has no sign: write 2 instead of 2u"


@pytest.mark.parametrize(
    "source",
    [
        "input.x >= input.n", "input.n == 2.0", "(input.c ? input.x : input.n) > 1", "input.named.map(k, k + 'a') == ['aa']",
        "input.pair.all(p, p > 1)", "[input.x, input.n].all(v, v == 2)", "input.x == 2 ? input.n == 2 : false",
        "input.rows.all(state, state.n + 1 == 3)",
    ],
)  # fmt: skip
def test_comparisons_of_the_two_and_lists_of_both_are_as_in_cel(source):
    environment = Environment(schemas={"input": SCHEMA}, state={"n": NUMBER})
    assert compile_expression(source, environment).evaluate({"input": {**VALUE, "c": True}}) is True


def refused(source, schema=SCHEMA):
    with pytest.raises(DefinitionError) as caught:
        compile_expression(source, Environment(schemas={"input": schema}))
    return caught.value.errors[0].hint


@pytest.mark.parametrize(
    "source",
    [
        "input.x * 2", "input.maybe + 2", "input.either - 2", "input.list[0] * 2", "input.rows[0].price - 2",
        "input.list.map(v, v * 2)", "string(input.x / 2)", "input.x > 2 && input.x * 2 > 3.0",
    ],
)  # fmt: skip
def test_arithmetic_with_whole_numbers_is_refused_when_it_is_loaded(source):
    assert refused(source) == "one side is a number with decimals: write 2.0 instead of 2"


@pytest.mark.parametrize(
    ("source", "written"),
    [("input.x * int(input.x)", "double(int(input.x))"), ("1 * (input.x + 3)", "3.0 instead of 3")],
)
def test_the_hint_names_the_operand_that_is_a_whole_number(source, written):
    assert refused(source) == f"one side is a number with decimals: write {written}"


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("input.x % 2", "write int(input.x)"),
        ("input.n % 2.0", "write 2 instead of 2.0"),
        ("input.x % input.maybe", "write int(input.x) and int(input.maybe)"),
        ("input.n % 2.5", "compute the remainder in a Python node"),
    ],
)
def test_the_hint_of_a_remainder_is_one_that_cel_can_follow(source, written):
    assert refused(source) == f"'%' takes whole numbers only: {written}"


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("input.mixed[input.which] * 2", "2.0 instead of 2"),
        ("input.word_or_number + 1", "1.0 instead of 1"),
        ("input.some * 2.0", "double(input.some)"),
        ("(input.c ? input.x : input.n) * 2.0", "double((input.c ? input.x : input.n))"),
    ],
)
def test_where_only_a_run_can_tell_its_error_names_the_same_fix(source, written):
    expression = compile_expression(source, Environment(schemas={"input": SCHEMA}))
    with pytest.raises(ExpressionFailed, match="does not take") as caught:
        expression.evaluate({"input": {**VALUE, "which": "a", "c": False}})
    assert caught.value.message.endswith(f"one side is a number with decimals: write {written}")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("input.x > 2", 3), ("input.x > 2", 2.5), ("(input.c ? input.x : 1) == 1", 2), ("input.m == 'a' ? 'a' + input.m : ''", 2),
        ("type(input.x) == int ? input.x * 2 == 4 : true", 2), ("int(input.x) * 2 == 4", 2.5), ("dyn(input.x) > 1", 2),
    ],
)  # fmt: skip
def test_nothing_is_refused_that_works_for_every_value(source, value):
    schema = {"properties": {"x": NUMBER, "m": {"type": ["number", "string"]}}}
    expression = compile_expression(source, Environment(schemas={"input": schema}))
    assert expression.evaluate({"input": {"x": value, "m": "b", "c": False}}) is (expression.type == "bool" or "")


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**53 + 1, 10**30])
@pytest.mark.parametrize("source", ["{}.x > 2.0", "{}.list[0] + 1.0", "{}.maybe > 1", "size([{}.list]) > 1"])
def test_an_integer_that_no_double_holds_is_an_error_by_name(value, source):
    scope = {"x": value, "list": [value], "maybe": value}
    environments = {"input": Environment(schemas={"input": SCHEMA}), "state": Environment(state=PROPERTIES)}
    for variable, environment in environments.items():
        expression = compile_expression(source.format(variable), environment)
        with pytest.raises(ExpressionFailed, match="a whole number that no double holds") as caught:
            expression.evaluate({variable: scope})
        assert f"{variable}." in caught.value.message


def test_a_double_as_text_is_as_cel_writes_it_and_in_a_template_as_json_does():
    """Both are in docs/how-to/graphs.md."""
    environment, scope = Environment(schemas={"input": SCHEMA}), {"input": {"x": 1234567}}
    assert compile_expression("string(input.x)", environment).evaluate(scope) == "1.234567e+06"
    assert compile_expression("string(int(input.x))", environment).evaluate(scope) == "1234567"
    assert compile_template("${input.x} km", environment).evaluate(scope) == "1234567 km"


def test_what_a_bare_path_gives_is_what_the_client_wrote():
    template = compile_template(
        {"x": "${input.x}", "text": "${input.x} and ${input.list}"}, Environment(schemas={"input": SCHEMA})
    )
    given = template.evaluate({"input": VALUE})
    assert (given, type(given["x"])) == ({"x": 2, "text": "2 and [2,3]"}, int)


def test_schemas_that_refer_to_each_other_many_times_are_looked_at_once():
    """Twice at each of 60 levels: by way of every reference it would be more than the age of the universe."""
    twice = {
        f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2, "allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2}
        for n in range(60)
    }
    itself = {
        "anyOf": [{"$ref": "#/$defs/itself"}],
        "properties": {"a": {"$ref": "#/$defs/itself"}, "b": {"$ref": "#/$defs/itself"}},
    }
    schema = {
        "$ref": "#/$defs/s0",
        "$defs": {**twice, "s60": {"properties": {"x": NUMBER, "n": {"type": "integer"}}}, "itself": itself},
    }
    expression = compile_expression(
        "input.x * 2.0 + double(size(input.y)) > 0.0", Environment(schemas={"input": schema})
    )
    assert expression.evaluate({"input": {"x": 2, "y": [1]}}) is True
    assert whole_numbers({"n": 2.0}, schema) == {"n": 2}
    around = Environment(schemas={"input": {"$ref": "#/$defs/itself", "$defs": schema["$defs"]}})
    deep: object = 1
    for _ in range(60):
        deep = {"a": deep, "b": 1}
    assert compile_expression("[input].size() == 1 && input.a != null", around).evaluate({"input": deep}) is True
