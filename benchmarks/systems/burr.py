"""Burr as its documentation shows it: async actions, conditions as expressions, `AsyncSQLitePersister` after every action.

Burr leaves SQLite's own settings (rollback journal, `synchronous=FULL`); variant `wal` opens the file in WAL mode. Its
persister is awaited after each action, so there is no `async` durability to choose.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from burr.core import ApplicationBuilder, State, action, expr, when
from burr.core.action import streaming_action
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
from harness import Case, Facts, Growing, Place, Timed, growth_facts, latencies, stored_bytes
from payloads import Chat, script, tool_result

PACKAGES = ["burr", "aiosqlite"]
PARTITION = "bench"


@asynccontextmanager
async def persister(place: Place) -> AsyncIterator[Any]:
    if not place.store:
        yield None
        return
    made = await AsyncSQLitePersister.from_values(place.database())
    if place.variant == "wal":
        await made.connection.execute("PRAGMA journal_mode = WAL")
    await made.initialize()
    yield made
    await made.cleanup()


async def build(actions: dict[str, Any], ways: list[Any], state: dict[str, Any], name: str, store: Any) -> Any:
    """A fresh application that begins at its first action."""
    builder = ApplicationBuilder().with_actions(**actions).with_transitions(*ways).with_entrypoint(next(iter(actions)))
    builder = builder.with_state(**state).with_identifiers(app_id=name, partition_key=PARTITION)
    return await (builder.with_state_persister(store) if store is not None else builder).abuild()


async def load(
    actions: dict[str, Any], ways: list[Any], state: dict[str, Any], name: str, store: Any, **fork: Any
) -> Any:
    """An application that goes on from what the store has of it."""
    builder = ApplicationBuilder().with_actions(**actions).with_transitions(*ways)
    builder = builder.with_identifiers(app_id=name, partition_key=PARTITION).initialize_from(
        store, resume_at_next_action=True, default_state=state, default_entrypoint=next(iter(actions)), **fork
    )
    return await builder.with_state_persister(store).abuild()


def add_one() -> Any:
    @action(reads=["n"], writes=["n"])
    async def add(state: State) -> State:
        return state.update(n=state["n"] + 1)

    return add


@action(reads=[], writes=[])
async def finish(state: State) -> State:
    return state


def counting(shape: Any) -> Case:
    @asynccontextmanager
    async def case(place: Place) -> AsyncIterator[Timed]:
        n = place.params["n"]
        actions, ways = shape(n)
        last = list(actions)[-1]
        async with persister(place) as store:

            async def run() -> None:
                app = await build(actions, ways, {"n": 0}, place.thread(), store)
                _, _, state = await app.arun(halt_after=[last])
                assert state["n"] == n

            yield Timed(run)

    return case


def chain(n: int) -> Any:
    names = [f"n{i}" for i in range(n)]
    return {name: add_one() for name in names}, list(itertools.pairwise(names))


def loop(n: int) -> Any:
    """The last of the n runs is an action of its own: Burr halts at an action, not at a condition."""
    return {"work": add_one(), "last": add_one()}, [("work", "work", expr(f"n < {n - 1}")), ("work", "last")]


def route(n: int) -> Any:
    names = ["a", "b", "c"]
    ways: list[Any] = []
    for name in names:
        ways.append((name, "last", expr(f"n >= {n - 1}")))
        ways += [(name, other, expr(f"n % 3 == {i}")) for i, other in enumerate(names)]
    return {**{name: add_one() for name in names}, "last": add_one()}, ways


# --- messages ----------------------------------------------------------------------------------------


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

        yield Timed(run, Growing(place.database(), said.content_bytes()) if place.store else None)


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
    async with persister(place) as store:

        async def run() -> Facts:
            name, hot, empty = place.thread(), [], {"messages": []}
            for turn in range(chat.turns):
                start = time.perf_counter()
                app = await load(actions, ways, empty, name, store)
                _, _, state = await app.arun(halt_after=["finish"], inputs={"text": chat.text(turn)})
                hot.append(time.perf_counter() - start)
            assert len(state["messages"]) == chat.messages
            size = stored_bytes(place.database())
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
            return growth_facts(hot=hot, size=size, messages=chat.messages, load=seconds, history=None, fork=fork)

        yield Timed(run)


# --- streams and questions ---------------------------------------------------------------------------


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    @streaming_action(reads=[], writes=["n"])
    async def emit(state: State) -> Any:
        for _ in range(place.params["n"]):
            await asyncio.sleep(0)
            yield {"at": time.perf_counter()}, None
        yield {"n": 1}, state.update(n=1)

    async def run() -> Facts:
        app = await build({"emit": emit}, [], {}, place.thread(), None)
        _, events = await app.astream_result(halt_after=["emit"])
        seen = [time.perf_counter() - event["at"] async for event in events if "at" in event]
        assert len(seen) == place.params["n"]
        return latencies(seen)

    yield Timed(run)


@action(reads=["n"], writes=["n"])
async def ask(state: State, answer: int) -> State:
    return state.update(n=state["n"] + answer)


async def until_question(store: Any, name: str) -> None:
    app = await load({"before": add_one(), "ask": ask}, [("before", "ask")], {"n": 0}, name, store)
    await app.arun(halt_before=["ask"])


async def answered(store: Any, name: str) -> None:
    app = await load({"before": add_one(), "ask": ask}, [("before", "ask")], {"n": 0}, name, store)
    _, _, state = await app.arun(halt_after=["ask"], inputs={"answer": 41})
    assert state["n"] == 42


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    async with persister(place) as store:

        async def run() -> Facts:
            name, start = place.thread(), time.perf_counter()
            await until_question(store, name)
            paused = time.perf_counter()
            await answered(store, name)
            return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

        yield Timed(run)


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    async with persister(place) as store:
        yield Timed(lambda: until_question(store, "cold") if place.phase == "pause" else answered(store, "cold"))


CASES: dict[str, Case] = {
    "chain": counting(chain), "loop": counting(loop), "route": counting(route), "react": react, "growth": growth,
    "stream": stream, "pause": pause, "cold": cold,
}  # fmt: skip
