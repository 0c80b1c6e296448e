"""What an expression gives is finite, as JSON is; what it computes with may be infinite, as in CEL."""

from __future__ import annotations

import pytest

from graphflow.errors import ExpressionFailed
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.templates import compile_template

NUMBER = {"type": "number"}
ENVIRONMENT = Environment(
    schemas={"input": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER, "big": NUMBER}}},
    state={"a": NUMBER, "b": NUMBER, "big": NUMBER},
)
VALUES = {"a": 1, "b": 0, "big": 1e300, "any": 1e300}
INFINITE = [
    "V.a / V.b", "-V.a / V.b", "V.big * V.big", "V.big * V.big + 1.0", "-V.big * V.big", "double('inf')", "double('-Infinity')",
    "V.a / V.b * 2.0", "-(V.a / V.b)", "V.b > 1.0 ? 0.0 : V.a / V.b", "{'a': [V.a / V.b]}", "[V.a / V.b]", "[1.0].map(x, x / V.b)",
    "[1.0, double('inf')].filter(x, x > 2.0)", "1e308 * 10.0", "{'a': {'b': double('inf')}}.a", "[[double('inf')], [1.0]][0]",
]  # fmt: skip
NOT_A_NUMBER = ["V.b / V.b", "double('nan')", "V.a / V.b - V.a / V.b", "[V.b / V.b]", "V.b * (V.a / V.b)"]
FINITE = [
    "V.a / V.b > 5.0", "V.big * V.big > V.a", "double('nan') != V.a", "[V.a / V.b].exists(x, x > 1.0)", "size([V.a / V.b]) == 1",
    "(V.a / V.b > 1.0 ? 0.0 : V.a / V.b) == 0.0", "string(V.a / V.b) != ''",
]  # fmt: skip


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("variable", ["state", "input"])
@pytest.mark.parametrize("source", INFINITE + NOT_A_NUMBER)
def test_infinity_and_nan_are_a_failure_that_says_why(source: str, variable: str, check: bool) -> None:
    expression = compile_expression(source.replace("V", variable), ENVIRONMENT, check=check)
    with pytest.raises(
        ExpressionFailed, match=r"is (infinite|not a number \(NaN\)), which JSON can't hold: it divides"
    ):
        expression.evaluate({variable: VALUES})


def test_the_failure_names_the_place_in_the_value() -> None:
    expression = compile_expression("dyn({'a': [1.0, input.a / input.b]})", ENVIRONMENT)
    with pytest.raises(ExpressionFailed) as caught:
        expression.evaluate({"input": VALUES})
    assert caught.value.message.endswith(
        "failed: its value at ['a'][1] is infinite, which JSON can't hold: it divides by zero, or is larger than a double can be; "
        "test for that first"
    )


@pytest.mark.parametrize("variable", ["state", "input"])
@pytest.mark.parametrize("source", FINITE)
def test_what_an_expression_computes_with_may_be_infinite(source: str, variable: str) -> None:
    assert compile_expression(source.replace("V", variable), ENVIRONMENT).evaluate({variable: VALUES}) is True


@pytest.mark.parametrize(
    "template", ["${input.a / input.b}", "about ${input.a / input.b}", {"x": ["${input.a / input.b}"]}]
)
def test_a_template_fails_too(template: object) -> None:
    with pytest.raises(ExpressionFailed, match="is infinite"):
        compile_template(template, ENVIRONMENT).evaluate({"input": VALUES})
