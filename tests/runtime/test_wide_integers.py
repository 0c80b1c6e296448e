"""Integers of more than 64 bits: the state, the stores and the wire keep them as they are; expressions, which count with 64
bits, refuse them with the place, the rule and the next step.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from graphflow import Context, Graph
from graphflow.checkpoints import codec
from graphflow.errors import AnswerRefused, CodecError, ExpressionFailed
from graphflow.graph.expressions.compiler import compile_expression
from graphflow.graph.expressions.environment import Environment
from graphflow.graph.expressions.templates import compile_template
from graphflow.json_data import MAX_BITS, encode_json
from tests.runtime.conftest import Compile

KEYS = {"n": {"type": "integer"}, "x": {}, "f": {"type": "number"}, "l": {"type": "array"}}
WIDE = [2**63, -(2**63) - 1, 2**64 - 1, 2**64, 2**70, 10**400]


def evaluated(source: str, value: Any) -> Any:
    scope = {"state": {"n": value, "x": value, "f": value, "l": [value]}, "input": {"id": value}}
    return compile_expression(source, Environment(state=KEYS)).evaluate(scope)


@pytest.mark.parametrize("value", WIDE, ids=lambda value: f"{value.bit_length()} bits")
@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("state.n + 1", "state.n"),
        ("state.n > 5", "state.n"),
        ("state.n == 5", "state.n"),
        ("state.x + 1", "state.x"),
        ("state.x > 5", "state.x"),
        ("state.x != null", "state.x"),
        ("string(state.x)", "state.x"),
        ("input.id == 5", "input.id"),
        ("state.l[0] > 3", "state.l[0]"),
        ("state.l.exists(one, one > 3)", "state.l"),
    ],
)
def test_an_expression_names_the_wide_integer_that_it_can_not_count_with(source: str, place: str, value: int) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        evaluated(source, value)
    message = failed.value.message
    assert f"{place}: " in message
    assert "64 bits" in message
    assert message.endswith("keep it as text, or compute with it in a Python node")


def test_an_expression_that_does_not_need_the_integer_does_not_fail_of_it() -> None:
    assert evaluated("size(state.l) == 1 || state.n > 1", 2**70) is True
    assert evaluated("true || state.l.exists(one, one > 1)", 2**70) is True


@pytest.mark.parametrize("value", [*WIDE, math.inf, -math.inf, 1e300], ids=repr)
def test_a_path_gives_any_number_as_it_is(value: Any) -> None:
    assert evaluated("{'all': [state.x]}", value) == {"all": [value]}
    template = compile_template("about ${state.x}", Environment(state=KEYS))
    assert template.evaluate({"state": {"x": value}}) == f"about {value}" if isinstance(value, int) else True


def test_the_largest_integers_of_64_bits_are_counted_with() -> None:
    assert evaluated("state.n > 5", 2**63 - 1) is True
    assert evaluated("state.x + 1", -(2**63)) == -(2**63) + 1


@pytest.mark.parametrize("value", [*WIDE, 1e300, -0.0], ids=repr)
async def test_a_wide_integer_goes_through_every_door_of_a_run_and_back(compile_graph: Compile, value: Any) -> None:
    graph = Graph(KEYS_OF_RUN, input={"type": "object"})

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        kept = await ctx.step("keep", lambda: {"v": ctx.input["x"]}, arguments={"x": ctx.input["x"]})
        return {"x": [ctx.input["x"], kept["v"], await ctx.ask("which?", payload={"x": value})], "log": [value]}

    app = compile_graph(graph)
    waiting = await app.run({"x": value}, "t")
    done = await app.answer("t", {waiting.interrupts[0].id: value})
    assert (done.error, list(done.state.x), list(done.state.log)) == (None, [value] * 3, [value])
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")
    again = (await app.thread("t").state()).values
    assert (list(again["x"]), json.loads(encode_json(again["log"]))) == ([value] * 3, [value])


KEYS_OF_RUN: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {}, "log": {"type": "array", "x-reducer": "append"}},
}


@pytest.mark.parametrize("where", ["a write", "a step", "an answer"])
async def test_an_integer_without_a_decimal_form_is_refused_and_nothing_is_lost(
    compile_graph: Compile, where: str
) -> None:
    endless, graph = 1 << MAX_BITS, Graph(KEYS_OF_RUN)

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        if where == "a step":
            await ctx.step("drawn", lambda: [endless], effects="read")
        return {"x": await ctx.ask("which?") if where == "an answer" else {"deep": [endless]}}

    app = compile_graph(graph)
    done = await app.run({}, "t")
    rule = "it holds an integer of 14,001 bits, and 14,000 are the most: keep it as text or bytes"
    if where == "an answer":
        with pytest.raises(AnswerRefused, match=rule):
            await app.answer("t", {done.interrupts[0].id: endless})
        assert (await app.answer("t", 7)).state.x == 7
    else:
        assert done.error is not None
        assert (done.error["code"], rule in done.error["message"]) == ("not_serializable", True)


def test_the_codec_says_so_of_every_part_of_a_record() -> None:
    for encode in (codec.encode, codec.encode_parts):
        with pytest.raises(CodecError, match="14,000 are the most"):
            encode({"a": [1 << 20_000]})
