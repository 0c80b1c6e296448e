"""Where a schema says `number`, an expression gets a double, whatever JSON wrote."""

import pytest

from graphflow.errors import DefinitionError
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment

NUMBER = {"type": "number"}
SCHEMA = {
    "type": "object",
    "properties": {
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
    },
    "$defs": {"point": {"type": "object", "properties": {"x": NUMBER}}},
}
VALUE = {
    "x": 2, "n": 2, "maybe": 2, "either": 2, "both": 2, "optional": {"x": 2}, "list": [2, 3], "pair": [2, 2],
    "rows": [{"price": 2, "n": 2}], "named": {"a": 2},
}  # fmt: skip


@pytest.mark.parametrize("variable", ["input", "answer", "out", "item"])
@pytest.mark.parametrize(
    "source",
    [
        "V.x * 2.0 == 4.0", "V.n * 2 == 4", "V.maybe * 2.0 == 4.0", "V.either * 2.0 == 4.0", "V.both * 2 == 4",
        "V.optional.x * 2.0 == 4.0", "V.list[0] * 2.0 == 4.0", "V.list[V.n - 1] * 2.0 == 6.0", "V.pair[0] * 2 == 4",
        "V.pair[1] * 2.0 == 4.0", "V.rows[0].price * 2.0 == 4.0", "V.rows[0].n * 2 == 4", "V.named['a'] * 2.0 == 4.0",
        "V.list.map(v, v * 2.0) == [4.0, 6.0]", "V.rows.all(row, row.price * 2.0 == 4.0 && row.n * 2 == 4)", "V.x > 1",
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


@pytest.mark.parametrize(
    "source",
    ["input.x * 2", "input.maybe + 2", "input.list[0] * 2", "input.rows[0].price - 2", "input.list.map(v, v * 2)"],
)
def test_arithmetic_with_whole_numbers_is_refused_when_it_is_loaded(source):
    with pytest.raises(DefinitionError) as caught:
        compile_expression(source, Environment(schemas={"input": SCHEMA}))
    assert caught.value.errors[0].hint == "one side is a number with decimals: write 2.0 instead of 2"
