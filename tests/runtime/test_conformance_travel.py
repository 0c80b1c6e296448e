"""Time travel as other engines' suites and bug trackers ask for it (T1 to T10, and bugs, of docs/internals/conformance.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphflow import Context, Graph, GraphflowError, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import load_thread
from graphflow.errors import AnswerRefused, StateError, ThreadBusy
from graphflow.graph.core.machine import Machine
from graphflow.testing import FakeClock, FakeIds
from tests.launching import launch
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain


async def test_going_on_from_a_finished_point_runs_nothing(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    ran.clear()
    last = (await app.thread("t").history())[0]
    with pytest.raises(GraphflowError) as caught:
        await app.resume("t", last.id)
    assert (caught.value.code, ran) == ("nothing_to_resume", [])
    assert (await app.thread("t").state()).values.n == 2


async def test_going_on_from_before_a_question_asks_anew_each_time_and_takes_the_new_answer(
    compile_graph: Compile,
) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    asked = [(await app.run(thread_id="t")).interrupts[0].id]
    await app.answer("t", 5)
    before = next(r for r in await app.thread("t").history() if r.node == "before" and r.source == "node")
    for answer in (50, 500):
        asked.append((await app.resume("t", before.id)).interrupts[0].id)
        assert (await app.answer("t", answer)).state.n == 11 + answer
    assert len(set(asked)) == 3


async def test_a_fork_of_a_waiting_thread_does_its_operations_again_and_leaves_the_first_one_waiting(
    compile_graph: Compile,
) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="t")
    fork = await app.thread("t").fork()
    state = await fork.state()
    assert (state.status, state.interrupts[0].reissue_of) == ("waiting", first.interrupts[0].id)
    assert (await app.answer(fork.id, 50)).state.n == 61
    assert ran == ["before", "once", "once", "after"]
    assert (await app.thread("t").state()).interrupts == first.interrupts
    assert (await app.answer("t", 5)).state.n == 16


def two_questions() -> Graph:
    graph = Graph(Counter)
    for name, after in (("first", "second"), ("second", "end")):
        graph.ask(name, f"{name}?", schema={"type": "string"}, set={"log": "[answer]"}, next=after)
    return graph


async def test_a_fork_between_two_questions_asks_only_the_later(compile_graph: Compile) -> None:
    app = compile_graph(two_questions())
    await app.run(thread_id="t")
    await app.answer("t", "a")
    await app.answer("t", "b")
    between = next(r for r in await app.thread("t").history() if r.source == "answer" and r.node == "first")
    fork = await app.thread("t").fork(between.id)
    waiting = await app.resume(fork.id)
    assert [i.node for i in waiting.interrupts] == ["second"]
    assert list((await app.answer(fork.id, "c")).state.log) == ["a", "c"]
    assert list((await app.thread("t").state()).values.log) == ["a", "b"]


def three_levels() -> Graph:
    """Subgraphs three deep; the innermost asks twice, the middle one asks too."""
    names = {"type": "object", "properties": {"log": {"type": "array", "x-reducer": "append", "default": []}}}
    inner = Graph(names, name="inner", result="state.log")
    for name, after in (("one", "two"), ("two", "end")):
        inner.ask(name, f"{name}?", schema={"type": "string"}, set={"log": "[answer]"}, next=after)
    middle = Graph(names, name="middle", result="state.log")
    middle.ask("here", "here?", schema={"type": "string"}, set={"log": "[answer]"}, next="down")
    middle.subgraph("down", inner, set={"log": "out"}, next="end")
    outer = Graph(Counter)
    outer.subgraph("down", middle, set={"log": "out"}, next="end")
    return outer


async def test_a_rewind_into_a_subgraph_three_levels_deep_asks_again_where_it_was(compile_graph: Compile) -> None:
    app = compile_graph(three_levels())
    await app.run(thread_id="t")
    for answer in ("a", "b", "c"):
        done = await app.answer("t", answer)
    assert list(done.state.log) == ["a", "b", "c"]
    asked = {r.node: r for r in await app.thread("t").history() if r.source == "ask"}
    for node, answers, expected in (
        ("two", ("z",), ["a", "b", "z"]), ("one", ("y", "z"), ["a", "y", "z"]), ("here", ("x", "y", "z"), ["x", "y", "z"]),
    ):  # fmt: skip
        await app.thread("t").rewind(asked[node].id)
        assert [i.node for i in (await app.thread("t").state()).interrupts] == [node]
        for answer in answers:
            again = await app.answer("t", answer)
        assert list(again.state.log) == expected


async def test_a_subgraph_has_the_state_of_that_moment(compile_graph: Compile) -> None:
    app = compile_graph(three_levels())
    await app.run(thread_id="t")
    for answer in ("a", "b", "c"):
        await app.answer("t", answer)
    asked = {r.node: r for r in await app.thread("t").history() if r.source == "ask"}
    frames = (await app.thread("t").state(asked["two"].id)).frames
    assert {path: list(state.log) for path, state in frames.items()} == {"down#1": ["a"], "down#1/down#1": ["b"]}
    fork = await app.thread("t").fork(asked["one"].id)
    assert {path: list(state.log) for path, state in (await fork.state()).frames.items()} == {
        "down#1": ["a"], "down#1/down#1": [],
    }  # fmt: skip


async def test_a_subgraph_that_is_entered_again_begins_with_a_state_of_its_own(compile_graph: Compile) -> None:
    inner = Graph(Counter, name="inner", result="state.n")

    @inner.node(name="add")
    async def add(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    outer = Graph(Counter, budget={"maxSteps": 50})
    outer.subgraph("down", inner, set={"n": "state.n + out", "log": "[out]"},
                   next=[{"if": "state.n < 3", "to": "down"}, {"to": "end"}])  # fmt: skip
    app = compile_graph(outer)
    assert list((await app.run(thread_id="t")).state.log) == [1, 1, 1]
    second = (await app.thread("t").history())[-3]
    assert list((await app.resume("t", second.id)).state.log) == [1, 1, 1]


async def test_an_edit_may_answer_in_place_of_a_node_and_its_question_is_closed(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    waiting = await app.run(thread_id="t")
    await app.thread("t").edit({"n": 100}, as_node="ask")
    state = await app.thread("t").state()
    assert (state.status, state.next, state.interrupts) == ("stopped", ["after"], ())
    with pytest.raises(AnswerRefused):
        await app.answer("t", {waiting.interrupts[0].id: 5})
    assert ((await app.resume("t")).state.n, ran) == (100, ["before", "once", "after"])


async def test_an_edit_as_a_node_with_an_expression_for_a_key_writes_what_the_edit_says(compile_graph: Compile) -> None:
    app = compile_graph(two_questions())
    await app.run(thread_id="t")
    await app.thread("t").edit({"log": ["by hand"]}, as_node="first")
    state = await app.thread("t").state()
    assert (state.status, state.next, list(state.values.log)) == ("stopped", ["second"], ["by hand"])


async def test_an_edit_of_a_waiting_thread_issues_its_question_anew(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    old = (await app.run(thread_id="t")).interrupts[0].id
    await app.thread("t").edit({"n": 100})
    state = await app.thread("t").state()
    assert (state.status, [i.reissue_of for i in state.interrupts]) == ("waiting", [old])
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {old: 5})
    assert caught.value.code == "answer_stale"


async def test_a_running_thread_is_neither_rewound_nor_edited_unless_cancelled_and_may_be_forked(
    compile_graph: Compile,
) -> None:
    graph, inside, gate = Graph(Counter), asyncio.Event(), asyncio.Event()

    @graph.node(next="hold")
    async def first(state: Any) -> dict[str, Any]:
        return {"n": 1}

    @graph.node
    async def hold(state: Any) -> dict[str, Any]:
        inside.set()
        await gate.wait()
        return {"n": state.n + 1}

    app = compile_graph(graph)
    live = await launch(app, thread_id="t", durability="sync")
    await inside.wait()
    thread = app.thread("t")
    begin = (await thread.history())[-1]
    for refused in (thread.rewind(begin.id), thread.edit({"n": 5}), thread.delete()):
        with pytest.raises(ThreadBusy):
            await refused
    fork = await thread.fork()
    gate.set()
    await live.over.wait()
    assert (await thread.state()).values.n == 2
    assert (await app.resume(fork.id)).state.n == 2
    inside.clear()
    gate.clear()
    live = await launch(app, thread_id="t")
    await inside.wait()
    await thread.rewind(begin.id, cancel=True)
    assert live.over.is_set()
    gate.set()
    assert (await app.resume("t")).state.n == 2


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Machine]:
    """Every machine that was committed, by the id of its record."""
    seen: dict[str, Machine] = {}
    write = ThreadJournal.write

    def spy(self: ThreadJournal, prepared: Any, *args: Any) -> Any:
        seen[prepared.commit.id] = prepared.commit.machine
        return write(self, prepared, *args)

    monkeypatch.setattr(ThreadJournal, "write", spy)
    return seen


async def test_a_fork_of_a_thread_cut_off_inside_a_node_is_stored_as_it_was_made(
    store: Checkpointer, compile_graph: Compile, machines: dict[str, Machine]
) -> None:
    """What was recorded after the last checkpoint belongs to the cut-off node, which the fork runs again."""
    graph, inside, ran = Graph(Counter), asyncio.Event(), list[str]()

    @graph.node(next="second")
    async def first(state: Any) -> dict[str, Any]:
        return {"n": 1}

    @graph.node
    async def second(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.step("draw", lambda: ran.append("draw"), effects="read")
        if len(ran) == 1:
            inside.set()
            await asyncio.Event().wait()
        return {"n": state.n + 1}

    app = compile_graph(graph, clock=FakeClock(step_ms=1))
    await launch(app, thread_id="t")
    await inside.wait()
    runs = app.host.runs
    assert runs is not None
    await runs.close(0)
    runs.forget("t")
    fork = await app.thread("t").fork()
    newest, *older = await store.list_checkpoints(fork.id)
    for row in (newest, *older):
        loaded = await load_thread(store, fork.id, row.id, logs=row is not newest)  # a fork reads no lists
        assert loaded is not None
        assert loaded.machine == machines[row.id]
    assert list((await fork.state()).values.log) == []
    assert ((await app.resume(fork.id)).state.n, ran) == (2, ["draw", "draw"])


async def test_the_tree_is_the_same_after_a_restart(tmp_path: Path) -> None:
    ids = FakeIds()

    async def tree(act: bool) -> list[Any]:
        store = SqliteCheckpointer(tmp_path / "t.db")
        app = chain("a", "b", "c")[0].compile(checkpointer=store, ids=ids)
        if act:
            await app.run(thread_id="t")
            rows = await app.thread("t").history()
            await app.resume("t", rows[1].id)
            await app.thread("t").edit({"n": 50}, as_node="a")
        found = await app.thread("t").tree()
        await store.close()
        return found

    before = await tree(act=True)
    assert await tree(act=False) == before
    assert {r.source for r in before} == {"input", "node", "rewind", "edit"}
    known = {r.id for r in before}
    assert all(r.parent in known for r in before if r.source != "input")


async def test_going_on_under_a_newer_version_adds_its_keys_and_refuses_what_no_longer_fits(
    store: Checkpointer,
) -> None:
    def build(properties: dict[str, Any], write: dict[str, Any]) -> Graph:
        graph = Graph({"type": "object", "properties": properties})

        @graph.node
        async def work(state: Any) -> dict[str, Any]:
            return write

        return graph

    ids, whole = FakeIds(), {"type": "integer", "default": 0}
    await build({"n": whole}, {"n": 7}).compile(checkpointer=store, ids=ids).run(thread_id="t")
    wider = build({"n": whole, "m": {"type": "integer", "default": 3}}, {}).compile(checkpointer=store, ids=ids)
    result = await wider.run(thread_id="t")
    assert (result.state.n, result.state.m) == (7, 3)
    other = build({"n": {"type": "string", "default": ""}}, {}).compile(checkpointer=store, ids=ids)
    with pytest.raises(StateError) as caught:
        await other.run(thread_id="t")
    assert (caught.value.code, caught.value.detail["key"]) == ("state_incompatible", "n")
    assert (await wider.thread("t").state()).values.n == 7


async def test_a_key_that_an_edit_replaced_does_not_come_back(compile_graph: Compile) -> None:
    graph, _ = chain("a", "b", "c")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    await app.thread("t").edit({"log": []}, replace=["log"])
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")
    assert list((await app.run(thread_id="t")).state.log) == ["a", "b", "c"]
    fork = await app.thread("t").fork()
    assert list((await fork.state()).values.log) == ["a", "b", "c"]
