"""LangGraph as its documentation shows it: `StateGraph`, its message classes, `AsyncSqliteSaver` (WAL, `synchronous=FULL`).

Variants: `sync` sets `durability="sync"` (default `async`); `delta` keeps messages in the beta `DeltaChannel`. Routers are
async: LangGraph sends a sync one to a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from harness import Case, Facts, Growing, Place, Timed, growth_facts, latencies, stored_bytes
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from payloads import Chat, script, tool_result
from typing_extensions import TypedDict

PACKAGES = ["langgraph", "langgraph-checkpoint-sqlite", "langchain-core"]


class Counter(TypedDict):
    n: int


async def add_one(state: Counter) -> dict[str, int]:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def compiled(place: Place, graph: StateGraph) -> AsyncIterator[Any]:
    if not place.store:
        yield graph.compile()
        return
    async with AsyncSqliteSaver.from_conn_string(place.database()) as saver:
        await saver.setup()
        yield graph.compile(checkpointer=saver)


def config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": 10**9}


def durability(place: Place) -> dict[str, Any]:
    return {"durability": "sync"} if place.store and place.variant == "sync" else {}


def counting(build: Any) -> Case:
    @asynccontextmanager
    async def case(place: Place) -> AsyncIterator[Timed]:
        n = place.params["n"]
        async with compiled(place, build(n)) as graph:

            async def run() -> None:
                out = await graph.ainvoke({"n": 0}, config(place.thread()), **durability(place))
                assert out["n"] == n, out

            yield Timed(run)

    return case


def chain(n: int) -> StateGraph:
    graph = StateGraph(Counter)
    before = START
    for i in range(n):
        graph.add_node(f"n{i}", add_one)
        graph.add_edge(before, f"n{i}")
        before = f"n{i}"
    graph.add_edge(before, END)
    return graph


def loop(n: int) -> StateGraph:
    async def again(state: Counter) -> str:
        return "work" if state["n"] < n else END

    graph = StateGraph(Counter)
    graph.add_node("work", add_one)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", again, ["work", END])
    return graph


def route(n: int) -> StateGraph:
    names = ["a", "b", "c"]

    async def choose(state: Counter) -> str:
        return names[state["n"] % 3] if state["n"] < n else END

    graph = StateGraph(Counter)
    for name in names:
        graph.add_node(name, add_one)
        graph.add_conditional_edges(name, choose, [*names, END])
    graph.add_edge(START, "a")
    return graph


# --- messages ----------------------------------------------------------------------------------------


def messages_state(variant: str) -> Any:
    if variant != "delta":
        return MessagesState
    from langgraph.channels import DeltaChannel
    from langgraph.graph.message import _messages_delta_reducer

    return TypedDict("DeltaMessages", {"messages": Annotated[list, DeltaChannel(_messages_delta_reducer)]})


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

    async with compiled(place, agent_loop(messages_state(place.variant), model, tool)) as graph:

        async def run() -> None:
            out = await graph.ainvoke({"messages": [HumanMessage("hi?")]}, config(place.thread()), **durability(place))
            assert len(out["messages"]) == 2 * len(said.calls) + 2

        yield Timed(run, Growing(place.database(), said.content_bytes()) if place.store else None)


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

    async with compiled(place, agent_loop(messages_state(place.variant), model, tool)) as graph:

        async def run() -> Facts:
            where, hot = config(place.thread()), []
            for turn in range(chat.turns):
                start = time.perf_counter()
                await graph.ainvoke({"messages": [HumanMessage(chat.text(turn))]}, where)
                hot.append(time.perf_counter() - start)
            size = stored_bytes(place.database())
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
            return growth_facts(hot=hot, size=size, messages=chat.messages, load=load, history=history, fork=fork)

        yield Timed(run)


# --- streams and questions ---------------------------------------------------------------------------


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    async def emit(state: Counter) -> dict[str, int]:
        write = get_stream_writer()
        for _ in range(place.params["n"]):
            await asyncio.sleep(0)
            write({"at": time.perf_counter()})
        return {"n": 1}

    graph = StateGraph(Counter)
    graph.add_node("emit", emit)
    graph.add_edge(START, "emit")
    app = graph.compile()

    async def run() -> Facts:
        seen = [time.perf_counter() - event["at"] async for event in app.astream({"n": 0}, stream_mode="custom")]
        assert len(seen) == place.params["n"]
        return latencies(seen)

    yield Timed(run)


def question() -> StateGraph:
    async def ask(state: Counter) -> dict[str, int]:
        return {"n": state["n"] + interrupt({"question": "how many?"})}

    graph = StateGraph(Counter)
    graph.add_node("before", add_one)
    graph.add_node("ask", ask)
    graph.add_edge(START, "before")
    graph.add_edge("before", "ask")
    return graph


async def until_question(graph: Any, thread_id: str) -> None:
    assert "__interrupt__" in await graph.ainvoke({"n": 0}, config(thread_id))


async def answer(graph: Any, thread_id: str) -> None:
    assert (await graph.ainvoke(Command(resume=41), config(thread_id)))["n"] == 42


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as graph:

        async def run() -> Facts:
            thread_id, start = place.thread(), time.perf_counter()
            await until_question(graph, thread_id)
            paused = time.perf_counter()
            await answer(graph, thread_id)
            return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

        yield Timed(run)


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as graph:
        yield Timed(lambda: until_question(graph, "cold") if place.phase == "pause" else answer(graph, "cold"))


CASES: dict[str, Case] = {
    "chain": counting(chain), "loop": counting(loop), "route": counting(route), "react": react, "growth": growth,
    "stream": stream, "pause": pause, "cold": cold,
}  # fmt: skip
