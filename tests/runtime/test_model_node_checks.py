"""What is wrong with a model node's schema and tool choice is an error of the file, not of a run."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import DefinitionError, MemoryCheckpointer, load_graph, tool
from graphflow.testing import ScriptedModel


@tool(effects="read")
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def loaded(**given: Any) -> Any:
    document = {
        "graphflow": "1",
        "start": "m",
        "state": {"type": "object", "properties": {"s": {"type": "object", "default": {}}}},
        "nodes": {"m": {"use": "model", "with": {"prompt": "hi", **given}, "next": "end"}},
    }
    return load_graph(document, tools=[add], checkpointer=MemoryCheckpointer(), model=ScriptedModel([{"text": "hi"}]))


@pytest.mark.parametrize(
    ("given", "pointer", "message"),
    [
        ({"schema": {"type": "strin"}}, "/schema/type", "'strin' is not a JSON type"),
        ({"schema": {"properties": 3}}, "/schema/properties", "expected an object"),
        ({"schema": {"$ref": "#/nope"}}, "/schema", "'/nope' does not exist"),
        ({"schema": {"type": "object", "properties": {"a": {"type": "inte"}}}}, "/schema/properties/a/type", "'inte'"),
        ({"toolChoice": "nope", "tools": ["add"]}, "/toolChoice", "the tool 'nope' is not offered by this node"),
        ({"toolChoice": "addd", "tools": ["add"]}, "/toolChoice", "did you mean 'add'"),
        ({"toolChoice": "add"}, "/toolChoice", "is not offered"),
    ],
)
def test_an_error_of_a_model_node_is_reported_when_it_is_loaded(given: Any, pointer: str, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(**given)
    (issue,) = refused.value.errors
    assert issue.pointer == f"/nodes/m/with{pointer}"
    assert message in f"{issue.message} {issue.hint}"


@pytest.mark.parametrize(
    "given",
    [
        {"schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}}},
        {"schema": "${state.s}"},
        {"toolChoice": "add", "tools": ["add"]},
        {"toolChoice": "required", "tools": ["add"]},
        {"toolChoice": "${state.s.a}", "tools": ["add"]},
        {"toolChoice": "add", "tools": "${state.s.tools}"},
    ],
)
def test_what_is_right_or_known_only_in_a_run_is_loaded(given: Any) -> None:
    assert loaded(**given).thread("t").id == "t"


@pytest.mark.parametrize(("kept", "result"), [(True, "hi"), (False, {"s": {}})])
def test_without_a_result_the_output_is_the_last_answer_in_messages_else_the_state(kept: bool, result: Any) -> None:
    properties: dict[str, Any] = {"s": {"type": "object", "default": {}}}
    node: dict[str, Any] = {"use": "model", "with": {"prompt": "hi"}, "next": "end"}
    if kept:
        properties["messages"] = {"type": "array", "x-reducer": "messages", "default": []}
        node["set"] = {"messages": "out.messages"}
    document = {
        "graphflow": "1",
        "start": "m",
        "state": {"type": "object", "properties": properties},
        "nodes": {"m": node},
    }
    app = load_graph(document, checkpointer=MemoryCheckpointer(), model=ScriptedModel([{"text": "hi"}]))
    assert app.run_sync("x").output == result
