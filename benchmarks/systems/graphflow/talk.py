"""Agent loops: built by hand of two nodes, and the mode REACT."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

import msgspec
from harness import Case, Place, Timed, growing
from payloads import Script, script, tool_result

from graphflow import AIMessage, Graph, ToolCall, ToolMessage, load_graph, tool
from graphflow.graph.builder import messages
from graphflow.models.chat_model import Capabilities
from graphflow.models.deltas import Finish, TextDelta, ToolCallDelta
from systems.graphflow.base import UNBOUNDED, compiled, options, store_of


class Talk(TypedDict):
    messages: Annotated[list[Any], messages]
    called: bool


def arguments_of(query: str) -> str:
    return msgspec.json.encode({"query": query}).decode()


def agent_loop(model: Any, tool: Any) -> Graph[Any]:
    graph = Graph(Talk, budget=UNBOUNDED)
    graph.node(model, name="model", next=[{"if": "state.called", "to": "tool"}, {"to": "end"}])
    graph.node(tool, name="tool", next="model")
    return graph


@asynccontextmanager
async def react(place: Place) -> AsyncIterator[Timed]:
    said = script(place.params["n"])

    async def model(state: Any) -> dict[str, Any]:
        turn = (len(state["messages"]) - 1) // 2
        if turn == len(said.calls):
            return {"messages": [AIMessage(content=said.answer)], "called": False}
        call = said.calls[turn]
        made = ToolCall(id=call.id, name=said.tool, arguments=arguments_of(call.query))
        return {"messages": [AIMessage(tool_calls=(made,))], "called": True}

    async def tool(state: Any) -> dict[str, Any]:
        calls = state["messages"][-1].tool_calls
        return {
            "messages": [
                ToolMessage(tool_call_id=call.id, content=tool_result(msgspec.json.decode(call.arguments)["query"]))
                for call in calls
            ]
        }

    chosen = options(place)
    async with compiled(place, agent_loop(model, tool)) as app:

        async def run() -> None:
            result = await app.run("hi?", **chosen)
            assert len(result.state["messages"]) == 2 * len(said.calls) + 2

        async def streamed() -> None:
            async for event in app.stream("hi?", **chosen):
                last = event.type
            assert last == "run.complete"

        yield Timed(streamed if place.has("stream") else run, growing(place, said.content_bytes()))


class Scripted:
    """A `ChatModel` that says a script, one call a turn."""

    provider, model, capabilities = "bench", "scripted", Capabilities()

    def __init__(self, said: Script) -> None:
        self._said = said

    async def stream(self, messages: Any, tools: Any = (), options: Any = None) -> AsyncIterator[Any]:
        turn = (len(messages) - 1) // 2  # two messages a turn, after one or two
        if turn == len(self._said.calls):
            yield TextDelta(self._said.answer)
            yield Finish("stop")
        else:
            call = self._said.calls[turn]
            yield ToolCallDelta(0, call.id, self._said.tool, arguments_of(call.query))
            yield Finish("tool_calls")

    def count_tokens(self, messages: Any) -> int:
        return 1

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def agent(place: Place) -> AsyncIterator[Timed]:
    """Mode REACT with a model that streams and a typed tool."""
    said = script(place.params["n"])

    @tool(effects="read")
    async def search(query: str) -> str:
        """Searches.

        Args:
            query: what for.
        """
        return tool_result(query)

    document = {
        "key": "bench", "mode": "REACT", "tools": ["search"], "budget": {"maxModelCalls": 10_000, "maxToolCalls": 10_000},
        "react": {"systemPrompt": "You are a helpful assistant.", "maxSteps": len(said.calls) + 1},
    }  # fmt: skip
    store = store_of(place)
    app = load_graph(document, checkpointer=store, tools=[search], model=Scripted(said))
    chosen = options(place)

    async def run() -> None:
        result = await app.run("hi?", **chosen)
        assert len(result.state["messages"]) == 2 * len(said.calls) + 2, result.finish_reason

    yield Timed(run, growing(place, said.content_bytes()))
    if store is not None:
        await store.close()


CASES: dict[str, Case] = {"react": react, "agent": agent}
