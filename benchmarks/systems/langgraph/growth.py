"""One thread that grows, and what its length costs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Case, Facts, Place, Timed, growth_facts
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from payloads import Chat

from systems.langgraph.base import config, messages_state, saver_of
from systems.langgraph.talk import agent_loop


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    chat = Chat(place.params)

    async def model(state: Any) -> Any:
        messages = state["messages"]
        text = chat.text(len(messages))
        if chat.tools and messages[-1].type == "human":
            return {"messages": [AIMessage(text, tool_calls=[{"id": "c", "name": "t", "args": {"q": "x"}}])]}
        return {"messages": [AIMessage(text)]}

    async def tool(state: Any) -> Any:
        return {"messages": [ToolMessage(chat.text(len(state["messages"])), tool_call_id="c")]}

    builder = agent_loop(messages_state(place), model, tool)

    async def measured(graph: Any, name: str, thread_id: str) -> Facts:
        where, hot = config(thread_id), []
        before = place.stored_bytes(name)
        for turn in range(chat.turns):
            start = time.perf_counter()
            await graph.ainvoke({"messages": [HumanMessage(chat.text(turn))]}, where)
            hot.append(time.perf_counter() - start)
        size = place.stored_bytes(name) - before
        start = time.perf_counter()
        assert len((await graph.aget_state(where)).values["messages"]) == chat.messages
        load = time.perf_counter() - start
        start = time.perf_counter()
        _ = [state async for state in graph.aget_state_history(where, limit=100)]
        history = time.perf_counter() - start
        points = [point.config async for point in graph.checkpointer.alist(where)]
        start = time.perf_counter()
        again = {"messages": [HumanMessage("again")]}
        await graph.aupdate_state(points[len(points) // 2], again, as_node="__start__")
        fork = time.perf_counter() - start
        return growth_facts(
            hot=hot, size=size, messages=chat.messages, load=load, history=history, states=history, fork=fork
        )

    async def run() -> Facts:
        thread_id = place.thread()
        async with saver_of(place, f"{thread_id}.db") as saver:
            return await measured(builder.compile(checkpointer=saver), f"{thread_id}.db", thread_id)

    yield Timed(run)


CASES: dict[str, Case] = {"growth": growth}
