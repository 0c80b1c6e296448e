"""A second run on a thread: `on_busy` and the queue, over each store (spec 2.4, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphflow import Context, Graph, Person
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import EffectsNeedChoice, GraphflowError, ThreadBusy, ThreadWaiting
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.runs.live_runs import LiveRun
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking


class Held:
    """A graph whose one node notes its input and writes once; inputs that a test launches are held until it lets go."""

    def __init__(self, compile_graph: Compile) -> None:
        self.graph, self.gate, self.inside = Graph(Counter), asyncio.Event(), asyncio.Event()
        self.writes: list[str] = []
        self.launched = ""

        @self.graph.node
        async def work(state: Any, ctx: Context) -> dict[str, Any]:
            name = ctx.input["query"]
            if "write" in name:
                await ctx.step("act", lambda: self.writes.append(name))
            if name == self.launched:
                self.inside.set()
                await self.gate.wait()
            return {"n": state.n + 1, "log": [name]}

        self.app: CompiledGraph = compile_graph(self.graph)

    async def launch(self, query: str, **options: Any) -> LiveRun:
        """A run that is inside its node."""
        self.inside.clear()
        self.launched = query
        run = await launch(self.app, query, "t", **options)
        await self.inside.wait()
        return run

    async def log(self) -> list[str]:
        return [*(await self.app.thread("t").state()).values.log]


@pytest.fixture
def held(compile_graph: Compile) -> Held:
    return Held(compile_graph)


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.005)


async def test_a_caller_that_enqueues_runs_after_those_before_it(held: Held) -> None:
    first = await held.launch("first")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = []
        for n in range(5):
            tasks.append(group.create_task(held.app.run(f"m{n}", "t", on_busy="enqueue")))
            await until(lambda: _queue_is(held, len(tasks)))
        held.gate.set()
    await first.over.wait()
    assert await held.log() == ["first", "m0", "m1", "m2", "m3", "m4"]
    assert [task.result().status for task in tasks] == ["completed"] * 5
    assert await held.app.thread("t").queue() == []


async def _queue_is(held: Held, length: int) -> bool:
    return len(await held.app.thread("t").queue()) == length


async def test_on_a_free_thread_enqueue_just_runs(held: Held) -> None:
    assert (await held.app.run("x", "t", on_busy="enqueue")).status == "completed"
    assert [e.type async for e in held.app.stream("y", "t", on_busy="enqueue")][-1] == "run.complete"


async def test_who_does_not_enqueue_is_refused_while_others_wait(held: Held, store: Checkpointer) -> None:
    await held.app.run("first", "t")
    waiting = await store.enqueue("t", b"of a program that is gone", now=0)
    for mode in ("reject", "interrupt"):
        if mode == "reject":
            with pytest.raises(ThreadBusy, match="wait for their turn"):
                await held.app.run("second", "t")
        else:
            await held.app.run("second", "t", on_busy=mode)
    await store.withdraw("t", waiting)
    await held.app.run("third", "t")
    assert await held.log() == ["first", "second", "third"]


async def test_leaving_takes_an_input_out_of_the_queue(held: Held) -> None:
    first = await held.launch("first")
    task = asyncio.ensure_future(held.app.run("second", "t", on_busy="enqueue"))  # noqa: TID251 - awaited below
    await until(lambda: _queue_is(held, 1))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _queue_is(held, 0)
    held.gate.set()
    await first.over.wait()
    assert await held.log() == ["first"]


async def test_a_withdrawn_input_never_runs_and_its_caller_is_told(held: Held) -> None:
    first = await held.launch("first")
    task = asyncio.ensure_future(  # noqa: TID251 - awaited below
        held.app.run("second", "t", on_busy="enqueue", run_id="018bcfe5-6800-7000-8000-0000000000ff")
    )
    await until(lambda: _queue_is(held, 1))
    thread = held.app.thread("t")
    assert await thread.withdraw((await thread.queue())[0].run_id)
    assert not await thread.withdraw("018bcfe5-6800-7000-8000-0000000000ff")
    with pytest.raises(ThreadBusy, match="withdrawn"):
        await task
    held.gate.set()
    await first.over.wait()
    assert await held.log() == ["first"]


async def test_what_waits_behind_a_question_waits_until_it_is_answered_or_closes_it(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    waiting = await app.run({}, "t")
    with pytest.raises(ThreadWaiting):
        await app.run({}, "t", on_busy="enqueue")
    closed = await app.run({}, "t", on_busy="enqueue", on_waiting="cancel")
    assert closed.status == "waiting" and closed.run_id != waiting.run_id


async def test_interrupt_goes_on_from_the_last_checkpoint(held: Held) -> None:
    first = await held.launch("first")
    result = await held.app.run("second", "t", on_busy="interrupt")
    assert first.executor.machine.status == "stopped" and result.status == "completed"
    assert await held.log() == ["second"]
    sources = [c.source for c in await held.app.thread("t").tree()]
    assert sources == ["node", "input", "cancel", "input"]


async def test_rollback_goes_back_to_where_the_run_began(held: Held) -> None:
    await held.app.run("zero", "t")
    first = await held.launch("first")
    result = await held.app.run("second", "t", on_busy="rollback", by="ada")
    assert first.executor.machine.status == "stopped" and result.status == "completed"
    assert await held.log() == ["zero", "second"] and result.state.n == 2
    (back,) = [c for c in await held.app.thread("t").history() if c.source == "rewind"]
    assert (await held.app.thread("t").why(back.id)).by == "ada"
    history = [c.source for c in await held.app.thread("t").history()]
    assert history == ["node", "input", "rewind", "node", "input"], "the rolled back run is on a branch of its own"
    assert len(await held.app.thread("t").tree()) == 7, "nothing that was there is gone"


async def test_a_rollback_is_recorded_under_the_name_of_the_token_and_not_of_its_user(held: Held) -> None:
    await held.app.run("zero", "t")
    await held.launch("first")
    await held.app.run("second", "t", on_busy="rollback", by=Person(name="laptop", user="ada", admin=False))
    (back,) = [c for c in await held.app.thread("t").history() if c.source == "rewind"]
    assert (await held.app.thread("t").why(back.id)).by == "laptop"


async def test_a_threads_first_run_is_rolled_back_to_nothing(held: Held) -> None:
    await held.launch("first")
    result = await held.app.run("second", "t", on_busy="rollback")
    assert await held.log() == ["second"] and result.state.n == 1
    assert [c.source for c in await held.app.thread("t").history()] == ["node", "input", "rewind"]
    fresh = await held.app.run("third", "t")
    assert fresh.state.n == 2


async def test_on_a_free_thread_rollback_takes_nothing_back(held: Held) -> None:
    await held.app.run("first", "t", on_busy="rollback")
    await held.app.run("second", "t", on_busy="rollback")
    assert await held.log() == ["first", "second"]


async def test_a_rollback_over_writes_needs_a_choice_and_without_one_changes_nothing(held: Held) -> None:
    first = await held.launch("write one")
    with pytest.raises(EffectsNeedChoice) as refused:
        await held.app.run("write two", "t", on_busy="rollback")
    assert [effect["key"] for effect in refused.value.detail["effects"]] == ["act"]
    assert not first.over.is_set() and first.executor.machine.status == "running"
    with pytest.raises(GraphflowError, match="effects is 'reuse'; for a rollback it is one of rerun, undo"):
        await held.app.run("write two", "t", on_busy="rollback", effects="reuse")
    result = await held.app.run("write two", "t", on_busy="rollback", effects="rerun")
    assert result.status == "completed" and await held.log() == ["write two"]
    assert held.writes == ["write one", "write two"]


async def test_a_question_that_this_process_holds_is_no_busy_thread(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    live = await launch(app, {}, "t")
    await until(lambda: _waits(live))
    with pytest.raises(ThreadWaiting) as refused:
        await app.run({}, "t")
    assert [i["kind"] for i in refused.value.detail["interrupts"]] == ["ask"]
    answered = await app.answer("t", 5)
    assert answered.status == "completed" and live.over.is_set(), "the holder lets go for an answer from elsewhere"


async def _waits(live: LiveRun) -> bool:
    """And everybody can read what for."""
    return live.journal is not None and bool(await live.journal.store.open_interrupts(thread_id=live.thread_id))


async def test_on_busy_is_checked(held: Held) -> None:
    with pytest.raises(GraphflowError, match="on_busy") as refused:
        await held.app.run("x", "t", on_busy="wait")  # type: ignore[arg-type] # what is refused
    assert refused.value.code == "invalid_input"
