"""graphflow by its public names, all default features on: events, ids, limits, checks, a checkpoint a step, FULL sync.

Variants: `stream` consumes every event of the run through `app.stream` (by default `app.run`, which makes the same events
and has nobody to hand them to); `sync` commits every step before the next one starts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from harness import Case, Facts, Growing, Place, Timed, growth_facts, latencies, stored_bytes
from payloads import Chat, script, tool_result

from graphflow import AIMessage, CompiledGraph, Context, Graph, HumanMessage, SqliteCheckpointer, ToolCall, ToolMessage
from graphflow.graph.builder import messages

PACKAGES = ["graphflow", "msgspec", "cel-expr-python"]
UNBOUNDED = {"maxSteps": 1_000_000}


class Counter(TypedDict):
    n: int


async def add_one(state: Any) -> dict[str, int]:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def compiled(place: Place, graph: Graph) -> AsyncIterator[CompiledGraph]:
    if not place.store:
        yield graph.compile()
        return
    store = SqliteCheckpointer(place.database())
    yield graph.compile(checkpointer=store)
    await store.close()


def options(place: Place) -> dict[str, Any]:
    return {"durability": "sync"} if place.variant == "sync" else {}


def counting(build: Any) -> Case:
    @asynccontextmanager
    async def case(place: Place) -> AsyncIterator[Timed]:
        n, chosen = place.params["n"], options(place)
        async with compiled(place, build(n)) as app:

            async def run() -> None:
                result = await app.run({}, **chosen)
                assert result.state["n"] == n, result

            async def streamed() -> None:
                count, last = 0, ""
                async for event in app.stream({}, **chosen):
                    count += 1
                    last = event.type
                assert last == "run.complete" and count >= 2 * n, (count, last)

            yield Timed(streamed if place.variant == "stream" else run)

    return case


def chain(n: int) -> Graph:
    graph = Graph(Counter, budget=UNBOUNDED)
    for i in range(n):
        graph.node(add_one, name=f"n{i}", next=f"n{i + 1}" if i + 1 < n else "end")
    return graph


def loop(n: int) -> Graph:
    graph = Graph(Counter, budget=UNBOUNDED)
    graph.node(add_one, name="work", next=[{"if": f"state.n < {n}", "to": "work"}, {"to": "end"}])
    return graph


def route(n: int) -> Graph:
    graph = Graph(Counter, budget=UNBOUNDED)
    ways = [
        {"if": f"state.n >= {n}", "to": "end"},
        {"if": "state.n % 3 == 0", "to": "a"},
        {"if": "state.n % 3 == 1", "to": "b"},
        {"to": "c"},
    ]
    for name in ("a", "b", "c"):
        graph.node(add_one, name=name, next=ways)
    return graph


# --- messages ----------------------------------------------------------------------------------------


class Talk(TypedDict):
    messages: Annotated[list[Any], messages]
    called: bool


def agent_loop(model: Any, tool: Any) -> Graph:
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
        made = ToolCall(id=call.id, name=said.tool, arguments=json.dumps({"query": call.query}))
        return {"messages": [AIMessage(tool_calls=(made,))], "called": True}

    async def tool(state: Any) -> dict[str, Any]:
        calls = state["messages"][-1].tool_calls
        return {
            "messages": [
                ToolMessage(tool_call_id=call.id, content=tool_result(json.loads(call.arguments)["query"]))
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

        facts = Growing(place.database(), said.content_bytes()) if place.store else None
        yield Timed(streamed if place.variant == "stream" else run, facts)


@asynccontextmanager
async def growth(place: Place) -> AsyncIterator[Timed]:
    chat = Chat(place.params)

    async def model(state: Any) -> dict[str, Any]:
        talk = state["messages"]
        text = chat.text(len(talk))
        if chat.tools and isinstance(talk[-1], HumanMessage):
            return {
                "messages": [AIMessage(content=text, tool_calls=(ToolCall(id="c", name="t", arguments='{"q":"x"}'),))],
                "called": True,
            }
        return {"messages": [AIMessage(content=text)], "called": False}

    async def tool(state: Any) -> dict[str, Any]:
        return {"messages": [ToolMessage(tool_call_id="c", content=chat.text(len(state["messages"])))]}

    async def turn(app: CompiledGraph, thread_id: str, number: int) -> float:
        start = time.perf_counter()
        result = await app.run(chat.text(number), thread_id)
        seconds = time.perf_counter() - start
        assert result.status == "completed"
        return seconds

    async def cold_turn(path: str, thread_id: str) -> float:
        """Median of five turns, each by a store and a graph that have never seen the thread."""
        seen = []
        for number in range(5):
            store = SqliteCheckpointer(path)
            app = agent_loop(model, tool).compile(checkpointer=store)
            await turn(app, f"warm{number}-{thread_id}", 0)  # opens the file, compiles the graph
            seen.append(await turn(app, thread_id, number))
            await store.close()
        return sorted(seen)[2]

    async def run() -> Facts:
        name, path = place.thread(), place.database()
        store = SqliteCheckpointer(path)
        app = agent_loop(model, tool).compile(checkpointer=store)
        hot = [await turn(app, name, number) for number in range(chat.turns)]
        await store.close()
        size = stored_bytes(path)
        store = SqliteCheckpointer(path)
        app = agent_loop(model, tool).compile(checkpointer=store)
        thread = app.thread(name)
        await thread.history(limit=1)  # opens the file
        start = time.perf_counter()
        assert len((await thread.state()).values["messages"]) == chat.messages
        load = time.perf_counter() - start
        start = time.perf_counter()
        await thread.history(limit=100)
        history = time.perf_counter() - start
        points = await thread.history()
        start = time.perf_counter()
        await thread.fork(points[len(points) // 2].id)
        fork = time.perf_counter() - start
        await store.close()
        other = place.database("first.db")
        store = SqliteCheckpointer(other)
        await turn(agent_loop(model, tool).compile(checkpointer=store), name, 0)
        await store.close()
        return growth_facts(
            hot=hot, size=size, messages=chat.messages, load=load, history=history, fork=fork,
            cold_first=await cold_turn(other, name), cold_last=await cold_turn(path, name),
        )  # fmt: skip

    yield Timed(run)


# --- streams and questions ---------------------------------------------------------------------------


@asynccontextmanager
async def stream(place: Place) -> AsyncIterator[Timed]:
    graph = Graph(Counter)

    async def emit(state: Any, ctx: Context) -> dict[str, int]:
        for _ in range(place.params["n"]):
            await asyncio.sleep(0)
            await ctx.emit(time.perf_counter())
        return {"n": 1}

    graph.node(emit, next="end")
    app = graph.compile()

    async def run() -> Facts:
        seen = [time.perf_counter() - event.data async for event in app.stream({}) if event.type == "node.progress"]
        assert len(seen) == place.params["n"]
        return latencies(seen)

    yield Timed(run)


def question() -> Graph:
    graph = Graph(Counter)

    async def ask(state: Any, ctx: Context) -> dict[str, int]:
        return {"n": state["n"] + await ctx.ask("how many?", schema={"type": "integer"})}

    graph.node(add_one, name="before", next="ask")
    graph.node(ask, next="end")
    return graph


async def until_question(app: CompiledGraph, thread_id: str) -> None:
    assert (await app.run({}, thread_id)).status == "waiting"


async def answer(app: CompiledGraph, thread_id: str) -> None:
    assert (await app.answer(thread_id, 41)).state["n"] == 42


@asynccontextmanager
async def pause(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as app:

        async def run() -> Facts:
            thread_id, start = place.thread(), time.perf_counter()
            await until_question(app, thread_id)
            paused = time.perf_counter()
            await answer(app, thread_id)
            return {"pause_ms": (paused - start) * 1e3, "resume_ms": (time.perf_counter() - paused) * 1e3}

        yield Timed(run)


@asynccontextmanager
async def cold(place: Place) -> AsyncIterator[Timed]:
    async with compiled(place, question()) as app:
        yield Timed(lambda: until_question(app, "cold") if place.phase == "pause" else answer(app, "cold"))


CASES: dict[str, Case] = {
    "chain": counting(chain), "loop": counting(loop), "route": counting(route), "react": react, "growth": growth,
    "stream": stream, "pause": pause, "cold": cold,
}  # fmt: skip
