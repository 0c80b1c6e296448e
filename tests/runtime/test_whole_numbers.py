"""`2.0` where an integer is declared: JSON Schema counts it as one, so each door takes it, and behind each it is `2`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from graphflow import Context, Graph, append, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.graph.definition.json_schema import compile_schema
from graphflow.graph.definition.whole_numbers import whole_numbers
from graphflow.models.scripted.model import ScriptedModel
from graphflow.tools.port import Tool
from tests.runtime.conftest import Compile

NUMBER = {"type": "integer"}
FORM = {"type": "object", "properties": {"k": NUMBER}, "required": ["k"]}


class Point(msgspec.Struct):
    x: int
    weight: float = 1.0


@dataclass
class Data:
    n: int = 0
    maybe: int | None = None
    items: list[int] = field(default_factory=list)
    by_name: dict[str, int] = field(default_factory=dict)
    one_of: Literal[1, 2] = 1
    log: Annotated[list[int], append] = field(default_factory=list)
    point: Point | None = None


class Model(BaseModel):
    n: int = 0
    maybe: int | None = None
    items: list[int] = []
    by_name: dict[str, int] = {}
    one_of: Literal[1, 2] = 1
    log: Annotated[list[int], append] = []


def halved(old: int, new: int) -> float:
    return new / 2


class Halved(TypedDict):
    n: int
    half: Annotated[int, halved]


class Typed(TypedDict):
    n: int
    maybe: int | None
    items: list[int]
    by_name: dict[str, int]
    log: Annotated[list[int], append]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "default": 7.0},
        "maybe": {"type": ["integer", "null"]},
        "items": {"type": "array", "items": NUMBER},
        "by_name": {"type": "object", "x-reducer": "merge", "additionalProperties": NUMBER},
        "sum": {"type": "integer", "x-reducer": "sum", "default": 0},
        "most": {"type": "integer", "x-reducer": "max", "default": 0},
        "log": {"type": "array", "items": NUMBER, "x-reducer": "append"},
        "deep": {"$ref": "#/$defs/deep", "$defs": {"deep": {"allOf": [{"properties": {"a": NUMBER}}]}}},
    },
}
WRITES: list[tuple[str, Any, Any]] = [
    ("n", 2.0, 2),
    ("n", -0.0, 0),
    ("maybe", 2.0, 2),
    ("items", [1, 2.0], [1, 2]),
    ("by_name", {"a": 2.0}, {"a": 2}),
    ("log", [2.0, 3], [2, 3]),
    ("one_of", 2.0, 2),
    ("sum", 2.0, 2),
    ("most", 2.0, 2),
    ("deep", {"a": 2.0, "b": 2.0}, {"a": 2, "b": 2.0}),
    ("point", {"x": 2.0, "weight": 2.0}, {"x": 2, "weight": 2.0}),
]


def same(a: Any, b: Any) -> bool:
    """Equal, with numbers of one kind: `json` writes `2.0` and `2` as they are."""
    return json.dumps(msgspec.to_builtins(a, enc_hook=list)) == json.dumps(b)


def writes() -> list[Any]:
    """Each write to each form of state that has its key."""
    forms = {"dataclass": Data, "pydantic": Model, "TypedDict": Typed, "schema": SCHEMA}
    keys = {
        name: form["properties"] if isinstance(form, dict) else form.__annotations__ for name, form in forms.items()
    }
    return [
        pytest.param(form, *write, id=f"{name}-{write[0]}-{write[1]}")
        for name, form in forms.items()
        for write in WRITES
        if write[0] in keys[name]
    ]


@pytest.mark.parametrize(("declared", "key", "written", "kept"), writes())
async def test_a_whole_number_written_to_an_integer_key_is_an_integer(
    declared: Any, key: str, written: Any, kept: Any
) -> None:
    graph = Graph(declared)

    @graph.node
    async def write(state: Any) -> dict[str, Any]:
        return {key: written}

    done = await graph.compile().run({})
    assert done.error is None
    assert same(done.state[key], kept)


async def test_a_default_a_reducers_result_and_an_edit_of_an_integer_key_are_integers(compile_graph: Compile) -> None:
    graph = Graph(Halved, budget={"maxSteps": 3})

    @graph.node(next=[{"if": "state.n + state.half == 3", "to": "end"}, {"to": "write"}])
    async def write(state: Any) -> dict[str, Any]:
        assert type(state.n) is int
        return {"half": 6}

    app = compile_graph(graph)
    done = await app.run({}, "t")
    assert (done.status, type(done.state.half)) == ("completed", int)
    await app.thread("t").edit({"n": 3.0})
    assert type((await app.thread("t").state()).values["n"]) is int


@pytest.mark.parametrize("written", [2.5, float("inf"), float("nan"), "2", True])
async def test_what_is_no_whole_number_is_refused_as_before(compile_graph: Compile, written: Any) -> None:
    graph = Graph(Data)

    @graph.node
    async def write(state: Any) -> dict[str, Any]:
        return {"n": written}

    done = await compile_graph(graph).run({}, "t")
    assert done.error is not None
    assert done.error["code"] == "state_error"


async def test_the_input_and_the_answer_of_a_document_reach_its_integer_keys(store: Checkpointer) -> None:
    app = load_graph(
        {
            "graphflow": "1",
            "input": {
                "properties": {"n": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}},
                "$defs": {"n": NUMBER},
            },
            "state": {"properties": {"n": NUMBER, "k": NUMBER}},
            "budget": {"maxSteps": 3},
            "start": "asked",
            "nodes": {
                "asked": {
                    "ask": {"message": "'how many?'", "schema": FORM},
                    "set": {"n": "input.n", "k": "answer.k"},
                    "next": [{"if": "state.n + state.k == 5", "to": "end"}, {"to": "asked"}],
                }
            },
        },
        checkpointer=store,
    )
    assert (await app.run({"n": 2.0}, "t")).status == "waiting"
    done = await app.answer("t", {"k": 3.0})
    assert (done.status, same(done.state, {"n": 2, "k": 3})) == ("completed", True)


async def test_the_answer_of_a_question_and_of_a_model_are_integers_for_the_node(compile_graph: Compile) -> None:
    got: list[Any] = []
    graph = Graph(Data)

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        got.append(await ctx.ask("how many?", schema=NUMBER))
        got.append((await ctx.call_model("how many?", schema=FORM))["k"])
        return {"n": got[0] + got[1]}

    app = compile_graph(graph, model=ScriptedModel({"turns": [{"text": '{"k": 3.0}'}]}))
    await app.run({}, "t")
    done = await app.answer("t", 2.0)
    assert (done.error, [(number, type(number)) for number in got]) == (None, [(2, int), (3, int)])
    assert type(done.state.n) is int


@tool
def typed(k: int) -> str:
    """Takes a number."""
    return repr(k)


@tool(parameters=FORM)
def described(k: Any) -> str:
    """Takes what its schema says."""
    return repr(k)


@pytest.mark.parametrize("called", [typed, described], ids=["signature", "schema"])
def test_a_tool_gets_the_integer_that_its_parameters_ask_for(called: Tool) -> None:
    assert same(called.prepare({"k": 2.0}), {"k": 2})


schemas = st.recursive(
    st.sampled_from([True, {}, NUMBER, {"type": "number"}, {"type": ["integer", "null"]}, {"enum": [1, 2]}]),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.fixed_dictionaries({"a": inner}), "additionalProperties": inner}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"prefixItems": st.lists(inner, min_size=1, max_size=2), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=5,
)
values = st.recursive(
    st.sampled_from([None, 1, 1.0, 2.0, 2.5, "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


referring = st.fixed_dictionaries({"$ref": st.just("#/$defs/x"), "$defs": st.fixed_dictionaries({"x": schemas})})


@given(schemas | referring, values)
def test_taking_a_value_changes_no_number_and_leaves_it_as_right_as_it_was(schema: Any, value: Any) -> None:
    checker = compile_schema(schema)
    taken = whole_numbers(value, schema)
    assert taken == value
    assert [issue.pointer for issue in checker.errors(taken)] == [issue.pointer for issue in checker.errors(value)]
    if schema == NUMBER and value == 2:
        assert type(taken) is int
