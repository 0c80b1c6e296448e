"""An agent loop of two actions, and one thread that grows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from burr.core import State, action, when
from harness import Case, Facts, Place, Timed, growing, growth_facts
from payloads import Chat, script, tool_result

from systems.burr.base import PARTITION, build, finish, load, persister


@asynccontextmanager
async def react(place: Place) -> AsyncIterator[Timed]:
    said = script(place.params["n"])

    @action(reads=["messages"], writes=["messages", "more"])
    async def model(state: State) -> State:
        turn = (len(state["messages"]) - 1) // 2
        if turn == len(said.calls):
            return state.append(messages={"role": "assistant", "content": said.answer}).update(more=False)
        call = said.calls[turn]
        message = {
            "role": "assistant",
            "calls": [{"id": call.id, "name": said.tool, "arguments": {"query": call.query}}],
        }
        return state.append(messages=message).update(more=True)

    @action(reads=["messages"], writes=["messages"])
    async def tool(state: State) -> State:
        for call in state["messages"][-1]["calls"]:
            message = {"role": "tool", "id": call["id"], "content": tool_result(call["arguments"]["query"])}
            state = state.append(messages=message)
        return state

    actions = {"model": model, "tool": tool, "finish": finish}
    ways = [("model", "tool", when(more=True)), ("model", "finish"), ("tool", "model")]
    async with persister(place) as store:

        async def run() -> None:
            app = await build(actions, ways, {"messages": [{"role": "user", "content": "hi?"}]}, place.thread(), store)
            _, _, state = await app.arun(halt_after=["finish"])
            assert len(state["messages"]) == 2 * len(said.calls) + 2

        yield Timed(run, growing(place, said.content_bytes()))


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    chat = Chat(place.params)

    @action(reads=["messages"], writes=["messages"])
    async def user(state: State, text: str) -> State:
        return state.append(messages={"role": "user", "content": text})

    @action(reads=["messages"], writes=["messages", "more"])
    async def model(state: State) -> State:
        messages = state["messages"]
        more = chat.tools and messages[-1]["role"] == "user"
        return state.append(messages={"role": "assistant", "content": chat.text(len(messages))}).update(more=more)

    @action(reads=["messages"], writes=["messages"])
    async def tool(state: State) -> State:
        return state.append(messages={"role": "tool", "content": chat.text(len(state["messages"]))})

    actions = {"user": user, "model": model, "tool": tool, "finish": finish}
    ways = [
        ("user", "model"), ("model", "tool", when(more=True)), ("model", "finish"), ("tool", "model"), ("finish", "user"),
    ]  # fmt: skip

    async def measured(store: Any, file: str, name: str) -> Facts:
        hot, empty = [], {"messages": []}
        before = place.stored_bytes(file)
        for turn in range(chat.turns):
            start = time.perf_counter()
            app = await load(actions, ways, empty, name, store)
            _, _, state = await app.arun(halt_after=["finish"], inputs={"text": chat.text(turn)})
            hot.append(time.perf_counter() - start)
        assert len(state["messages"]) == chat.messages
        size = place.stored_bytes(file) - before
        start = time.perf_counter()
        found = await store.load(PARTITION, name)
        seconds = time.perf_counter() - start
        fork_from = {
            "fork_from_app_id": name,
            "fork_from_partition_key": PARTITION,
            "fork_from_sequence_id": found["sequence_id"] // 2,
        }
        start = time.perf_counter()
        await load(actions, ways, empty, place.thread(), store, **fork_from)
        fork = time.perf_counter() - start
        return growth_facts(hot=hot, size=size, messages=chat.messages, load=seconds, fork=fork)

    async def run() -> Facts:
        name = place.thread()
        async with persister(place, f"{name}.db") as store:
            return await measured(store, f"{name}.db", name)

    yield Timed(run)


CASES: dict[str, Case] = {"react": react, "growth": growth}
