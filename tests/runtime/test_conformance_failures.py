"""Failure, retry and timeout as other engines' suites and bug trackers ask for them (F1 to F8 of docs/internals/conformance.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from graphflow import Context, Graph, MemoryCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.errors import StoreError
from graphflow.runtime.launch import launch_expired
from graphflow.testing import FakeClock, FakeIds, collect
from tests.launching import launch
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain


class Lost:
    """A promise that is never kept: the disk is gone."""

    done = True
    error = StoreError("the disk is gone")

    def __await__(self) -> Generator[Any, None, None]:
        raise self.error
        yield

    def when_done(self, callback: Any) -> None:
        callback()


class FailingStore(MemoryCheckpointer):
    """A store whose commits fail from the `after`-th on."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        return super().commit(*args, **kwargs) if self.left >= 0 else Lost()


async def test_a_store_that_fails_ends_the_run_at_once_and_keeps_what_was_committed() -> None:
    graph, ran = chain("a", "b", "c")
    store = FailingStore(after=2)
    app = graph.compile(checkpointer=store, ids=FakeIds())
    seen: list[Any] = []

    async def listen() -> None:
        async for event in app.stream(thread_id="t"):
            seen.append(event)

    with pytest.raises(StoreError):
        await listen()
    assert seen[-1].type == "run.error"
    assert seen[-1].error["code"] == "store_failed"
    assert "c" not in ran
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.root.state.n == 1


async def test_only_the_errors_that_a_retry_names_are_tried_again(compile_graph: Compile) -> None:
    graph, tries = Graph(Counter), list[int]()

    @graph.node(retry={"max": 3, "on": ["timeout"], "backoffMs": 1})
    async def wrong(state: Any, ctx: Context) -> None:
        tries.append(ctx.attempt)
        raise ValueError("no timeout")

    assert (await compile_graph(graph).run()).status == "failed"
    assert tries == [1]


async def test_a_question_is_never_retried(compile_graph: Compile) -> None:
    graph, attempts = Graph(Counter), list[int]()

    @graph.node(retry={"max": 3, "on": ["any"], "backoffMs": 1})
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        attempts.append(ctx.attempt)
        return {"n": await ctx.ask("how many?", schema={"type": "integer"})}

    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    assert (waiting.status, len(waiting.interrupts), attempts) == ("waiting", 1, [1])
    done = await app.answer("t", 7)
    assert (done.state.n, set(attempts)) == (7, {1})


async def test_an_error_route_never_swallows_a_question(compile_graph: Compile) -> None:
    graph, ran = Graph(Counter), list[str]()

    @graph.node(error=[{"on": ["any"], "to": "mend"}], next="end")
    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        return {"n": await ctx.ask("how many?", schema={"type": "integer"})}

    @graph.node
    async def mend(state: Any) -> None:
        ran.append("mend")

    app = compile_graph(graph)
    assert (await app.run(thread_id="t")).status == "waiting"
    assert ((await app.answer("t", 7)).state.n, ran) == (7, [])


async def test_an_error_route_is_taken_after_the_last_retry_and_may_fail_the_run_itself(compile_graph: Compile) -> None:
    graph, ran = Graph(Counter), list[str]()

    @graph.node(retry={"max": 2, "on": ["any"], "backoffMs": 1}, error=[{"on": ["any"], "to": "mend"}])
    async def fragile(state: Any, ctx: Context) -> None:
        ran.append(f"fragile {ctx.attempt}")
        raise ValueError("broken")

    @graph.node
    async def mend(state: Any) -> None:
        ran.append("mend")
        raise ValueError("mending failed too")

    result = await compile_graph(graph).run()
    assert (result.status, ran) == ("failed", ["fragile 1", "fragile 2", "mend"])
    assert result.error is not None
    assert (result.error["node"], "mending failed too" in result.error["message"]) == ("mend", True)


async def test_after_a_crash_the_routes_node_goes_on_and_not_the_failed_one(compile_graph: Compile) -> None:
    graph, ran, inside = Graph(Counter), list[str](), asyncio.Event()
    hang = [True]

    @graph.node(error=[{"on": ["any"], "to": "mend"}])
    async def fragile(state: Any) -> None:
        ran.append("fragile")
        raise ValueError("broken")

    @graph.node
    async def mend(state: Any) -> dict[str, Any]:
        ran.append("mend")
        inside.set()
        if hang[0]:
            await asyncio.Event().wait()
        return {"n": 1}

    app = compile_graph(graph)
    await launch(app, thread_id="t")
    await inside.wait()
    await leave(app)
    hang[0] = False
    assert (await app.resume("t")).state.n == 1
    assert ran == ["fragile", "mend", "mend"]


async def leave(app: Any) -> None:
    """Ends what this process drives as a stop of the process would: threads stay at their last checkpoint."""
    runs = app.host.runs
    await runs.close(0)
    runs.forget("t")


async def test_a_failed_operation_is_not_recorded_and_is_done_again_by_a_retry(compile_graph: Compile) -> None:
    graph, tries = Graph(Counter), list[str]()

    @graph.node(retry={"max": 2, "on": ["any"], "backoffMs": 1})
    async def fetch(state: Any, ctx: Context) -> dict[str, Any]:
        def flaky() -> int:
            tries.append("flaky")
            if len(tries) == 1:
                raise ValueError("first")
            return 5

        return {"n": await ctx.step("fetch", flaky)}

    assert ((await compile_graph(graph).run(thread_id="t")).state.n, len(tries)) == (5, 2)


