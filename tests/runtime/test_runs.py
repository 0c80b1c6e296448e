"""Running graphs: state, routes, failure, retries, limits, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import pytest

from graphflow import Context, Goto, Graph, GraphflowError, MemoryCheckpointer, NodeFailed, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StoreError, ThreadBusy
from graphflow.testing import FakeClock, collect
from tests.patience import PATIENCE_S
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain, loop


async def test_a_chain_runs_each_node_once_and_in_order(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c")
    result = await compile_graph(graph).run()
    assert (result.status, ran, result.state.n, list(result.state.log)) == (
        "completed",
        ["a", "b", "c"],
        3,
        ["a", "b", "c"],
    )


async def test_state_lives_with_the_thread_and_not_beyond_it(compile_graph: Compile) -> None:
    app = compile_graph(chain("a")[0])
    assert (await app.run(thread_id="t")).state.n == 1
    assert (await app.run(thread_id="t")).state.n == 2
    assert (await app.run(thread_id="other")).state.n == 1


async def test_a_loop_ends_where_its_condition_says(compile_graph: Compile) -> None:
    assert (await compile_graph(loop(50)).run()).state.n == 50


async def test_a_key_called_messages_without_its_reducer_is_a_key_like_any_other(compile_graph: Compile) -> None:
    class Inbox(TypedDict):
        messages: list[str]

    graph = Graph(Inbox)

    @graph.node
    async def read(state: Any) -> dict[str, Any]:
        return {"messages": [*state.messages, "seen"]}

    app = compile_graph(graph)
    assert (await app.run("hello", "t")).status == "completed"
    assert list((await app.run("hello", "t")).state.messages) == ["seen", "seen"]


async def test_a_graph_runs_without_a_store() -> None:
    assert (await loop(5).compile().run()).state.n == 5


async def test_a_key_outside_the_schema_fails_the_node_and_writes_nothing(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def wrong(state: Any) -> dict[str, Any]:
        return {"n": 7, "m": 1}

    result = await compile_graph(graph).run()
    assert (result.status, result.state.n) == ("failed", 0)
    assert result.error is not None
    assert result.error["code"] == "state_error"
    assert "'m'" in result.error["message"]


async def test_a_value_of_the_wrong_type_names_key_value_and_type(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def wrong(state: Any) -> dict[str, Any]:
        return {"n": "seven"}

    error = (await compile_graph(graph).run()).error
    assert error is not None
    assert all(word in error["message"] for word in ("'n'", "'seven'", "integer"))


async def test_state_views_refuse_to_be_changed_in_place(compile_graph: Compile) -> None:
    graph = Graph({"type": "object", "properties": {"box": {"type": "object", "default": {"a": [1]}}}})

    @graph.node
    async def sneak(state: Any) -> None:
        state.box["a"].append(2)

    result = await compile_graph(graph).run()
    assert result.error is not None
    assert "read-only" in result.error["message"]
    assert result.state.box == {"a": [1]}


async def test_goto_reaches_only_declared_routes(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node(next={"choose": ["left", "end"]})
    async def pick(state: Any) -> Goto:
        return Goto("left", update={"n": 5})

    @graph.node(name="left")
    async def left(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    assert (await compile_graph(graph).run()).state.n == 6


async def test_an_error_route_takes_the_failure_and_its_target_sees_it() -> None:
    async def fragile() -> None:
        raise ValueError("broken")

    async def explain(why: str) -> str:
        return why

    document = {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"why": {"type": "string", "default": ""}}},
        "start": "fragile",
        "nodes": {
            "fragile": {"use": "fn:fragile", "error": [{"on": ["node_error"], "to": "mend"}], "next": "end"},
            "mend": {"use": "fn:explain", "with": {"why": "${error.code}: ${error.message}"}, "set": {"why": "out"}, "next": "end"},
        },
    }  # fmt: skip
    result = await load_graph(document, functions={"fragile": fragile, "explain": explain}).run()
    assert (result.status, result.state.why) == ("completed", "node_error: ValueError: broken")


async def test_retries_wait_longer_each_time_and_stop_at_the_maximum(compile_graph: Compile) -> None:
    graph, clock, tries = Graph(Counter), FakeClock(), list[int]()

    @graph.node(retry={"max": 3, "on": ["node_error"], "backoffMs": 100, "factor": 2.0, "jitter": 0.0})
    async def flaky(state: Any, ctx: Context) -> dict[str, Any]:
        tries.append(ctx.attempt)
        raise NodeFailed("no")

    app = compile_graph(graph, clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(app.run())
        for expected in ([0.1], [0.1, 0.2]):
            while clock.sleeps != expected:
                await asyncio.sleep(0)
            clock.advance(expected[-1])
    assert (task.result().status, tries) == ("failed", [1, 2, 3])


async def test_a_run_whose_back_off_breaks_ends_with_what_broke_it_instead_of_hanging(compile_graph: Compile) -> None:
    class BrokenClock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            raise RuntimeError("no more timers")

    graph = Graph(Counter)

    @graph.node(retry={"max": 2, "on": ["any"], "backoffMs": 1})
    async def flaky(state: Any) -> dict[str, Any]:
        raise ValueError("not yet")

    with pytest.raises(RuntimeError, match="no more timers"):
        await compile_graph(graph, clock=BrokenClock()).run()


async def test_a_retry_that_succeeds_leaves_no_trace_of_the_failure_in_the_state(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node(retry={"max": 2, "on": ["any"], "backoffMs": 1})
    async def flaky(state: Any, ctx: Context) -> dict[str, Any]:
        if ctx.attempt == 1:
            raise ValueError("first")
        return {"n": state.n + 1, "log": [f"attempt {ctx.attempt}"]}

    result = await compile_graph(graph).run()
    assert (result.state.n, list(result.state.log)) == (1, ["attempt 2"])


async def test_a_timed_out_attempt_can_not_write_late(compile_graph: Compile) -> None:
    graph, gate = Graph(Counter), asyncio.Event()

    @graph.node(timeout_s=0.01, error=[{"on": ["timeout"], "to": "late"}], next="late")
    async def slow(state: Any, ctx: Context) -> dict[str, Any]:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            pass  # a node that swallows its cancellation is too late all the same
        return {"n": 100}

    @graph.node(name="late")
    async def late(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    assert (await compile_graph(graph).run()).state.n == 1


async def test_cancelled_error_raised_by_a_node_is_a_failure_of_that_node(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def rude(state: Any) -> None:
        raise asyncio.CancelledError

    result = await compile_graph(graph).run()
    assert result.error is not None
    assert "CancelledError" in result.error["message"]


async def test_the_step_budget_ends_the_run_resumable_with_a_larger_one(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    result = await app.run(thread_id="t", budget={"maxSteps": 2})
    assert result.error is not None
    assert (result.error["code"], result.error["detail"]["figure"], ran) == ("budget_exceeded", "steps", ["a", "b"])
    result = await app.resume("t", budget={"maxSteps": 10})
    assert (result.status, ran) == ("completed", ["a", "b", "c"])


async def test_a_budget_with_then_wraps_up_with_what_there_is(compile_graph: Compile) -> None:
    graph = Graph(Counter, budget={"maxSteps": 3, "onExceeded": "wrap_up"})

    @graph.node(next=[{"if": "state.n < 100", "to": "work"}, {"to": "wrap_up"}])
    async def work(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    @graph.node
    async def wrap_up(state: Any) -> dict[str, Any]:
        return {"log": [f"stopped at {state.n}"]}

    result = await compile_graph(graph).run()
    assert (result.status, result.finish_reason, list(result.state.log)) == ("completed", "max_steps", ["stopped at 3"])


async def test_an_unknown_budget_figure_is_refused_before_anything_runs(compile_graph: Compile) -> None:
    graph, ran = chain("a")
    with pytest.raises(GraphflowError) as caught:
        await compile_graph(graph).run(budget={"maxFoo": 1})
    assert (caught.value.code, ran) == ("invalid_input", [])


async def test_input_that_does_not_fit_its_schema_is_refused_before_anything_runs(compile_graph: Compile) -> None:
    graph = Graph(Counter, input={"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}}})

    @graph.node
    async def never(state: Any) -> None:
        raise AssertionError

    with pytest.raises(GraphflowError) as caught:
        await compile_graph(graph).run({"query": 5})
    assert (caught.value.code, "query" in str(caught.value)) == ("invalid_input", True)


async def test_of_two_runs_on_one_thread_the_second_is_refused(compile_graph: Compile) -> None:
    graph, inside, gate = Graph(Counter), asyncio.Event(), asyncio.Event()

    @graph.node
    async def hold(state: Any) -> dict[str, Any]:
        inside.set()
        await gate.wait()
        return {"n": state.n + 1}

    app = compile_graph(graph)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(app.run(thread_id="t"))
        await inside.wait()
        with pytest.raises(ThreadBusy):
            await app.run(thread_id="t")
        gate.set()
    assert first.result().state.n == 1


async def test_of_five_concurrent_runs_the_state_holds_exactly_the_successes(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def add(state: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"n": state.n + 1}

    app = compile_graph(graph)
    results = await asyncio.gather(*(app.run(thread_id="t") for _ in range(5)), return_exceptions=True)
    assert all(isinstance(r, ThreadBusy) or r.status == "completed" for r in results)  # type: ignore[union-attr]
    done = [r for r in results if not isinstance(r, BaseException)]
    assert (await app.thread("t").state()).values.n == len(done) >= 1


async def test_leaving_a_stream_cancels_the_run_and_keeps_its_last_checkpoint(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node(next="second")
    async def first(state: Any) -> dict[str, Any]:
        return {"n": 1}

    @graph.node
    async def second(state: Any, ctx: Context) -> None:
        await ctx.content("half")
        await asyncio.Event().wait()

    app = compile_graph(graph)
    stream = app.stream(thread_id="t")
    async for event in stream:
        if event.type == "content.delta":
            break
    await stream.aclose()
    state = await app.thread("t").state()
    assert (state.status, state.values.n, state.next) == ("stopped", 1, ["second"])


async def test_cancelling_closes_open_blocks_before_the_terminal(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def talk(state: Any, ctx: Context) -> None:
        await ctx.reasoning("hm")
        await ctx.content("half")
        await asyncio.Event().wait()

    app = compile_graph(graph)
    types = []
    async for event in app.stream(thread_id="t"):
        types.append(event.type)
        if event.type == "content.delta":
            live = app.host.live("t")
            assert live is not None
            live.executor.cancel()
    assert [t for t in types if t != "checkpoint.create"][-3:] == ["content.delta", "content.end", "run.cancel"]


async def test_sequence_numbers_have_no_gap_and_timestamps_never_fall(compile_graph: Compile) -> None:
    events = await collect(compile_graph(loop(20), clock=FakeClock(step_ms=1)).stream())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_batch_keeps_the_order_of_its_inputs() -> None:
    async def note(text: str) -> str:
        return text

    document = {
        "graphflow": "1",
        "state": {"type": "object", "properties": {"seen": {"type": "string", "default": ""}}},
        "start": "note",
        "nodes": {
            "note": {"use": "fn:note", "with": {"text": "${input.query}"}, "set": {"seen": "out"}, "next": "end"}
        },
    }
    app = load_graph(document, functions={"note": note})
    results = await app.batch(["a", "b", "c"], max_concurrency=2)
    assert [r.state.seen for r in results] == ["a", "b", "c"]


def test_sync_twins_do_what_the_async_ones_do() -> None:
    app = loop(3).compile()
    assert app.run_sync().state.n == 3
    assert [event.type for event in app.stream_sync()][-1] == "run.complete"


async def test_a_subgraph_has_its_own_state_and_path(compile_graph: Compile) -> None:
    inner = Graph(
        {"type": "object", "properties": {"m": {"type": "integer", "default": 0}}}, name="inner", result="state.m"
    )

    @inner.node(name="twice")
    async def twice(state: Any) -> dict[str, Any]:
        return {"m": 2}

    outer = Graph(Counter)
    outer.subgraph("sub", inner, set={"n": "out"}, next="end")
    events = await collect(compile_graph(outer).stream(thread_id="t"))
    starts = [(e.node, e.path) for e in events if e.type == "node.start"]  # type: ignore[attr-defined]
    assert starts == [("sub", None), ("twice", "sub#1")]


async def test_a_subgraph_counts_against_its_own_documents_limits(compile_graph: Compile) -> None:
    inner = Graph(Counter, name="inner", budget={"maxRounds": 3}, result="state.n")

    @inner.node(name="work", next=[{"if": "visits.work < limits.rounds", "to": "work"}, {"to": "end"}])
    async def work(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    outer = Graph(Counter)
    outer.subgraph("sub", inner, set={"n": "out"}, next="end")
    assert (await compile_graph(outer).run()).state.n == 3


@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
@pytest.mark.parametrize("names", [["c"], "a", ["a", "end"]])
async def test_a_breakpoint_that_would_never_stop_a_run_is_refused(
    compile_graph: Compile, where: str, names: Any
) -> None:
    graph, ran = chain("a", "b")
    app = compile_graph(graph)
    rule = rf"takes a list of texts: write {where}=\['a'\]" if names == "a" else "node"
    with pytest.raises(GraphflowError, match=rule) as caught:
        await app.run({}, "t", **options_of(where, names))
    assert (caught.value.code, ran) == ("invalid_input", [])
    for number, right in enumerate((["a"], ["*"])):
        assert (await app.run({}, f"t{number}", **options_of(where, right))).status == "waiting"


@pytest.mark.parametrize("budget", [{"maxSteps": -1}, {"maxCostUsd": float("nan")}, {"steps": 3}, 5])
async def test_a_budget_that_can_be_no_limit_is_refused(compile_graph: Compile, budget: Any) -> None:
    graph, ran = chain("a")
    with pytest.raises(GraphflowError, match="budget") as caught:
        await compile_graph(graph).run({}, "t", budget=budget)
    assert (caught.value.code, ran) == ("invalid_input", [])


async def test_a_batch_of_which_nothing_may_run_is_refused(compile_graph: Compile) -> None:
    app = compile_graph(chain("a")[0])
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(GraphflowError, match="max_concurrency") as caught:
            await app.batch([{}], max_concurrency=0)
    assert caught.value.code == "invalid_input"


async def test_a_cancel_that_fails_gives_the_thread_back(
    compile_graph: Compile, store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = compile_graph(asking()[0])
    await app.run(thread_id="t")

    async def broken(digest: str | None) -> Any:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(app.host.documents, "pinned", broken)
        with pytest.raises(StoreError):
            await app.thread("t").cancel()
    row = await store.thread("t")
    assert row is not None and row.owner is None
    assert await app.thread("t").cancel()
    assert (await app.thread("t").state()).status == "stopped"


def options_of(name: str, value: Any) -> Any:
    """One option by its name."""
    return {name: value}


# --- a mistyped option, and what a notebook shows


@pytest.mark.parametrize("call", ["run", "stream", "batch", "run_sync", "stream_sync", "batch_sync"])
def test_a_mistyped_option_is_a_type_error_that_names_the_right_one(call: str) -> None:
    app = chain("a")[0].compile()
    wrong, right = ("on_bussy", "on_busy") if call.startswith("batch") else ("threadid", "thread_id")

    def use() -> None:
        made = getattr(app, call)([{}] if call.startswith("batch") else {}, **{wrong: "t"})
        if hasattr(made, "send") and hasattr(made, "close") and call in ("run", "batch"):
            asyncio.run(made)
        elif call == "stream_sync":
            list(made)

    with pytest.raises(TypeError, match=rf"has no option {wrong!r}; did you mean {right!r}\?"):
        use()


def test_a_thread_can_be_shown_where_no_event_loop_runs() -> None:
    graph = Graph(Counter)
    graph.ask("ask", "Well?")
    app = graph.compile(checkpointer=MemoryCheckpointer())
    app.run_sync({}, "t")
    assert repr(app.thread("t")) == "<Thread 't': await .state(), .history(), .result()>"


async def test_reprs_say_what_there_is_in_one_line() -> None:
    graph = Graph(Counter, name="count", result="state.n")

    @graph.node(next="ask")
    async def one(state: Any) -> dict[str, Any]:
        return {"n": 1, "log": ["x" * 500]}

    graph.ask("ask", "Well?")
    app = graph.compile(checkpointer=MemoryCheckpointer())
    waiting = await app.run({}, "t")
    version = app.version[:15]
    assert repr(app) == f"<CompiledGraph count: nodes one, ask; version {version}; threads in MemoryCheckpointer>"
    assert repr(app.thread("t")) == "<Thread 't' of count: await .state(), .history(), .result()>"
    text = repr(waiting)
    assert text.startswith(
        f"<RunResult waiting; waits for ask {waiting.interrupts[0].id!r} at 'ask'; state={{'n': 1, 'log': ['xxx"
    )
    assert len(text) < 400
    done = await app.answer("t", "yes")
    assert repr(done).startswith("<RunResult completed; output=1; state=")
    assert repr(Graph(Counter, name="empty").compile(validate=False)).startswith("<CompiledGraph empty: ")
