"""A node run that is over gets nothing but a refusal: what is not on record did not act."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Context, Graph, HumanMessage
from graphflow.graph.engine.run import Run
from graphflow.graph.engine.suspension import NodeRunOver
from graphflow.models.chat_model import complete
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter


class Late:
    """A node that waits for ever, and asks for one thing more when it is cancelled."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.inside, self.over = asyncio.Event(), asyncio.Event()
        self.done: list[str] = []
        self.refused: list[str] = []

    async def work(self, state: Any, ctx: Context) -> dict[str, Any]:
        self.model = ctx.open_model()
        try:
            self.inside.set()
            await asyncio.Event().wait()
        finally:
            try:
                await self._clean_up(ctx)
            except NodeRunOver:
                self.refused.append(self.what)
                raise
            finally:
                self.over.set()
        return {}

    async def _clean_up(self, ctx: Context) -> None:
        if self.what == "ask":
            await ctx.ask("Clean up?")
        elif self.what == "call_model":
            self.done.append((await ctx.call_model("Clean up?")).text)
        elif self.what == "open_model":
            self.done.append((await complete(self.model, [HumanMessage(content="Clean up?")])).message.text)
        else:
            await ctx.step("late", lambda: self.done.append("late"), effects=self.what)


@pytest.fixture(params=["write", "read", "none", "ask", "call_model", "open_model"])
def late(request: pytest.FixtureRequest) -> Late:
    """One for each thing that code may still ask for."""
    return Late(request.param)


async def test_a_cancelled_node_that_cleans_up_is_refused(compile_graph: Compile, late: Late) -> None:
    graph = Graph(Counter)
    graph.node(name="work")(late.work)
    app = compile_graph(graph)
    await launch(app, {}, "t")
    await late.inside.wait()
    await app.thread("t").cancel()
    await late.over.wait()
    assert (late.done, late.refused) == ([], [late.what])
    assert (await app.thread("t").state()).status == "stopped"


async def test_the_loser_of_a_join_is_refused(compile_graph: Compile, late: Late) -> None:
    graph = Graph(Counter)

    @graph.node
    async def quick(state: Any) -> dict[str, Any]:
        await late.inside.wait()
        return {"n": 1}

    graph.parallel("race", {"a": "quick", "b": "slow"}, wait="any").start("race")
    graph.node(name="slow")(late.work)
    result = await compile_graph(graph).run({}, thread_id="t")
    await late.over.wait()
    assert (result.status, late.done, late.refused) == ("completed", [], [late.what])


async def test_the_sibling_of_a_failure_is_refused(compile_graph: Compile, late: Late) -> None:
    graph = Graph(Counter)

    @graph.node
    async def bad(state: Any) -> dict[str, Any]:
        await late.inside.wait()
        raise ValueError("no")

    graph.parallel("race", {"a": "bad", "b": "slow"}).start("race")
    graph.node(name="slow")(late.work)
    result = await compile_graph(graph).run({}, thread_id="t")
    await late.over.wait()
    assert (result.status, late.done, late.refused) == ("failed", [], [late.what])


async def test_a_node_of_an_interrupted_run_is_refused(compile_graph: Compile, late: Late) -> None:
    graph = Graph(Counter)

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {} if late.inside.is_set() else await late.work(state, ctx)

    graph.node(name="work")(work)
    app = compile_graph(graph)
    await launch(app, {}, "t")
    await late.inside.wait()
    result = await app.run({}, thread_id="t", on_busy="interrupt")
    assert (result.status, late.done, late.refused) == ("completed", [], [late.what])


