"""The input of a subgraph is checked by its schema as a run's own is, however the subgraph is opened (E9)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Graph, MemoryCheckpointer, load_graph
from graphflow.errors import GraphflowError

INNER: dict[str, Any] = {
    "graphflow": "1",
    "input": {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "more": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["n"],
    },
    "state": {"properties": {"n": {}}},
    "start": "keep",
    "nodes": {"keep": {"use": "fn:same", "with": {"n": "${input.n}"}, "set": {"n": "out"}}},
    "result": "state.n",
}  # fmt: skip
GIVEN = {"n": "${input.n}", "more": "${input.more}"}
FORMS: dict[str, dict[str, Any]] = {
    "graph": {"graph": INNER, "with": GIVEN, "set": {"out": "out"}},
    "map": {"map": "[1]", "as": "item", "do": {"graph": INNER}, "with": GIVEN, "set": {"out": "out[0].out"}},
    "map of its own": {"map": "[1]", "as": "item", "do": {"graph": INNER, "with": GIVEN}, "set": {"out": "out[0].out"}},
    "parallel": {"parallel": {"a": {"do": {"graph": INNER, "with": GIVEN}}}, "set": {"out": "out.a.out"}},
    "parallel of one": {"parallel": {"a": {"do": {"graph": INNER}}}, "with": GIVEN, "set": {"out": "out.a.out"}},
    "below": {
        "graph": {
            "graphflow": "1",
            "input": {"type": "object"},
            "state": {"properties": {"out": {}}},
            "start": "sub",
            "nodes": {"sub": {"graph": INNER, "with": GIVEN, "set": {"out": "out"}}},
            "result": "state.out",
        },
        "with": {"n": "${input.n}", "more": "${input.more}"},
        "set": {"out": "out"},
    },
}  # fmt: skip


def same(n: Any) -> Any:
    return n


def around(node: dict[str, Any], **keys: Any) -> Any:
    document = {
        "graphflow": "1",
        "input": {"type": "object"},
        "state": {"properties": {"out": {}, "code": {}}},
        "start": "sub",
        "nodes": {"sub": node},
        **keys,
    }
    return load_graph(document, functions={"same": same}, checkpointer=MemoryCheckpointer())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("given", "place", "why"),
    [
        ({"n": "x", "more": None}, "/n", "'x'"),
        ({"n": 0, "more": None}, "/n", "0"),
        ({"n": 2.5, "more": None}, "/n", "2.5"),
        ({"n": 1, "more": 7}, "/more", "7"),
    ],
)
async def test_an_input_that_does_not_fit_fails_the_node_with_place_value_and_rule(
    form: str, given: Any, place: str, why: str
) -> None:
    done = await around(FORMS[form]).run(given, "t")
    assert done.status == "failed"
    assert done.error["code"] == "validation"
    assert f"does not fit the input schema of its graph: {place}: " in done.error["message"]
    assert why in done.error["message"]
    assert done.error["detail"]["errors"][0]["pointer"] == place


@pytest.mark.parametrize("form", FORMS)
async def test_a_whole_number_is_one_in_a_subgraph_too(form: str) -> None:
    done = await around(FORMS[form]).run({"n": 2.0, "more": None}, "t")
    assert (done.error, done.state["out"], type(done.state["out"])) == (None, 2, int)


async def test_an_error_route_may_take_it_and_a_join_may_collect_it() -> None:
    nodes = {
        "sub": {**FORMS["graph"], "error": [{"on": ["validation"], "to": "note"}]},
        "note": {"use": "fn:same", "with": {"n": "${error.code}"}, "set": {"code": "out"}},
    }
    done = await around({}, nodes=nodes).run({"n": "x", "more": None}, "t")
    assert (done.status, done.state["code"]) == ("completed", "validation")
    node = {
        **FORMS["map"],
        "map": "['x', 3.0]",
        "with": {"n": "${item}"},
        "join": {"onError": "collect"},
        "set": {"out": "out"},
    }
    done = await around(node).run({}, "t")
    first, second = done.state["out"]
    assert (first["status"], first["error"]["code"], second["out"]) == ("failed", "validation", 3)


async def test_without_a_schema_of_its_own_a_subgraph_takes_what_a_run_takes() -> None:
    """Such a graph has the default input, whose `query` is a text."""
    plain = {name: part for name, part in INNER.items() if name != "input"}
    node = {"graph": plain, "with": {"n": "${input.n}", "query": "${input.query}"}, "set": {"out": "out"}}
    assert (await around(node).run({"n": [1.0], "query": "hi"}, "t")).state["out"] == [1.0]
    done = await around(node).run({"n": 1, "query": 5}, "t2")
    assert "/query: expected text, not 5" in done.error["message"]
    with pytest.raises(GraphflowError, match="/query: expected text, not 5"):
        await load_graph(plain, functions={"same": same}).run({"n": 1, "query": 5})


async def test_messages_are_the_objects_that_a_schema_sees_on_the_wire() -> None:
    inner = {
        **INNER,
        "input": {
            "type": "object",
            "properties": {
                "n": {"type": "array", "items": {"type": "object", "properties": {"content": {"type": "string"}}}, "minItems": 1}
            },
        },
        "result": "size(state.n)",
    }  # fmt: skip
    graph = Graph({"properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}, "out": {}}})
    graph.subgraph("sub", inner, with_={"n": "${state.messages}"}, set={"out": "out"}, next="end")
    graph._own.functions["same"] = same
    done = await graph.compile(checkpointer=MemoryCheckpointer()).run({"query": "hi"}, "t")
    assert (done.error, done.state["out"]) == (None, 1)
