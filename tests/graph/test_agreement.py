"""What a question's answer or a node's output is declared as is compared with the state key that takes it, when a graph is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import MemoryCheckpointer, load_graph
from graphflow.errors import DefinitionError

INTEGER, TEXT, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}
FORM = {"type": "object", "properties": {"a": TEXT, "b": {"type": "array", "items": TEXT}}, "required": ["a"]}


def listed(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def document(schema: Any, key: Any, source: str) -> dict[str, Any]:
    asked = {"ask": {"message": "Well?", "schema": schema}, "set": {"k": source}, "next": "end"}
    return {"graphflow": "1", "state": {"properties": {"k": key}}, "start": "asked", "nodes": {"asked": asked}}


WRONG: list[tuple[Any, Any, str, str]] = [
    ({"type": ["string", "null"]}, INTEGER, "answer", "it is null or text, not a whole number"),
    (FORM, fields(a=INTEGER), "answer", "its a is text, not a whole number"),
    (FORM, fields(b=listed(INTEGER)), "answer", "its b[] is text, not a whole number"),
    (FORM, {"type": "object", "additionalProperties": INTEGER}, "answer", "its a is text"),
    (FORM, {**fields(b={}), "additionalProperties": False}, "answer", "has 'a', which is not allowed there"),
    ({**FORM, "additionalProperties": False}, {**fields(), "required": ["c"]}, "answer", "has no 'c'"),
    (listed(TEXT), listed(INTEGER), "answer", "its [] is text"),
    (TEXT, {**listed(INTEGER), "x-reducer": "append"}, "[answer]", "its [0] is text"),
    (TEXT, {**listed(INTEGER), "x-reducer": "union"}, "[1, answer]", "its [1] is text"),
    (TEXT, {"type": "object", "additionalProperties": INTEGER, "x-reducer": "merge"}, "{'x': answer}", "its x is text"),
    (TEXT, fields(x=fields(y=INTEGER)), "{'x': {'y': answer}}", "its x.y is text"),
    ({"enum": ["a", "b"]}, {"type": "string", "enum": ["c"]}, "answer", "it is 'a' or 'b', not 'c'"),
    ({"enum": ["a", "b"]}, INTEGER, "answer", "it is 'a' or 'b', not a whole number"),
    ({"const": 1}, TEXT, "answer", "it is 1, not text"),
    ({"$ref": "#/$defs/t", "$defs": {"t": TEXT}}, INTEGER, "answer", "it is text"),
    ({"anyOf": [TEXT, {"type": "boolean"}]}, INTEGER, "answer", "it is true or false or text"),
    (TEXT, {"type": "string", "enum": ["a"]}, "'x'", "it is 'x', not 'a'"),
    (TEXT, INTEGER, "visits.asked > 1 ? answer : 1", "it is text"),
]
RIGHT: list[tuple[Any, Any, str]] = [
    (INTEGER, INTEGER, "answer"),
    (INTEGER, NUMBER, "answer"),
    ({"type": ["string", "null"]}, TEXT, "answer"),
    (FORM, fields(a=TEXT, c=INTEGER), "answer"),
    (FORM, {"type": "object"}, "answer"),
    ({}, INTEGER, "answer"),
    ({"type": "object"}, fields(a=INTEGER), "answer"),
    (fields(a=TEXT), {**fields(b={}), "additionalProperties": False}, "answer"),
    (FORM, {**fields(), "required": ["c"]}, "answer"),
    ({"enum": ["a", "b"]}, {"enum": ["b"]}, "answer"),
    ({"enum": [1, 2]}, {"enum": [2.0]}, "answer"),
    (TEXT, {**listed(TEXT), "x-reducer": "append"}, "[answer]"),
    (TEXT, {**fields(a=TEXT, b=TEXT), "required": ["b"], "x-reducer": "merge"}, "{'a': answer}"),
    ({"anyOf": [TEXT, INTEGER]}, INTEGER, "answer"),
    (fields(a=NUMBER), fields(a=INTEGER), "answer"),
    (TEXT, fields(a=INTEGER), "{'a': 4.0}"),
    (fields(a={"$ref": "#"}), fields(a=fields(a=INTEGER)), "answer"),
]


@pytest.mark.parametrize(("schema", "key", "source", "why"), WRONG)
def test_an_answer_that_can_never_fit_its_key_is_an_error_at_load(schema: Any, key: Any, source: str, why: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load_graph(document(schema, key, source))
    (issue,) = refused.value.errors
    assert (issue.pointer, why in issue.message) == ("/nodes/asked/set/k", True)


@pytest.mark.parametrize(("schema", "key", "source"), RIGHT)
async def test_what_may_fit_is_left_to_the_run(schema: Any, key: Any, source: str) -> None:
    waiting = await load_graph(document(schema, key, source), checkpointer=MemoryCheckpointer()).run()
    assert (waiting.status, [asked.node for asked in waiting.interrupts]) == ("waiting", ["asked"])


def test_the_output_of_a_node_is_compared_too() -> None:
    sleep = {"use": "tool:time_now", "set": {"k": "{'said': out.text}"}, "next": "end"}
    state = {"properties": {"k": fields(said=INTEGER)}}
    with pytest.raises(DefinitionError, match=r"its said is text, not a whole number"):
        load_graph({"graphflow": "1", "state": state, "start": "now", "nodes": {"now": sleep}})