async def test_a_recorded_operation_is_done_once_over_all_retries(compile_graph: Compile) -> None:
    graph, done = Graph(Counter), list[str]()

    @graph.node(retry={"max": 3, "on": ["any"], "backoffMs": 1})
    async def pay(state: Any, ctx: Context) -> dict[str, Any]:
        def act() -> dict[str, Any]:
            done.append("paid")
            return {"receipt": [1, {"of": 2}]}

        receipt = await ctx.step("pay", act)
        if ctx.attempt < 3:
            raise ValueError("later")
        return {"log": [receipt]}

    result = await compile_graph(graph).run(thread_id="t")
    assert (list(result.state.log), done) == ([{"receipt": [1, {"of": 2}]}], ["paid"])


async def test_a_key_used_twice_in_one_attempt_is_refused(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def twice(state: Any, ctx: Context) -> None:
        await ctx.step("mail", lambda: 1, effects="read")
        await ctx.step("mail", lambda: 2, effects="read")

    error = (await compile_graph(graph).run()).error
    assert error is not None
    assert "'mail'" in error["message"]


async def test_operations_are_dropped_when_their_node_commits(store: Checkpointer, compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert [key for frame in loaded.machine.frames.values() for key in frame.operations] == ["draw"]
    await app.answer("t", 5)
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert [key for frame in loaded.machine.frames.values() for key in frame.operations] == []


async def test_a_failure_is_stored_with_its_code_and_message(store: Checkpointer, compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def fragile(state: Any) -> None:
        raise ValueError("broken")

    app = compile_graph(graph)
    result = await app.run(thread_id="t")
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.error == result.error
    assert (await app.thread("t").history())[0].error == "node_error"


async def test_waiting_for_a_person_is_no_part_of_a_nodes_time(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node(timeout_s=60)
    async def ask(state: Any, ctx: Any) -> dict[str, Any]:
        assert ctx.limit is not None
        assert ctx.limit.when() is not None
        answer = await ctx.ask("how many?", schema={"type": "integer"})
        assert ctx.limit.when() is not None
        return {"n": answer}

    app = compile_graph(graph)
    live = await launch(app, thread_id="t", hold_ms=60_000)
    assert live.log is not None
    async for event in live.log.follow(0):
        if event.type == "interrupt.request":
            runs = live.executor.runs
            limits = [
                ctx.limit.when() for n in runs.numbers() if (ctx := runs.get(n)) is not None and ctx.limit is not None
            ]
            assert limits == [None]
            live.executor.answer(event.interrupt_id, 3, "answered")  # type: ignore[attr-defined]
    await live.over.wait()
    assert (await app.thread("t").state()).values.n == 3


async def test_every_node_that_begins_ends_once_also_when_it_fails_or_is_tried_again(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node(retry={"max": 2, "on": ["any"], "backoffMs": 1}, error=[{"on": ["any"], "to": "mend"}])
    async def fragile(state: Any) -> None:
        raise ValueError("broken")

    @graph.node
    async def mend(state: Any) -> dict[str, Any]:
        return {"n": 1}

    events = await collect(compile_graph(graph).stream(thread_id="t"))
    assert ends_of(events) == [("fragile", "node.error"), ("fragile", "node.error"), ("mend", "node.end")]


def ends_of(events: list[Any]) -> list[tuple[str, str]]:
    """Each begun node run with how it ended, in the order of their ends; fails unless each has exactly one end."""
    begun = {e.node_run_id: e.node for e in events if e.type == "node.start"}
    ends = [(e.node_run_id, e.type) for e in events if e.type in ("node.end", "node.error")]
    assert sorted(key for key, _ in ends) == sorted(begun)
    return [(begun[key], kind) for key, kind in ends]


async def test_a_node_that_the_runs_deadline_ends_has_its_error_event(compile_graph: Compile) -> None:
    graph = Graph(Counter, budget={"timeoutMs": 10})

    @graph.node
    async def slow(state: Any) -> None:
        await asyncio.Event().wait()

    events = await collect(compile_graph(graph).stream(thread_id="t"))
    assert events[-1].type == "run.error"
    assert events[-1].error["code"] == "budget_exceeded"  # type: ignore[attr-defined]
    assert ends_of(events) == [("slow", "node.error")]


async def test_a_question_that_expires_without_a_route_has_its_error_event(compile_graph: Compile) -> None:
    graph, clock = Graph(Counter), FakeClock()
    graph.ask("question", "well?", expires="PT1H")
    app = compile_graph(graph, clock=clock)
    events = await collect(app.stream(thread_id="t"))
    clock.advance(3601)
    live = await launch_expired(app.host, "t", [events[-1].interrupts[0]["interruptId"]])  # type: ignore[attr-defined]
    await live.over.wait()
    assert live.log is not None
    assert ends_of([*events, *live.log.ring]) == [("question", "node.error")]


async def test_what_a_failed_node_has_used_counts_once(compile_graph: Compile) -> None:
    """It comes with the tick of the failure, and the table of what no record has told yet has it too (E11)."""
    graph = Graph(Counter)

    @graph.node(retry={"max": 2, "on": ["node_error"], "backoffMs": 0})
    async def work(state: Any, ctx: Any) -> None:
        ctx.charge("modelCalls")
        raise ValueError("no")

    result = await compile_graph(graph).run({}, "t")
    assert (result.status, result.usage["modelCalls"]) == ("failed", 2)
