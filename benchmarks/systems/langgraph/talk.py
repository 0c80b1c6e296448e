"""Agent loops: built by hand of two nodes, and the prebuilt agents."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Case, Place, Timed, growing
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from payloads import Script, script, tool_result

from systems.langgraph.base import compiled, config, durability, messages_state, saver_of


def agent_loop(state: Any, model: Any, tool: Any) -> StateGraph:
    async def called(state: Any) -> str:
        return "tool" if getattr(state["messages"][-1], "tool_calls", None) else END

    for function in (model, tool, called):
        function.__annotations__ = {}  # their schema is the graph's
    graph = StateGraph(state)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", called, ["tool", END])
    graph.add_edge("tool", "model")
    return graph


def said_at(said: Script, messages: list[Any], **ids: Any) -> AIMessage:
    """What the scripted model answers to these messages."""
    turn = (len(messages) - 1) // 2
    if turn == len(said.calls):
        return AIMessage(said.answer, **ids)
    call = said.calls[turn]
    return AIMessage("", tool_calls=[{"id": call.id, "name": said.tool, "args": {"query": call.query}}], **ids)


@asynccontextmanager
async def react(place: Place) -> AsyncIterator[Timed]:
    said = script(place.params["n"])

    async def model(state: Any) -> Any:
        turn = (len(state["messages"]) - 1) // 2
        if turn == len(said.calls):
            return {"messages": [AIMessage(said.answer)]}
        call = said.calls[turn]
        return {
            "messages": [AIMessage("", tool_calls=[{"id": call.id, "name": said.tool, "args": {"query": call.query}}])]
        }

    async def tool(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        return {
            "messages": [ToolMessage(tool_result(call["args"]["query"]), tool_call_id=call["id"]) for call in calls]
        }

    async with compiled(place, agent_loop(messages_state(place), model, tool)) as graph:

        async def run() -> None:
            out = await graph.ainvoke({"messages": [HumanMessage("hi?")]}, config(place.thread()), **durability(place))
            assert len(out["messages"]) == 2 * len(said.calls) + 2

        yield Timed(run, growing(place, said.content_bytes()))


class Scripted(BaseChatModel):
    """A chat model that says a script, one call a turn."""

    said: Any
    numbers: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        message = said_at(self.said, messages, id=f"said-{next(self.numbers)}")
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return self._generate(messages)


@asynccontextmanager
async def agent(place: Place) -> AsyncIterator[Timed]:
    from langchain_core.tools import tool

    said = script(place.params["n"])

    @tool
    async def search(query: str) -> str:
        """Searches."""
        return tool_result(query)

    model = Scripted(said=said, numbers=itertools.count())
    warnings.simplefilter("ignore")
    async with saver_of(place) as saver:
        if place.has("react"):
            from langgraph.prebuilt import create_react_agent

            graph = create_react_agent(model, [search], checkpointer=saver)
        else:
            from langchain.agents import create_agent

            graph = create_agent(model, [search], checkpointer=saver)

        async def run() -> None:
            out = await graph.ainvoke({"messages": [HumanMessage("hi?")]}, config(place.thread()), **durability(place))
            assert len(out["messages"]) == 2 * len(said.calls) + 2

        yield Timed(run, growing(place, said.content_bytes()))


CASES: dict[str, Case] = {"react": react, "agent": agent}
