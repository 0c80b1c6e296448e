"""Cancelling, draining and streaming as other engines' suites ask for them (S, X, E and V of docs/internals/conformance.md)."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from graphflow import Context, Graph, GraphflowError
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.runtime import clock_and_ids as identity
from graphflow.runtime.clock_and_ids import Uuid7Ids
from graphflow.testing import FakeIds, collect
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain, loop


def talking(*words: str) -> Graph:
    """One node that streams words, each followed by what it emits."""
    graph = Graph(Counter)

    @graph.node
    async def talk(state: Any, ctx: Context) -> None:
        for word in words:
            await ctx.content(word)
            await ctx.emit({"said": word})

    return graph


async def test_what_a_node_emits_arrives_while_it_still_runs(compile_graph: Compile) -> None:
    graph, gate = Graph(Counter), asyncio.Event()

    @graph.node
    async def talk(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.content("first")
        await ctx.emit({"progress": 1})
        await gate.wait()
        await ctx.content("second")
        return {"n": 1}

    types = []
    async for event in compile_graph(graph).stream(thread_id="t"):
        types.append(event.type)
        if event.type == "node.progress":
            gate.set()
    assert types.index("content.delta") < types.index("node.progress") < types.index("node.end")
    assert types.count("content.delta") == 2


async def test_a_subgraphs_events_arrive_live_with_their_path(compile_graph: Compile) -> None:
    inner, gate = Graph(Counter, name="inner", result="state.n"), asyncio.Event()

    @inner.node(name="talk")
    async def talk(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.content("from below")
        await gate.wait()
        return {"n": 1}

    outer = Graph(Counter)
    outer.subgraph("sub", inner, set={"n": "out"}, next="end")
    seen = []
    async for event in compile_graph(outer).stream(thread_id="t"):
        seen.append(event)
        if event.type == "content.delta":
            gate.set()
    paths = {e.node_run_id: e.path for e in seen if e.type == "node.start"}  # type: ignore[attr-defined]
    assert [paths[e.node_run_id] for e in seen if e.type == "content.start"] == ["sub#1"]  # type: ignore[attr-defined]


async def test_each_node_begins_and_ends_once_at_every_depth_and_the_inner_ends_first(compile_graph: Compile) -> None:
    inner = chain("a", "b")[0]
    inner.name, inner._fields["result"] = "inner", "state.n"
    middle = Graph(Counter, name="middle", result="state.n")
    middle.subgraph("down", inner, set={"n": "out"}, next="end")
    outer = Graph(Counter)
    outer.subgraph("down", middle, set={"n": "out"}, next="end")
    events = await collect(compile_graph(outer).stream(thread_id="t"))
    begun = {e.node_run_id: f"{e.path or ''}:{e.node}" for e in events if e.type == "node.start"}  # type: ignore[attr-defined]
    lines = [
        (e.type, begun[e.node_run_id])  # type: ignore[attr-defined]
        for e in events
        if e.type in ("node.start", "node.end")
    ]
    down = "down#1/down#1"
    assert lines == [
        ("node.start", ":down"), ("node.start", "down#1:down"),
        ("node.start", f"{down}:a"), ("node.end", f"{down}:a"), ("node.start", f"{down}:b"), ("node.end", f"{down}:b"),
        ("node.end", "down#1:down"), ("node.end", ":down"),
    ]  # fmt: skip


async def test_a_message_is_in_the_state_once_however_often_its_node_was_entered(compile_graph: Compile) -> None:
    graph = Graph(
        {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}
    )

    @graph.node(retry={"max": 2, "on": ["any"], "backoffMs": 1})
    async def reply(state: Any, ctx: Context) -> dict[str, Any]:
        text = await ctx.ask("say what?", schema={"type": "string"})
        if ctx.attempt == 1:
            raise ValueError("first")
        return {"messages": [{"role": "assistant", "content": text}]}

    app = compile_graph(graph)
    await app.run("hello", thread_id="t")
    result = await app.answer("t", "hi")
    assert [(m.role, m.content) for m in result.state.messages] == [("user", "hello"), ("assistant", "hi")]
    assert len({m.id for m in (await app.thread("t").state()).values.messages}) <= 2


async def test_numbers_and_times_of_a_stream_never_fall_over_a_question_and_its_answer(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    events = await collect(app.stream(thread_id="t"))
    events += await collect(app.stream_answer("t", 5))
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    times = [e.timestamp for e in events]
    assert times == sorted(times)


async def test_leaving_a_stream_early_frees_everything(compile_graph: Compile) -> None:
    app = compile_graph(talking("one", "two", "three"))
    before = asyncio.all_tasks()
    stream = app.stream(thread_id="t")
    async for event in stream:
        if event.type == "content.delta":
            break
    await stream.aclose()
    runs = app.host.runs
    assert runs is not None
    assert runs.by_thread == {}
    if runs._renewer is not None:
        runs._renewer.cancel()
        await asyncio.gather(runs._renewer, return_exceptions=True)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "waiting", "in branches"])
async def test_a_life_that_is_over_is_gone_at_once_without_the_garbage_collector(
    compile_graph: Compile, how: str
) -> None:
    graph, gate = Graph(Counter), asyncio.Event()

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        if how == "failed":
            raise ValueError("no")
        if how == "cancelled":
            gate.set()
            await asyncio.Event().wait()
        if how == "waiting":
            await ctx.ask("Go on?")
        return {}

    if how == "in branches":
        graph.parallel("both", {"one": chain("a")[0], "two": chain("b")[0]})
    else:
        graph.node(work)
    app = compile_graph(graph)
    gc.disable()
    try:
        live = await launch(app, thread_id="t", hold_ms=0)
        if how == "cancelled":
            await gate.wait()
            live.executor.cancel()
        await live.over.wait()
        executor, task = weakref.ref(live.executor), live.task
        assert task is not None
        await task
        del live, task
        async with asyncio.timeout(PATIENCE_S):
            while executor() is not None:  # the store's thread may still hold the last commit
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


async def test_one_graph_serves_many_threads_at_once(compile_graph: Compile) -> None:
    app = compile_graph(loop(30))
    results = await asyncio.gather(*(app.run(thread_id=f"t{i}") for i in range(20)))
    assert [r.state.n for r in results] == [30] * 20
    assert len({r.run_id for r in results}) == 20


async def test_a_client_that_leaves_a_served_run_does_not_end_it(compile_graph: Compile) -> None:
    graph, gate = Graph(Counter), asyncio.Event()

    @graph.node
    async def talk(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.content("half")
        await gate.wait()
        await ctx.content(" and half")
        return {"n": 1}

    app = compile_graph(graph)
    live = await launch(app, thread_id="t")
    assert live.log is not None
    client = live.log.follow(0)
    async for event in client:
        if event.type == "content.delta":
            break
    await client.aclose()  # type: ignore[attr-defined]
    gate.set()
    await live.over.wait()
    assert ((await app.thread("t").state()).status, (await app.thread("t").state()).values.n) == ("idle", 1)
    late = [e.type async for e in live.log.follow(0)]
    assert (late.count("content.delta"), late[-1]) == (2, "run.complete")


async def test_a_runs_deadline_ends_it_although_the_consumer_hangs(compile_graph: Compile) -> None:
    graph = Graph(Counter, budget={"timeoutMs": 20})

    @graph.node
    async def talk(state: Any, ctx: Context) -> None:
        while True:
            await ctx.content("more ")

    app = compile_graph(graph)
    stream = app.stream(thread_id="t")
    await anext(stream)
    live = app.host.live("t")
    assert live is not None
    async with asyncio.timeout(PATIENCE_S):
        await live.over.wait()
    assert (await app.thread("t").state()).status == "failed"
    last = [event async for event in stream][-1]
    assert last.error["code"] == "budget_exceeded"  # type: ignore[attr-defined]


async def test_a_stop_of_the_process_leaves_runs_at_their_last_checkpoint_to_be_resumed(compile_graph: Compile) -> None:
    graph, inside, ran = Graph(Counter), asyncio.Event(), list[str]()

    @graph.node(next="second")
    async def first(state: Any) -> dict[str, Any]:
        ran.append("first")
        return {"n": 1}

    @graph.node
    async def second(state: Any) -> dict[str, Any]:
        ran.append("second")
        if len(ran) == 2:
            inside.set()
            await asyncio.Event().wait()
        return {"n": state.n + 1}

    app = compile_graph(graph)
    live = await launch(app, thread_id="t")
    await inside.wait()
    runs = app.host.runs
    assert runs is not None
    await runs.close(0)
    runs.forget("t")
    state = await app.thread("t").state()
    assert (state.status, state.next, state.values.n) == ("stopped", ["second"], 1)
    result = await app.resume("t")
    assert (result.status, result.state.n, result.run_id, ran) == (
        "completed", 2, live.run_id, ["first", "second", "second"],
    )  # fmt: skip


async def test_a_stop_of_the_process_lets_short_nodes_finish_and_ends_normally(compile_graph: Compile) -> None:
    graph, inside, gate = Graph(Counter), asyncio.Event(), asyncio.Event()

    @graph.node
    async def hold(state: Any) -> dict[str, Any]:
        inside.set()
        await gate.wait()
        return {"n": 1}

    app = compile_graph(graph)
    await launch(app, thread_id="t")
    await inside.wait()
    runs = app.host.runs
    assert runs is not None
    asyncio.get_running_loop().call_soon(gate.set)
    await runs.close(30)
    assert (await app.thread("t").state()).status == "idle"


async def test_a_stop_of_the_process_keeps_open_questions_open(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    live = await launch(app, thread_id="t", hold_ms=60_000)
    assert live.log is not None
    async for event in live.log.follow(0):
        if event.type == "interrupt.request":
            break
    runs = app.host.runs
    assert runs is not None
    await runs.close(5)
    runs.forget("t")
    assert (await app.thread("t").state()).status == "waiting"
    assert ((await app.answer("t", 5)).state.n, ran) == (16, ["before", "once", "after"])


async def test_a_commit_in_flight_is_completed_when_its_run_is_cancelled(
    store: Checkpointer, compile_graph: Compile
) -> None:
    app = compile_graph(chain("a", "b")[0])
    stream = app.stream(thread_id="t")
    async for event in stream:
        if event.type == "node.end":
            break
    await stream.aclose()
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.root.state.n >= 1
    assert loaded.row.owner is None


async def test_durability_of_a_run_holds_in_its_subgraphs(compile_graph: Compile, store: Checkpointer) -> None:
    inner, seen = Graph(Counter, name="inner", result="state.n"), list[int]()

    @inner.node(name="first", next="second")
    async def first(state: Any) -> dict[str, Any]:
        return {"n": 1}

    @inner.node(name="second")
    async def second(state: Any) -> dict[str, Any]:
        seen.append(len(await store.list_checkpoints("t")))
        return {"n": 2}

    outer = Graph(Counter)
    outer.subgraph("sub", inner, set={"n": "out"}, next="end")
    await compile_graph(outer).run(thread_id="t", durability="sync")
    assert seen == [2]


async def test_a_value_that_can_not_be_stored_fails_its_node_and_names_the_key(compile_graph: Compile) -> None:
    graph = Graph({"type": "object", "properties": {"box": {"default": None}}})

    @graph.node
    async def odd(state: Any) -> dict[str, Any]:
        return {"box": object()}

    app = compile_graph(graph)
    result = await app.run(thread_id="t")
    assert result.error is not None
    assert (result.error["code"], "box" in result.error["message"]) == ("not_serializable", True)
    assert (await app.thread("t").state()).values.box is None


async def test_bytes_and_none_survive_in_the_state(store: Checkpointer, compile_graph: Compile) -> None:
    graph = Graph({"type": "object", "properties": {"box": {"default": 1}}})
    value = {"raw": b"\x00\xff" * 100_000, "none": None, "deep": [[{"x": 1.5}]]}

    @graph.node
    async def keep(state: Any) -> dict[str, Any]:
        return {"box": value}

    await compile_graph(graph).run(thread_id="t")
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.root.state.box == value


def test_ids_rise_although_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 5_000, 4_000, 1_000, 6_000])

    class Skewed:
        @staticmethod
        def time_ns() -> int:
            return next(times) * 1_000_000

    monkeypatch.setattr(identity, "time", Skewed)
    ids = Uuid7Ids()
    made = [ids.new_id() for _ in range(5)]
    assert made == sorted(set(made))


async def test_a_thread_without_a_store_has_no_past(compile_graph: Compile) -> None:
    app = chain("a")[0].compile(ids=FakeIds())
    await app.run(thread_id="t")
    with pytest.raises(GraphflowError) as caught:
        await app.thread("t").history()
    assert caught.value.code == "thread_not_found"
