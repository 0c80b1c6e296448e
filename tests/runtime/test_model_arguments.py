"""What code gives a model is refused before the call where it is no message, in words that name the place."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from graphflow import AIMessage, Context, Graph, HumanMessage, MemoryCheckpointer, ToolCall, ToolResult
from graphflow.models.options import ChatOptions
from graphflow.testing import ScriptedModel

wrong: Any = HumanMessage
WRONG = [
    (3, "messages=3"),
    (None, "messages=None"),
    (b"x", "messages=b'x'"),
    ({"role": "user", "content": "x"}, "messages={"),
    ([], "no messages"),
    (["a"], "messages[0]: 'a' is no message"),
    ([HumanMessage(content="hi"), ToolResult(text="x")], "messages[1]: "),
    ([wrong(content=3)], "messages[0]: the content of HumanMessage must be text"),
    ([AIMessage(tool_calls=[3])], "messages[0]: tool_calls of AIMessage"),  # type: ignore[arg-type]
    ([AIMessage(tool_calls=(ToolCall(id=3, name="f"),))], "messages[0]: tool_calls of AIMessage"),  # type: ignore[arg-type]
    ([{"role": "nobody"}], "messages[0]: a message has role 'nobody'"),
]


async def failure_of(use: Any) -> dict[str, Any]:
    """The error of a run whose node does this with its context."""
    graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})

    @graph.node(next="end")
    async def a(state: Any, ctx: Context) -> dict[str, int]:
        await use(ctx)
        return {"n": 1}

    app = graph.compile(checkpointer=MemoryCheckpointer(), model=ScriptedModel([{"text": "hi"}]))
    error = (await app.run({"query": "q"})).error
    assert error is not None
    return error


@pytest.mark.parametrize(("messages", "said"), WRONG)
async def test_what_is_no_message_is_named_with_its_place(messages: Any, said: str) -> None:
    async def streamed(ctx: Context) -> None:
        async with aclosing(ctx.open_model().stream(messages)) as deltas:
            async for _ in deltas:
                pass

    for use, call in ((lambda ctx: ctx.call_model(messages), "ctx.call_model"), (streamed, "model.stream")):
        error = await failure_of(use)
        assert error["code"] == "validation", error
        assert f"node 'a' calls {call} with {said}" in error["message"]
        assert "give a text, or a list of messages such as" in error["message"]


async def test_tools_and_options_of_another_kind_are_refused() -> None:
    tools: Any = None
    error = await failure_of(lambda ctx: ctx.call_model("hi", tools=tools))
    assert "call_model() got tools=None" in error["message"]

    async def streamed(ctx: Context) -> None:
        options: Any = {"temperature": 1}
        async for _ in ctx.open_model().stream([HumanMessage(content="hi")], (), options):
            pass

    assert "give ChatOptions(temperature=…)" in (await failure_of(streamed))["message"]
    limits: Any = {"x": 1}
    with pytest.raises(ValueError, match="limits is .*; it is CallLimits"):
        ChatOptions(limits=limits)
