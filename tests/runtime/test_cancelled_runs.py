"""Cancellations that come from inside, twice, or as the loop ends; and questions that a node swallows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Context, Graph, MemoryCheckpointer, NodeRunOver
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.testing import FakeClock
from tests.launching import crash, launch
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter


def test_the_refusal_of_a_node_run_that_is_over_is_a_cancellation() -> None:
    assert issubclass(NodeRunOver, asyncio.CancelledError)


@pytest.mark.parametrize("alone", [True, False], ids=["in the loop's task", "in a task of its own"])
@pytest.mark.parametrize("how", ["the thread", "the caller", "another input"])
async def test_a_node_that_cancels_its_own_run_does_not_wait_for_itself(
    compile_graph: Compile, how: str, alone: bool
) -> None:
    graph, after = Graph(Counter), list[str]()

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        if len(ends) == 1:
            return {}
        ends.append(how)
        if how == "the thread":
            await app.thread("t").cancel()
        elif how == "another input":
            await app.run({}, "t", on_busy="interrupt")
        else:
            caller.cancel()
            await asyncio.Event().wait()
        after.append("went on")
        return {}

    async def other(state: Any) -> None:
        if not alone and len(ends) < 2 and not caller.cancelling():
            await asyncio.Event().wait()

    graph.parallel("both", {"a": "work", "b": "other"}).start("both") if not alone else graph.start("work")
    graph.node(name="work")(work)
    graph.node(name="other")(other) if not alone else None
    app, ends = compile_graph(graph), list[str]()
    async with asyncio.timeout(PATIENCE_S):
        caller = asyncio.ensure_future(app.run({}, "t"))  # noqa: TID251 - awaited below
        if how == "the caller":
            with pytest.raises(asyncio.CancelledError):
                await caller
        else:
            assert (await caller).status == "cancelled"
    assert after == []
    assert (await app.thread("t").state()).status == "stopped"


async def test_a_second_cancellation_ends_what_a_node_still_cleans_up(compile_graph: Compile) -> None:
    graph, left = Graph(Counter), list[str]()
    inside, cleaning = asyncio.Event(), asyncio.Event()

    @graph.node
    async def work(state: Any) -> None:
        try:
            inside.set()
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.append("cleaned up in part")

    app = compile_graph(graph)
    async with asyncio.timeout(PATIENCE_S):
        caller = asyncio.ensure_future(app.run({}, "t"))  # noqa: TID251 - awaited below
        await inside.wait()
        caller.cancel()
        await cleaning.wait()
        assert not caller.done(), "a run ends after the cleanup of its nodes"
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert left == ["cleaned up in part"]
    assert (await app.thread("t").state()).status == "stopped"


def test_a_loop_that_ends_is_not_held_up_by_a_detached_run_whose_node_swallows_it() -> None:
    graph, reached = Graph(Counter), list[str]()

    @graph.node(next="then")
    async def work(state: Any) -> None:
        try:
            reached.append("work")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    @graph.node(next="end")
    async def then(state: Any) -> None:
        reached.append("then")

    async def main() -> None:
        await launch(graph.compile(checkpointer=MemoryCheckpointer()), {}, "t")
        while not reached:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert reached == ["work"]


async def test_a_question_that_a_node_swallows_stays_open(compile_graph: Compile) -> None:
    graph, answers = Graph(Counter), list[str]()

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        try:
            answers.append(await ctx.ask("How?", schema={"type": "string"}))
        except BaseException:  # noqa: BLE001 - what user code may do
            return {"n": 99}
        return {"n": 1}

    app = compile_graph(graph)
    waiting = await app.run({}, "t")
    result = await app.answer("t", {waiting.interrupts[0].id: "so"})
    assert (waiting.status, result.status, result.state["n"], answers) == ("waiting", "completed", 1, ["so"])


async def test_a_node_cancelled_by_the_engine_is_no_cancellation_from_outside_whatever_groups_it_used(
    compile_graph: Compile,
) -> None:
    """In Python 3.11 a task group whose child fails while it is waited for leaves a request to cancel behind."""
    graph = Graph(Counter)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    @graph.node(next="raises")
    async def groups(state: Any) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
        except* ValueError:
            pass

    @graph.node(next="end", error=[{"on": ["node_error"], "to": "end"}])
    async def raises(state: Any) -> None:
        raise asyncio.CancelledError

    assert (await compile_graph(graph).run({}, "t")).status == "completed"


async def test_a_run_whose_process_is_gone_before_it_hears_of_its_cancellation_is_cancelled_all_the_same(
    store: Checkpointer,
) -> None:
    clock, inside, graph = FakeClock(), asyncio.Event(), Graph(Counter)

    @graph.node
    async def work(state: Any) -> None:
        inside.set()
        await asyncio.Event().wait()

    app = graph.compile(checkpointer=store, clock=clock)
    live = await launch(app, {}, "t")
    await inside.wait()
    await crash(live)
    await store.take("t", owner="elsewhere/-/00000000-0000-0000-0000-000000000000", now=clock.now_ms(), lease_ms=15_000)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        cancelling = group.create_task(app.thread("t").cancel())
        while not await store.queue("t", kind="stop"):
            await asyncio.sleep(0)
        clock.advance(16)
    assert cancelling.result() is True
    assert (await app.thread("t").result()).status == "cancelled"
