"""What a `model` node gives to expressions is what `graphflow schema nodes` and the reference say."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import ToolMessage, load_graph
from graphflow.cli.commands.schema import node_schemas
from graphflow.graph.definition.json_schema import compile_schema
from graphflow.messages import to_wire
from graphflow.models.scripted.model import ScriptedModel

CALL = {"name": "time_now", "arguments": {}}
DESCRIBED = node_schemas()["model"]["out"]


@pytest.mark.parametrize(("turn", "given"), [({"text": "well"}, {}), ({"tool_calls": [CALL]}, {"tools": ["time_now"]})])
async def test_each_field_of_the_output_is_described_and_of_its_type(
    turn: dict[str, Any], given: dict[str, Any]
) -> None:
    keys: dict[str, Any] = {key: {} for key in DESCRIBED["properties"]}
    document: dict[str, Any] = {
        "graphflow": "1", "start": "ask", "tools": ["time_now"],
        "state": {"properties": {f"got_{key.lower()}": {} for key in keys}},
        "nodes": {"ask": {
            "use": "model", "with": {"prompt": "hi", **given}, "set": {f"got_{key.lower()}": f"out.{key}" for key in keys},
            "next": "end",
        }},
    }  # fmt: skip
    result = await load_graph(document, model=ScriptedModel([turn]), settings=False).run({"query": "hi"})
    assert result.error is None
    got = {key: result.state[f"got_{key.lower()}"] for key in keys}
    got |= {"message": to_wire(got["message"]), "messages": [to_wire(message) for message in got["messages"]]}
    got["toolCalls"] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in got["toolCalls"]]
    assert compile_schema(DESCRIBED).errors(got) == []
    assert all(field["description"] for field in DESCRIBED["properties"].values())


async def test_the_message_of_each_result_answers_its_call_in_the_order_of_the_calls() -> None:
    heard: list[ToolMessage] = []

    async def work(state: Any, ctx: Any) -> dict[str, Any]:
        answer = await ctx.call_model("hi", tools=["time_now", "math_eval"])
        results = await ctx.tool.run_all(answer.tool_calls, ctx, parallel=True)
        heard.extend(map(ctx.tool.message, answer.tool_calls, results))
        assert [message.tool_call_id for message in heard] == [call.id for call in answer.tool_calls]
        return {}

    turn = {"tool_calls": [CALL, {"name": "math_eval", "arguments": {"expression": "1 +"}}]}
    document = {"graphflow": "1", "start": "work", "nodes": {"work": {"use": "node:work", "next": "end"}}}
    app = load_graph(document, nodes={"work": work}, model=ScriptedModel([turn]), settings=False)
    result = await app.run({"query": "hi"})
    assert result.error is None
    assert [(message.name, message.error) for message in heard] == [("time_now", False), ("math_eval", True)]
    assert all(message.content and message.whole is None for message in heard)
