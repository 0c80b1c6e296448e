"""One thread that grows, and what its length costs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import Case, Facts, Place, Timed, growth_facts
from payloads import Chat

from graphflow import AIMessage, CompiledGraph, HumanMessage, ToolCall, ToolMessage
from systems.graphflow.base import store_of
from systems.graphflow.talk import agent_loop


def talk(chat: Chat) -> Any:
    async def model(state: Any) -> dict[str, Any]:
        messages = state["messages"]
        text = chat.text(len(messages))
        if chat.tools and isinstance(messages[-1], HumanMessage):
            call = ToolCall(id="c", name="t", arguments='{"q":"x"}')
            return {"messages": [AIMessage(content=text, tool_calls=(call,))], "called": True}
        return {"messages": [AIMessage(content=text)], "called": False}

    async def tool(state: Any) -> dict[str, Any]:
        return {"messages": [ToolMessage(tool_call_id="c", content=chat.text(len(state["messages"])))]}

    return agent_loop(model, tool)


class Grown:
    """The measurements of one thread, in the order in which they disturb each other least."""

    def __init__(self, place: Place) -> None:
        self.place, self.chat, self.id = place, Chat(place.params), place.thread()
        self.name = f"{self.id}.db"

    def opened(self) -> tuple[Any, CompiledGraph]:
        """A store and a graph that have never seen the thread."""
        store = store_of(self.place, self.name)
        return store, talk(self.chat).compile(checkpointer=store)

    async def turn(self, app: CompiledGraph, thread_id: str, number: int) -> float:
        start = time.perf_counter()
        result = await app.run(self.chat.text(number), thread_id)
        seconds = time.perf_counter() - start
        assert result.status == "completed"
        return seconds

    async def grow(self) -> tuple[list[float], int]:
        """Seconds of every turn by one process, and the bytes that they store."""
        before = self.place.stored_bytes(self.name)
        store, app = self.opened()
        hot = [await self.turn(app, self.id, number) for number in range(self.chat.turns)]
        await store.close()
        return hot, self.place.stored_bytes(self.name) - before

    async def read(self) -> dict[str, float | None]:
        store, app = self.opened()
        thread = app.thread(self.id)
        await thread.history(limit=1)  # opens the store
        start = time.perf_counter()
        assert len((await thread.state()).values["messages"]) == self.chat.messages
        load = time.perf_counter() - start
        start = time.perf_counter()
        newest = await thread.history(limit=100)
        history = time.perf_counter() - start
        start = time.perf_counter()
        assert len(await thread.states(limit=100)) == len(newest)
        states = time.perf_counter() - start
        points = await thread.history()
        forks = []
        for _ in range(5):
            start = time.perf_counter()
            await thread.fork(points[len(points) // 2].id)
            forks.append(time.perf_counter() - start)
        await store.close()
        return {"load": load, "history": history, "states": states, "fork": sorted(forks)[2]}

    async def cold(self, thread_id: str) -> float:
        """Median of five turns, each by a store and a graph that have never seen the thread."""
        seen = []
        for number in range(5):
            store, app = self.opened()
            await self.turn(app, f"warm{number}-{thread_id}", 0)  # opens the store, compiles the graph
            seen.append(await self.turn(app, thread_id, number))
            await store.close()
        return sorted(seen)[2]


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    async def run() -> Facts:
        grown = Grown(place)
        hot, size = await grown.grow()
        read = await grown.read()
        store, app = grown.opened()
        short = f"short-{grown.id}"
        await grown.turn(app, short, 0)
        await store.close()
        return growth_facts(
            hot=hot, size=size, messages=grown.chat.messages, **read,
            cold_first=await grown.cold(short), cold_last=await grown.cold(grown.id),
        )  # fmt: skip

    yield Timed(run)


CASES: dict[str, Case] = {"growth": growth}
