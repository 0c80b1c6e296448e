"""A whole number where a schema says `number` is a double in the expressions of a run, from every door."""

from __future__ import annotations

from typing import Any

import graphflow
from graphflow.checkpoints.checkpointer import Checkpointer

NUMBER = {"type": "number"}


async def test_a_run_computes_with_whole_numbers_of_its_input_its_items_and_an_answer(store: Checkpointer) -> None:
    document: dict[str, Any] = {
        "graphflow": "1",
        "input": {"type": "object", "properties": {"x": NUMBER, "xs": {"type": "array", "items": NUMBER}}},
        "state": {
            "properties": {"g": NUMBER, "h": NUMBER, "log": {"type": "array", "x-reducer": "append", "default": []}}
        },
        "start": "spread",
        "nodes": {
            "spread": {"map": "input.xs", "as": "item", "do": "each", "set": {"h": "out[0].out * 2.0"}, "next": "ask"},
            "each": {"ask": {"message": "'?'", "schema": NUMBER}, "set": {"log": "[item * 2.0]"}},
            "ask": {"ask": {"message": "'?'", "schema": NUMBER}, "set": {"g": "answer * input.x * 2.0"}},
        },
    }
    app = graphflow.load_graph(document, checkpointer=store)
    done = await app.run({"x": 2, "xs": [3]}, "t")
    for _ in range(2):
        assert done.status == "waiting"
        done = await app.answer("t", 5)
    assert (done.error, dict(done.state)) == (None, {"g": 20.0, "h": 10.0, "log": [6.0]})


async def test_references_in_the_schemas_of_answers_and_state_keys_are_followed_from_where_they_stand() -> None:
    point = {"$ref": "#/$defs/point", "$defs": {"point": {"type": "object", "properties": {"x": NUMBER}}}}
    document: dict[str, Any] = {
        "graphflow": "1",
        "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "state": {
            "$defs": {"point": {"type": "object", "properties": {"x": NUMBER}}},
            "properties": {
                "kept": {"$ref": "#/$defs/point"},
                "log": {"type": "array", "items": {"$ref": "#/$defs/point"}, "x-reducer": "append", "default": []},
                "sum": NUMBER,
            },
        },
        "start": "spread",
        "nodes": {
            "spread": {
                "map": "[1]", "as": "item", "do": "each", "next": "after",
                "set": {"kept": "out[0].out", "log": "[out[0].out]", "sum": "out[0].out.x * 0.5"},
            },
            "each": {"ask": {"message": "'?'", "schema": point}},
            "after": {"ask": {"message": "'?'"}, "set": {"sum": "state.sum + state.kept.x * 2.0 + state.log[0].x"}},
        },
        "result": "state.sum / double(input.n)",
    }  # fmt: skip
    app = graphflow.load_graph(document, checkpointer=graphflow.MemoryCheckpointer())
    await app.run({"n": 2}, "t")
    await app.answer("t", {"x": 4})
    done = await app.answer("t", {})
    assert (done.error, done.output) == (None, 7.0)