async def test_a_write_whose_node_ends_while_its_intent_is_written_does_not_act(
    compile_graph: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, done = Graph(Counter), list[str]()
    flushing, cancelled, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        async def write() -> None:
            try:
                await ctx.step("pay", lambda: done.append("paid"))
            except NodeRunOver:
                refused.set()

        async with asyncio.TaskGroup() as group:
            await asyncio.shield(group.create_task(write()))
        return {}

    async def flush(self: Run) -> None:
        flushing.set()
        while not cancelled.is_set():
            try:
                await cancelled.wait()
            except asyncio.CancelledError:  # the store writes on, whoever waits for it
                continue

    app = compile_graph(graph)
    live = await launch(app, {}, "t")
    monkeypatch.setattr(Run, "flush", flush)
    await flushing.wait()
    live.executor.cancel()
    cancelled.set()
    await refused.wait()
    assert done == []


async def test_an_operation_whose_effects_are_misspelt_does_not_act(compile_graph: Compile) -> None:
    graph, done = Graph(Counter), list[str]()

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.step("pay", lambda: done.append("paid"), effects="writes")
        return {}

    result = await compile_graph(graph).run({}, thread_id="t")
    assert (result.status, done) == ("failed", [])
    assert result.error is not None
    assert "effects='writes'" in result.error["message"]


def test_a_path_in_the_place_of_a_store_is_refused_with_the_store_to_write() -> None:
    graph = Graph(Counter)
    graph.node(name="work")(lambda state: {})
    with pytest.raises(TypeError, match=r"SqliteCheckpointer\('threads.db'\)"):
        graph.compile(checkpointer="threads.db").run_sync({}, thread_id="t")  # type: ignore[arg-type]


class Asking:
    """A node that asks beside a busy branch, so that the run goes on while nobody holds the question."""

    def __init__(self, compile_graph: Compile, *, cleans_up: bool = False) -> None:
        self.left, self.fed, self.answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.cleans_up = cleans_up
        self.tasks: list[asyncio.Task[Any]] = []
        self.done: list[str] = []
        graph = Graph(Counter)
        graph.node(name="asks")(self.asks)
        graph.node(name="busy")(self.busy)
        graph.parallel("both", {"a": "asks", "b": "busy"}).start("both")
        self.app = compile_graph(graph)

    async def asks(self, state: Any, ctx: Context) -> dict[str, Any]:
        self.tasks.append(asyncio.create_task(self._pay(ctx)))  # noqa: TID251 - what user code may do
        try:
            await ctx.ask("Pay?", hold_ms=0)
        finally:
            self.left.set()
            if self.cleans_up:
                await self.fed.wait()
        self.answered.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return {}

    async def busy(self, state: Any) -> dict[str, Any]:
        await self.answered.wait()
        return {}

    async def _pay(self, ctx: Context) -> None:
        await self.answered.wait()
        await ctx.step("pay", self._act, effects="none")

    async def _act(self) -> None:
        self.done.append("paid")
        await asyncio.sleep(0)

    async def answer_while_it_is_left(self) -> str:
        """The status of the thread at the end; the question is answered in the very turn in which the node is left."""
        live = await launch(self.app, {}, "t", hold_ms=60_000)
        await self.left.wait()
        (question,) = live.executor.machine.interrupts
        live.executor.answer(question, True, "answered")
        self.fed.set()
        async with asyncio.timeout(PATIENCE_S):
            await live.over.wait()
        return (await self.app.thread("t").state()).status


@pytest.mark.parametrize("cleans_up", [False, True], ids=["just left", "still cleaning up"])
async def test_an_answer_that_comes_while_its_node_is_being_left_enters_the_node_again(
    compile_graph: Compile, cleans_up: bool
) -> None:
    """The node's task is not over yet, but nothing in it takes the answer any more."""
    asking = Asking(compile_graph, cleans_up=cleans_up)
    assert (await asking.answer_while_it_is_left(), len(asking.tasks)) == ("idle", 2)


async def test_what_a_node_left_behind_is_refused_once_the_node_is_entered_again(compile_graph: Compile) -> None:
    """Its code begins the same work anew: only one of the two may act."""
    asking = Asking(compile_graph)
    await asking.answer_while_it_is_left()
    assert (asking.done, [task.cancelled() for task in asking.tasks]) == (["paid"], [True, False])
