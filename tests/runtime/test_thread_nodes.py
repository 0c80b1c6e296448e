"""Nodes that are plain functions run in a thread; what they do with their context happens in the run's event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from functools import partial
from typing import Annotated, Any

import pytest

from graphflow import Context, Graph, append
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import NodeFailed
from graphflow.events import ContentDelta
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import collect
from tests.patience import PATIENCE_S


class Log:
    log: Annotated[list[Any], append]


def compiled(function: Any, store: Checkpointer | None = None) -> CompiledGraph:
    graph = Graph(Log)
    graph.node(function)
    return graph.compile(checkpointer=store)


async def test_text_is_sent_while_the_function_still_runs() -> None:
    heard = threading.Event()

    def speak(state: Any, ctx: Any) -> None:
        ctx.content("first")
        assert heard.wait(PATIENCE_S), "the first piece was held back"
        ctx.content("second")

    texts: list[str] = []
    async for event in compiled(speak).stream():
        if isinstance(event, ContentDelta):
            texts.append(event.delta)
            heard.set()
    assert texts == ["first", "second"]


async def test_functions_that_stream_side_by_side_keep_the_numbers_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(Log)
    graph.map("fan", "[1, 2, 3]", "speak")

    @graph.node
    def speak(state: Any, ctx: Any) -> None:
        for _ in range(200):
            ctx.content("x")
        ctx.emit({"done": True})

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        events = await collect(graph.compile().stream())
    finally:
        sys.setswitchinterval(before)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert sum(isinstance(event, ContentDelta) for event in events) == 600


async def test_operations_and_questions_give_their_results_and_are_not_repeated(store: Checkpointer) -> None:
    done: list[str] = []

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        def act() -> int:
            done.append(threading.current_thread().name)
            return 1

        first = ctx.step("first", act)
        answer = ctx.ask("go on?")
        return {"log": [first, answer, ctx.node, ctx.visit]}

    app = compiled(work, store)
    waiting = await app.run({}, "t")
    result = await app.answer("t", {waiting.interrupts[0].id: "yes"})
    assert (waiting.status, result.status) == ("waiting", "completed")
    assert list(result.state["log"]) == [1, "yes", "work", 1]
    assert len(done) == 1
    assert done != [threading.main_thread().name]  # what blocks does not block the loop


async def test_what_the_context_refuses_is_raised_in_the_function() -> None:
    def speak(state: Any, ctx: Any) -> dict[str, Any]:
        try:
            ctx.content(5)
        except NodeFailed as error:
            return {"log": [str(error)]}
        return {}

    result = await compiled(speak).run()
    assert result.state["log"][0] == "node 'speak' streams 5, which is not a str; convert it first"


async def test_leaving_the_run_ends_a_function_at_the_call_it_waits_in_and_at_any_later_one() -> None:
    begun, ends = asyncio.Event(), list[str]()
    over = threading.Event()

    async def without_end() -> None:
        begun.set()
        await asyncio.Event().wait()

    def work(state: Any, ctx: Any) -> None:
        for call in (partial(ctx.step, "long", without_end, effects="none"), partial(ctx.content, "late")):
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - whatever ends it
                ends.append(type(error).__name__)
        over.set()

    async with asyncio.timeout(PATIENCE_S):
        stream = compiled(work).stream()
        run = asyncio.ensure_future(collect(stream))  # noqa: TID251 - cancelled below
        await begun.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert await asyncio.to_thread(over.wait, PATIENCE_S)
    assert ends == ["NodeRunOver", "NodeRunOver"], "nothing that `except Exception` catches"


@pytest.mark.parametrize("how", ["of the node", "of an operation", "of a node without a context", "of a function"])
async def test_a_stop_iteration_fails_the_node_and_hangs_nobody(how: str) -> None:
    """A future that gets a `StopIteration` never ends, and `next` of nothing is soon written."""

    def nothing() -> Any:
        return next(iter(()))

    nodes: dict[str, Any] = {
        "of the node": lambda state, ctx: nothing(),
        "of an operation": lambda state, ctx: {"log": [ctx.step("x", nothing)]},
        "of a node without a context": lambda state: nothing(),
    }
    graph = Graph(Log)
    if how in nodes:
        graph.node(name="work")(nodes[how])
    else:
        graph.function(nothing)
        graph.add("work", use="fn:nothing")
    async with asyncio.timeout(PATIENCE_S):
        result = await graph.compile().run()
    assert result.error is not None
    assert "StopIteration left the function" in result.error["message"]


async def test_an_operation_runs_in_the_functions_own_thread_so_that_it_may_use_what_belongs_to_it() -> None:
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        database = sqlite3.connect(":memory:")
        try:
            return {"log": [ctx.step("count", lambda: database.execute("SELECT 5").fetchone()[0])]}
        finally:
            database.close()

    assert list((await compiled(work).run()).state["log"]) == [5]


async def test_functions_side_by_side_never_wait_for_each_others_threads(store: Checkpointer) -> None:
    """There are fewer threads of the event loop's than branches here; each function is in one and acts in it."""
    graph = Graph(Log)
    graph.map("fan", f"[{', '.join(map(str, range(40)))}]", "work")
    together = threading.Barrier(40)

    @graph.node
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        together.wait(PATIENCE_S)
        return {"log": [ctx.step("x", lambda: ctx.path)]}

    async with asyncio.timeout(PATIENCE_S):
        result = await graph.compile(checkpointer=store).run()
    assert list(result.state["log"]) == [f"fan#1[{n}]" for n in range(40)]


async def test_what_an_operation_of_a_function_gives_may_be_awaited_first() -> None:
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [ctx.step("x", lambda: asyncio.sleep(0, 5))]}

    assert list((await compiled(work).run()).state["log"]) == [5]


async def test_an_object_with_an_async_call_runs_on_the_event_loop_as_an_async_function_does() -> None:
    class Work:
        async def __call__(self, state: Any, ctx: Context) -> dict[str, Any]:
            return {"log": [await ctx.step("look", lambda: asyncio.get_running_loop() is loop)]}

    loop, graph = asyncio.get_running_loop(), Graph(Log)
    graph.node(name="work")(Work())
    result = await graph.compile().run({})
    assert (result.status, list(result.state.log)) == ("completed", [True])
