"""Streams: `custom` at full speed and paced, `messages` from a chat model, and `custom` to a consumer that is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Arrivals, Case, Facts, Pace, Place, Timed
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from systems.langgraph.base import Counter


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    n, runs = place.params["n"], place.params.get("runs", 1)

    async def emit(state: Counter) -> dict[str, int]:
        write, pace = get_stream_writer(), Pace(place.params.get("gap", 0.0))
        for _ in range(n):
            await asyncio.sleep(pace.pause())
            write({"at": time.perf_counter()})
        return {"n": 1}

    graph = StateGraph(Counter)
    graph.add_node("emit", emit)
    graph.add_edge(START, "emit")
    app = graph.compile()

    async def one(arrivals: Arrivals) -> None:
        async for event in app.astream({"n": 0}, stream_mode="custom"):
            arrivals.seen(event["at"])
        arrivals.ended()

    async def run() -> Facts:
        arrivals = Arrivals()
        await (one(arrivals) if runs == 1 else asyncio.gather(*(one(arrivals) for _ in range(runs))))
        return arrivals.facts(n * runs)

    if runs > 1:
        await one(Arrivals())  # what is loaded once is no cost of a run
    yield Timed(run)


class Talkative(BaseChatModel):
    """A chat model that streams n chunks and notes when."""

    chunks: int
    sent: Any

    @property
    def _llm_type(self) -> str:
        return "talkative"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("tok"))])

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        for _ in range(self.chunks):
            await asyncio.sleep(0)
            chunk = ChatGenerationChunk(message=AIMessageChunk(content="tok "))
            self.sent.append(time.perf_counter())
            if run_manager:
                await run_manager.on_llm_new_token("tok ", chunk=chunk)
            yield chunk


@asynccontextmanager
async def model_stream(place: Place) -> AsyncIterator[Timed]:
    model = Talkative(chunks=place.params["n"], sent=[])

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("call", call)
    graph.add_edge(START, "call")
    app = graph.compile()

    async def run() -> Facts:
        model.sent.clear()
        arrivals = Arrivals()
        async for chunk, _ in app.astream({"messages": [HumanMessage("hi")]}, stream_mode="messages"):
            if chunk.content == "tok ":
                arrivals.seen(model.sent[len(arrivals.delays)])
        arrivals.ended()
        return arrivals.facts(model.chunks)

    yield Timed(run)


@asynccontextmanager
async def slow(place: Place) -> AsyncIterator[Timed]:
    n, turns = place.params["n"], place.params["turns"]
    sent = 0

    async def emit(state: Counter) -> dict[str, int]:
        nonlocal sent
        write = get_stream_writer()
        for number in range(n):
            sent += 1
            write(f"{number:5d} ")
            await asyncio.sleep(0)
        return {"n": 1}

    graph = StateGraph(Counter)
    graph.add_node("emit", emit)
    graph.add_edge(START, "emit")
    app = graph.compile()

    async def run() -> Facts:
        nonlocal sent
        sent = seen = ahead = 0
        async for _ in app.astream({"n": 0}, stream_mode="custom"):
            seen += 1
            ahead = max(ahead, sent - seen)
            for _ in range(turns):
                await asyncio.sleep(0)
        assert seen == n
        return {"ahead": ahead}

    yield Timed(run)


CASES: dict[str, Case] = {"stream": stream, "model_stream": model_stream, "slow": slow}
