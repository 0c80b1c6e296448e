"""Questions to people: they are durable, answered once, and nothing finished runs again (E5, E8, E12, E13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import AnswerRefused, Context, Graph, GraphflowError, ThreadWaiting
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.events import NodeStart
from graphflow.testing import FakeClock, FakeIds, collect
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking


async def test_a_question_stops_the_run_and_the_answer_goes_on_from_there(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    assert (waiting.status, [i.kind for i in waiting.interrupts]) == ("waiting", ["ask"])
    done = await app.answer("t", 5)
    assert (done.status, done.state.n, ran) == ("completed", 16, ["before", "once", "after"])
    assert done.run_id == waiting.run_id


async def test_after_a_restart_nothing_finished_and_nothing_recorded_runs_again(store: Checkpointer) -> None:
    graph, ran = asking()
    ids = FakeIds()
    await graph.compile(checkpointer=store, ids=ids).run(thread_id="t")
    later = graph.compile(checkpointer=store, ids=ids)
    runs = later.host.runs
    assert runs is not None
    runs.forget("t")
    done = await later.answer("t", 5)
    assert (done.state.n, ran) == (16, ["before", "once", "after"])


@pytest.mark.parametrize("answer", ["five", None, {}, [], 5.5, True], ids=repr)
async def test_an_answer_of_the_wrong_type_changes_nothing(compile_graph: Compile, answer: Any) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    before = await app.thread("t").history()
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", answer)
    assert caught.value.code == "answer_invalid"
    assert await app.thread("t").history() == before
    assert (await app.answer("t", 5)).status == "completed"


async def test_a_second_answer_is_stale(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    key = waiting.interrupts[0].id
    await app.answer("t", {key: 5})
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {key: 6})
    assert caught.value.code == "answer_stale"
    assert (await app.thread("t").state()).values.n == 16


async def test_an_unknown_id_is_unmatched(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {"018bcfe5-6800-7000-8000-ffffffffffff.1": 5})
    assert caught.value.code == "interrupt_not_found"


async def test_an_answer_for_another_thread_is_refused(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="a")
    await app.run(thread_id="b")
    with pytest.raises(AnswerRefused):
        await app.answer("b", {first.interrupts[0].id: 5})
    assert (await app.thread("b").state()).status == "waiting"


async def test_an_answer_to_a_thread_that_rests_is_refused(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    await app.answer("t", 5)
    with pytest.raises(AnswerRefused):
        await app.answer("t", 5)


async def test_new_input_never_silently_drops_a_question(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    with pytest.raises(ThreadWaiting):
        await app.run(thread_id="t")
    assert ran == ["before", "once"]


async def test_on_waiting_cancel_closes_the_questions_on_record_and_runs(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="t")
    second = await app.run(thread_id="t", on_waiting="cancel")
    assert (second.status, second.run_id != first.run_id) == ("waiting", True)
    assert [c.source for c in await app.thread("t").history()][:4] == ["ask", "node", "input", "cancel"]


async def test_on_waiting_answer_takes_the_text_as_the_answer(compile_graph: Compile) -> None:
    graph = Graph({"type": "object", "properties": {"name": {"type": "string", "default": ""}}})
    graph.ask("who", "your name?", schema={"type": "string"}, set={"name": "answer"})
    app = compile_graph(graph)
    await app.run(thread_id="t")
    result = await app.run("Ada", thread_id="t", on_waiting="answer", by="bob")
    assert (result.status, result.state.name) == ("completed", "Ada")
    assert (await app.thread("t").blame("state.name")).by == "bob"


async def test_two_questions_of_one_node_are_asked_one_after_the_other(compile_graph: Compile) -> None:
    graph, ran = Graph(Counter), list[str]()

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        ran.append("entered")
        first = await ctx.ask("first?")
        second = await ctx.ask("second?")
        return {"log": [first, second]}

    app = compile_graph(graph)
    await app.run(thread_id="t")
    assert (await app.answer("t", "a")).status == "waiting"
    assert list((await app.answer("t", "b")).state.log) == ["a", "b"]


async def test_two_open_at_once_refuse_a_bare_answer_and_take_them_in_any_order(compile_graph: Compile) -> None:
    graph = Graph(Counter)

    @graph.node
    async def both(state: Any, ctx: Context) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.ask(f"{name}?", key=name)) for name in ("x", "y")]
        return {"log": [task.result() for task in tasks]}

    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    assert len(waiting.interrupts) == 2
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", "bare")
    assert caught.value.code == "answer_ambiguous"
    x, y = (i.id for i in waiting.interrupts)
    assert [i.id for i in (await app.answer("t", {y: "why"})).interrupts] == [x]
    assert list((await app.answer("t", {x: "ex"})).state.log) == ["ex", "why"]


async def test_the_third_round_of_rejecting_and_asking_again_works_like_the_first(compile_graph: Compile) -> None:
    graph = Graph(Counter, budget={"maxSteps": 50})
    graph.ask(
        "review", "good?", schema={"type": "string"}, set={"log": "[answer]"},
        next=[{"if": "answer == 'no'", "to": "review"}, {"to": "end"}],
    )  # fmt: skip
    app = compile_graph(graph)
    seen = [(await app.run(thread_id="t")).interrupts[0].id]
    for _ in range(3):
        seen.append((await app.answer("t", "no")).interrupts[0].id)
    done = await app.answer("t", "yes")
    assert (done.status, list(done.state.log), len(set(seen))) == ("completed", ["no", "no", "no", "yes"], 4)


async def test_a_question_in_a_nested_subgraph_is_found_and_answered(compile_graph: Compile) -> None:
    inner = Graph(
        {"type": "object", "properties": {"x": {"type": "integer", "default": 0}}}, name="inner", result="state.x"
    )
    inner.ask("number", "which?", schema={"type": "integer"}, set={"x": "answer"})
    middle = Graph(Counter, name="middle", result="state.n")
    middle.subgraph("down", inner, set={"n": "out"}, next="end")
    outer = Graph(Counter)
    outer.subgraph("down", middle, set={"n": "out + 1"}, next="end")
    app = compile_graph(outer)
    waiting = await app.run(thread_id="t")
    assert waiting.interrupts[0].path == "down#1/down#1"
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")
    assert (await app.answer("t", 41)).state.n == 42


async def test_breakpoints_stop_before_and_after_and_may_update_or_skip(compile_graph: Compile) -> None:
    from tests.runtime.graphs import chain

    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    waiting = await app.run(thread_id="t", interrupt_before=["b"], interrupt_after=["b"])
    assert (waiting.interrupts[0].kind, ran) == ("breakpoint", ["a"])
    after = await app.answer("t", {"decision": "continue", "update": {"n": 10}})
    assert (after.status, ran, after.interrupts[0].payload["when"]) == ("waiting", ["a", "b"], "after")
    done = await app.answer("t", {"decision": "continue"})
    assert (done.status, done.state.n, ran) == ("completed", 12, ["a", "b", "c"])


async def test_a_skipped_node_does_not_run(compile_graph: Compile) -> None:
    from tests.runtime.graphs import chain

    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    await app.run(thread_id="t", interrupt_before=["b"])
    done = await app.answer("t", {"decision": "skip"})
    assert (done.status, ran) == ("completed", ["a", "c"])


async def test_an_answer_after_the_expiry_is_stale_and_the_expired_route_is_taken(compile_graph: Compile) -> None:
    graph, clock = Graph(Counter), FakeClock()
    graph.ask("question", "well?", expires="PT1H", on_expire="late", set={"log": "[answer]"})

    @graph.node(name="late")
    async def late(state: Any) -> dict[str, Any]:
        return {"log": ["nobody answered"]}

    app = compile_graph(graph, clock=clock)
    waiting = await app.run(thread_id="t")
    clock.advance(3599)
    assert (await app.thread("t").state()).status == "waiting"
    clock.advance(2)
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {waiting.interrupts[0].id: "here I am"})
    assert caught.value.code == "answer_stale"
    state = await app.thread("t").state()
    assert (state.status, list(state.values.log)) == ("idle", ["nobody answered"])


async def test_a_cancelled_question_is_asked_anew_when_the_run_goes_on(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="t")
    assert await app.thread("t").cancel()
    assert (await app.thread("t").state()).status == "stopped"
    again = await app.resume("t")
    assert (again.status, again.interrupts[0].id != first.interrupts[0].id, ran) == (
        "waiting",
        True,
        ["before", "once"],
    )


async def test_a_changed_question_under_an_open_one_is_an_error_and_the_question_stays(store: Checkpointer) -> None:
    words = ["delete a?"]
    graph = Graph(Counter)

    @graph.node
    async def ask(state: Any, ctx: Context) -> None:
        await ctx.step("x", lambda: None, effects="read")
        first = await ctx.ask("sure?", key="sure")
        await ctx.ask(words[0], key="what", payload={"first": first})

    ids = FakeIds()
    app = graph.compile(checkpointer=store, ids=ids)
    await app.run(thread_id="t")
    waiting = await app.answer("t", "yes")
    words[0] = "delete b?"
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")
    result = await app.answer("t", {waiting.interrupts[0].id: "ok"})
    assert result.error is not None
    assert result.error["code"] == "node_not_deterministic"


async def test_run_waiting_lists_exactly_the_open_interrupts(compile_graph: Compile) -> None:
    graph, _ = asking()
    events = await collect(compile_graph(graph).stream(thread_id="t"))
    last = events[-1]
    assert last.type == "run.waiting"
    assert [i["kind"] for i in last.interrupts] == ["ask"]  # type: ignore[attr-defined]


async def test_after_run_waiting_only_what_the_contract_allows_comes_before_the_run_goes_on(
    compile_graph: Compile,
) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    before = await collect(app.stream(thread_id="t"))
    after = await collect(app.stream_answer("t", 5))
    assert [e.type for e in after[:2]] == ["interrupt.resolve", "run.resume"]
    assert after[0].seq == before[-1].seq + 1
    begun = [{e.node_run_id for e in events if isinstance(e, NodeStart)} for events in (before, after)]
    assert not begun[0] & begun[1]


async def test_resume_refuses_a_thread_that_waits_or_rests(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    with pytest.raises(GraphflowError) as caught:
        await app.resume("t")
    assert caught.value.code == "thread_waiting"
    await app.answer("t", 5)
    with pytest.raises(GraphflowError) as caught:
        await app.resume("t")
    assert caught.value.code == "nothing_to_resume"
