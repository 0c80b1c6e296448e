"""Interrupts and resume as other engines' suites and bug trackers ask for them (I1 to I9, and bugs, of docs/internals/conformance.md)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Context, Graph, GraphflowError, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.errors import AnswerRefused
from graphflow.testing import FakeIds, collect
from tests.launching import launch
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain


def forget(app: Any, thread_id: str = "t") -> None:
    """The next call reads the thread from the store, as another process would."""
    runs = app.host.runs
    assert runs is not None
    runs.forget(thread_id)


async def test_each_question_is_shown_exactly_once(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        return {"log": [await ctx.ask("first?"), await ctx.ask("second?")]}

    app = compile_graph(graph)
    events = await collect(app.stream(thread_id="t"))
    for answer in ("a", "b"):
        forget(app)
        events += await collect(app.stream_answer("t", answer))
    asked = [e.interrupt_id for e in events if e.type == "interrupt.request"]  # type: ignore[attr-defined]
    closed = [e.interrupt_id for e in events if e.type == "interrupt.resolve"]  # type: ignore[attr-defined]
    assert (len(asked), len(set(asked)), closed) == (2, 2, asked)


async def test_an_open_question_is_stored_with_its_payload_schema_and_owner(
    store: Checkpointer, compile_graph: Compile
) -> None:
    graph = Graph(Counter)

    @graph.node
    async def ask(state: Any, ctx: Context) -> None:
        await ctx.ask("sure?", payload={"deep": [1, {"x": None}]}, schema={"type": "boolean"}, owner="ada", role="boss")

    app = compile_graph(graph)
    shown = (await app.run(thread_id="t")).interrupts
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert tuple(loaded.machine.interrupts.values()) == shown == (await app.thread("t").state()).interrupts
    assert (shown[0].payload, shown[0].owner, shown[0].role) == ({"deep": [1, {"x": None}]}, "ada", "boss")


async def test_a_subgraph_that_asks_works_each_time_it_is_entered(compile_graph: Compile) -> None:
    inner = Graph(
        {"type": "object", "properties": {"x": {"type": "integer", "default": 0}}}, name="inner", result="state.x"
    )
    inner.ask("number", "which?", schema={"type": "integer"}, set={"x": "answer"})
    outer = Graph(Counter, budget={"maxSteps": 50})
    outer.subgraph(
        "down", inner, set={"n": "state.n + out"}, next=[{"if": "state.n < 10", "to": "down"}, {"to": "end"}]
    )
    app = compile_graph(outer)
    seen = [(await app.run(thread_id="t")).interrupts[0]]
    for _ in range(2):
        forget(app)
        seen.append((await app.answer("t", 4)).interrupts[0])
    forget(app)
    done = await app.answer("t", 4)
    assert (done.status, done.state.n) == ("completed", 12)
    assert [i.path for i in seen] == ["down#1", "down#2", "down#3"]
    assert len({i.id for i in seen}) == 3


async def test_work_before_a_question_inside_a_subgraph_is_not_repeated(compile_graph: Compile) -> None:
    inner, ran = asking()
    inner.name = "inner"
    inner._fields["result"] = "state.n"
    outer = Graph(Counter)
    outer.subgraph("down", inner, set={"n": "out"}, next="end")
    app = compile_graph(outer)
    await app.run(thread_id="t")
    forget(app)
    done = await app.answer("t", 5)
    assert (done.status, done.state.n, ran) == ("completed", 16, ["before", "once", "after"])


async def test_a_second_run_asks_again_on_a_thread_that_had_one(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="t")
    await app.answer("t", 5)
    second = await app.run(thread_id="t")
    assert second.status == "waiting"
    assert second.interrupts[0].id != first.interrupts[0].id
    assert (await app.answer("t", 6)).status == "completed"
    assert ran == ["before", "once", "after"] * 2


async def test_a_persons_input_then_a_loop_goes_round_as_often_as_its_condition_says(compile_graph: Compile) -> None:
    graph, ran = Graph(Counter, budget={"maxSteps": 50}), list[str]()
    graph.ask("start", "how many?", schema={"type": "integer"}, set={"n": "answer"}, next="work")

    @graph.node(next=[{"if": "state.n > 0", "to": "work"}, {"to": "end"}])
    async def work(state: Any) -> dict[str, Any]:
        ran.append("work")
        return {"n": state.n - 1}

    app = compile_graph(graph)
    await app.run(thread_id="t")
    forget(app)
    assert ((await app.answer("t", 3)).status, ran) == ("completed", ["work"] * 3)


async def test_a_cycle_goes_on_after_a_resume_with_its_visits_counted(compile_graph: Compile) -> None:
    graph = Graph(Counter, budget={"maxSteps": 50, "maxRounds": 4})

    @graph.node(next=[{"if": "visits.work < limits.rounds", "to": "review"}, {"to": "end"}])
    async def work(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    graph.ask("review", "again?", schema={"type": "boolean"}, next="work")
    app = compile_graph(graph)
    result = await app.run(thread_id="t")
    rounds = 0
    while result.status == "waiting":
        forget(app)
        result = await app.answer("t", True)
        rounds += 1
    assert (rounds, result.state.n, result.finish_reason) == (3, 4, "max_rounds")


async def test_a_changed_definition_leaves_a_waiting_thread_with_the_one_it_was_begun_with(store: Checkpointer) -> None:
    def build(word: str) -> Graph:
        graph = Graph(Counter)
        graph.ask("question", "well?", schema={"type": "string"}, set={"log": f"['{word}', answer]"})
        return graph

    ids = FakeIds()
    old, new = (build(word).compile(checkpointer=store, ids=ids) for word in ("old", "new"))
    await old.run(thread_id="t")
    forget(old)
    assert old.version != new.version
    assert list((await new.answer("t", "yes")).state.log) == ["old", "yes"]
    await new.run(thread_id="t")
    assert list((await new.answer("t", "no")).state.log) == ["old", "yes", "new", "no"]


async def test_of_two_questions_the_one_that_its_node_no_longer_wants_is_closed_with_the_node(
    compile_graph: Compile,
) -> None:
    graph = Graph(Counter)

    @graph.node(next="after")
    async def either(state: Any, ctx: Context) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(ctx.ask(f"{name}?", key=name)) for name in ("x", "y")]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return {"log": [task.result() for task in done]}

    @graph.node
    async def after(state: Any) -> None:
        return None

    app = compile_graph(graph)
    live = await launch(app, thread_id="t", hold_ms=60_000)
    assert live.log is not None
    asked: list[str] = []
    async for event in live.log.follow(0):
        if event.type == "interrupt.request":
            asked.append(event.interrupt_id)  # type: ignore[attr-defined]
            if len(asked) == 2:
                live.executor.answer(asked[1], "why", "answered")
    await live.over.wait()
    state = await app.thread("t").state()
    assert (state.status, list(state.values.log), state.interrupts) == ("idle", ["why"], ())


async def test_ending_the_run_by_an_answer_closes_every_other_question(compile_graph: Compile) -> None:
    graph = Graph(Counter)
    approval = {"type": "object", "properties": {"decision": {"type": "string"}}}

    @graph.node
    async def both(state: Any, ctx: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("x", "y"):
                group.create_task(ctx.ask(f"{name}?", key=name, kind="approval", schema=approval))

    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    done = await app.answer("t", {waiting.interrupts[0].id: {"decision": "terminate"}})
    assert (done.status, done.finish_reason, done.interrupts) == ("completed", "rejected", ())


async def test_skipping_a_node_at_a_breakpoint_writes_nothing_whatever_the_node_sets(store: Checkpointer) -> None:
    graph = Graph(Counter)
    graph.add("count", use="fn:count", set={"n": "out"}, next="after")

    @graph.node
    async def after(state: Any) -> dict[str, Any]:
        return {"log": ["after"]}

    app = load_graph(
        graph.document(),
        checkpointer=store,
        functions={"count": lambda: 5},
        nodes={"after": after},
        ids=FakeIds(),
    )
    await app.run(thread_id="t", interrupt_before=["count"])
    done = await app.answer("t", {"decision": "skip"})
    assert (done.status, done.error, done.state.n, list(done.state.log)) == ("completed", None, 0, ["after"])


async def test_a_breakpoints_update_that_does_not_fit_changes_nothing(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b")
    app = compile_graph(graph)
    await app.run(thread_id="t", interrupt_before=["b"])
    before = await app.thread("t").history()
    for update in ({"n": "x"}, {"zzz": 1}):
        with pytest.raises(GraphflowError):
            await app.answer("t", {"decision": "continue", "update": update})
    assert await app.thread("t").history() == before
    assert (await app.answer("t", {"decision": "continue"})).status == "completed"
    assert ran == ["a", "b"]


async def test_some_of_several_answers_that_do_not_fit_leave_all_questions_open(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.ask(f"{n}?", key=n, schema={"type": "integer"})) for n in ("x", "y")]
        return {"n": sum(task.result() for task in tasks)}

    app = compile_graph(graph)
    x, y = (await app.run(thread_id="t")).interrupts
    with pytest.raises(AnswerRefused):
        await app.answer("t", {x.id: 1, y.id: "two"})
    assert {i.id for i in (await app.thread("t").state()).interrupts} == {x.id, y.id}
    assert (await app.answer("t", {x.id: 1, y.id: 2})).state.n == 3


async def test_only_one_branch_is_taken_when_two_conditions_hold(compile_graph: Compile) -> None:
    graph, ran = Graph(Counter), list[str]()

    @graph.node(next=[{"if": "state.n > 0", "to": "left"}, {"if": "state.n > 0", "to": "right"}, {"to": "right"}])
    async def fork(state: Any) -> dict[str, Any]:
        return {"n": 1}

    for name in ("left", "right"):

        async def branch(state: Any, name: str = name) -> None:
            ran.append(name)

        graph.node(branch, name=name)  # type: ignore[call-overload]  # the names are bound by defaults

    assert ((await compile_graph(graph).run()).status, ran) == ("completed", ["left"])


async def test_a_skipped_node_whose_routes_look_at_its_output_takes_the_one_without_a_condition(
    store: Checkpointer,
) -> None:
    nodes = {"look": {"use": "fn:look", "next": [{"if": "out.more > 0", "to": "look"}, {"to": "end"}]}}
    document = {"graphflow": "1", "start": "look", "budget": {"maxSteps": 5}, "nodes": nodes}
    app = load_graph(document, checkpointer=store, functions={"look": lambda: {"more": 0}}, ids=FakeIds())
    await app.run(thread_id="t", interrupt_before=["look"])
    done = await app.answer("t", {"decision": "skip"})
    assert (done.status, done.error) == ("completed", None)


async def test_a_run_that_a_person_ended_before_its_rounds_were_used_up_does_not_blame_the_rounds(
    compile_graph: Compile,
) -> None:
    graph = Graph(Counter, budget={"maxSteps": 50, "maxRounds": 9})

    @graph.node(next="review")
    async def work(state: Any) -> None:
        return None

    graph.ask(
        "review", "again?", schema={"type": "boolean"},
        next=[{"if": "answer == true && visits.work < limits.rounds", "to": "work"}, {"to": "end"}],
    )  # fmt: skip
    app = compile_graph(graph)
    await app.run(thread_id="t")
    assert (await app.answer("t", False)).finish_reason == "stop"
