"""Rewind, fork, edit and diff: nothing that was there changes (T1 to T10 of conformance.md, E8)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Context, Graph, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import (
    AnswerRefused,
    CheckpointNotFound,
    EffectsNeedChoice,
    StateError,
    StoreError,
    ThreadNotFound,
)
from graphflow.testing import FakeIds
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain

RESTING = {
    "graphflow": "1",
    "state": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}},
    "start": "rest",
    "nodes": {"rest": {"use": "wait", "with": {"signal": "go", "for": "PT1H"}, "next": "end"}},
}


async def test_history_is_newest_first_and_names_source_node_and_next(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    assert [(r.source, r.node, r.next, r.step) for r in rows] == [
        ("node", "b", [], 2), ("node", "a", ["b"], 1), ("input", "a", ["a"], 0),
    ]  # fmt: skip
    assert [r.parent for r in rows] == [rows[1].id, rows[2].id, None]


async def test_history_pages_with_before_and_limit(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b", "c")[0])
    await app.run(thread_id="t")
    thread = app.thread("t")
    first = await thread.history(limit=2)
    second = await thread.history(limit=2, before=first[-1].id)
    assert [r.id for r in first + second] == [r.id for r in await thread.history()]


async def test_replay_runs_only_what_comes_after(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    ran.clear()
    result = await app.resume("t", rows[2].id)
    assert (ran, result.state.n) == (["b", "c"], 3)


async def test_rewinding_keeps_the_later_checkpoints_in_the_tree(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b", "c")[0])
    await app.run(thread_id="t")
    thread = app.thread("t")
    before = await thread.history()
    await thread.rewind(before[2].id)
    assert {r.id for r in before} <= {r.id for r in await thread.tree()}
    assert (await thread.history())[0].source == "rewind"
    assert (await thread.state(before[0].id)).values.n == 3


async def test_a_fork_is_independent_and_leaves_the_first_branch_untouched(compile_graph: Compile) -> None:
    graph, _ = chain("a", "b", "c")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    thread = app.thread("t")
    before = await thread.history()
    other = await thread.fork(before[2].id)
    await other.edit({"n": 100})
    result = await app.resume(other.id)
    assert result.state.n == 102
    assert await thread.history() == before
    assert (await thread.state()).values.n == 3
    third = await thread.fork(before[1].id)
    assert (await app.resume(third.id)).state.n == 3


async def test_a_fork_of_a_fork_and_a_rewind_after_it_read_the_right_past(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b", "c")[0])
    await app.run(thread_id="t")
    fork = await app.thread("t").fork((await app.thread("t").history())[2].id)
    await app.resume(fork.id)
    again = await fork.fork((await fork.history())[1].id)
    result = await app.resume(again.id)
    assert (result.state.n, list(result.state.log)) == (3, ["a", "b", "c"])
    rows = await again.history()
    await again.rewind(rows[-1].id)
    assert list((await app.resume(again.id)).state.log) == ["a", "b", "c"]


async def test_deleting_the_source_keeps_what_its_fork_needs(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    fork = await app.thread("t").fork((await app.thread("t").history())[1].id)
    await app.thread("t").delete()
    with pytest.raises(ThreadNotFound):
        await app.thread("t").state()
    assert (await app.resume(fork.id)).state.n == 2


async def test_forking_before_a_question_asks_again_and_takes_the_new_answer(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="t")
    await app.answer("t", 5)
    rows = await app.thread("t").history()
    before = next(r for r in rows if r.source == "node" and r.node == "before")
    fork = await app.thread("t").fork(before.id)
    waiting = await app.resume(fork.id)
    assert waiting.interrupts[0].id != first.interrupts[0].id
    assert (await app.answer(fork.id, 50)).state.n == 61
    assert (await app.thread("t").state()).values.n == 16


async def test_rewinding_to_an_open_question_issues_it_anew_and_the_old_answer_is_stale(compile_graph: Compile) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    first = await app.run(thread_id="t")
    old = first.interrupts[0].id
    rows = await app.thread("t").history()
    await app.thread("t").rewind(rows[0].id)
    state = await app.thread("t").state()
    assert state.interrupts[0].reissue_of == old
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {old: 5})
    assert caught.value.code == "answer_stale"
    assert (await app.answer("t", {state.interrupts[0].id: 5})).state.n == 16


@pytest.mark.parametrize("how", ["resume", "rewind", "edit"])
@pytest.mark.parametrize("kind", ["ask", "timer"])
async def test_moving_behind_a_question_takes_it_out_of_the_inbox(
    compile_graph: Compile, store: Checkpointer, kind: str, how: str
) -> None:
    app = compile_graph(asking()[0]) if kind == "ask" else load_graph(RESTING, checkpointer=store, ids=FakeIds())
    await app.run(thread_id="t")
    first = (await app.thread("t").history())[-1].id
    match how:
        case "resume":
            await app.resume("t", first)
        case "rewind":
            await app.thread("t").rewind(first)
        case _:
            await app.thread("t").edit({"n": 2}, checkpoint_id=first)
    asked = [i.id for i in (await app.thread("t").state()).interrupts]
    assert [i.interrupt_id for i in await store.open_interrupts()] == asked
    assert [i.interrupt_id for i in await store.due(1 << 60)] == (asked if kind == "timer" else [])


async def test_an_edit_goes_through_the_reducers_and_moves_the_cursor(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    thread = app.thread("t")
    await thread.edit({"n": 40, "log": ["edited"]}, as_node="b")
    state = await thread.state()
    assert (state.status, state.next, list(state.values.log)) == ("stopped", ["c"], ["a", "b", "c", "edited"])
    ran.clear()
    assert (await app.resume("t")).state.n == 41
    assert ran == ["c"]


async def test_replace_sets_a_key_instead_of_reducing_it(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    await app.thread("t").edit({"log": ["only"]}, replace=["log"])
    assert list((await app.thread("t").state()).values.log) == ["only"]
    await app.run(thread_id="t")
    assert list((await app.thread("t").state()).values.log) == ["only", "a", "b"]


async def test_an_edit_that_does_not_fit_changes_nothing(compile_graph: Compile) -> None:
    app = compile_graph(chain("a")[0])
    await app.run(thread_id="t")
    before = await app.thread("t").history()
    for values, node in (({"n": "x"}, None), ({"zzz": 1}, None), ({"n": 1}, "nope")):
        with pytest.raises(StateError):
            await app.thread("t").edit(values, as_node=node)
    assert await app.thread("t").history() == before
    assert (await app.run(thread_id="t")).status == "completed"


async def test_diff_shows_what_changed_between_any_two_checkpoints(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    assert await app.thread("t").diff(rows[1].id, rows[0].id) == {
        "n": [{"op": "replace", "path": "", "value": 2}],
        "log": [{"op": "add", "path": "/-", "value": "b"}],
    }


async def test_passing_over_a_write_effect_needs_a_choice(compile_graph: Compile) -> None:
    graph, sent = Graph(Counter), list[str]()

    @graph.node(next="send")
    async def draft(state: Any) -> dict[str, Any]:
        return {"n": 1}

    @graph.node
    async def send(state: Any, ctx: Context) -> None:
        await ctx.step("mail", lambda: sent.append("mail"))

    app = compile_graph(graph)
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    with pytest.raises(EffectsNeedChoice) as caught:
        await app.thread("t").rewind(rows[1].id)
    assert [e["key"] for e in caught.value.detail["effects"]] == ["mail"]
    assert (await app.thread("t").history()) == rows
    await app.resume("t", rows[1].id, effects="rerun")
    assert sent == ["mail", "mail"]


async def test_unknown_threads_and_checkpoints_are_told_apart(compile_graph: Compile) -> None:
    app = compile_graph(chain("a")[0])
    with pytest.raises(ThreadNotFound):
        await app.thread("none").state()
    await app.run(thread_id="t")
    with pytest.raises(CheckpointNotFound):
        await app.thread("t").state("018bcfe5-6800-7000-8000-ffffffffffff")


async def test_a_rewound_thread_takes_new_input_too(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    await app.thread("t").rewind((await app.thread("t").history())[1].id)
    result = await app.run(thread_id="t")
    assert (result.status, result.state.n) == ("completed", 3)


async def test_replace_of_a_key_without_a_value_is_refused(compile_graph: Compile) -> None:
    app = compile_graph(chain("a")[0])
    await app.run(thread_id="t")
    with pytest.raises(StateError, match="gives no value") as caught:
        await app.thread("t").edit({"log": ["only"]}, replace=["lgo"])
    assert caught.value.code == "invalid_input"
    assert list((await app.thread("t").state()).values.log) == ["a"]


async def test_diff_tells_true_from_one_wherever_they_stand(compile_graph: Compile) -> None:
    graph = Graph({"type": "object", "properties": {"v": {"default": {"deep": [1, 0]}}}})

    @graph.node
    async def change(state: Any) -> dict[str, Any]:
        return {"v": {"deep": [True, 0]}}

    app = compile_graph(graph)
    await app.run(thread_id="t")
    after, before = [row.id for row in await app.thread("t").history()]
    assert await app.thread("t").diff(before, after) == {"v": [{"op": "replace", "path": "/deep/0", "value": True}]}
    assert await app.thread("t").diff(before, before) == {}


async def test_a_fork_that_can_not_be_made_leaves_no_thread_behind(
    compile_graph: Compile, store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = compile_graph(chain("a")[0])
    await app.run(thread_id="t")
    other = compile_graph(chain("b")[0], ids=app.host.ids)  # another version, and the first one's document is gone

    async def gone(digest: str) -> None:
        return None

    monkeypatch.setattr(store, "document", gone)
    with pytest.raises(StoreError, match="no document"):
        await other.thread("t").fork(thread_id="u")
    assert await store.thread("u") is None
