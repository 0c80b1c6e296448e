"""Who wrote a value, why an edge was taken, and playing a run back (spec 2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Context, Graph, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import EffectsNeedChoice, GraphflowError, StateError
from graphflow.models.scripted.model import ScriptedModel
from graphflow.runtime.history.blame import parse
from tests.runtime.conftest import Compile
from tests.runtime.graphs import Counter, asking, chain, loop
from tests.runtime.test_conformance_travel import three_levels


async def test_blame_names_checkpoint_node_and_visit_of_the_last_write(compile_graph: Compile) -> None:
    app = compile_graph(loop(3))
    await app.run(thread_id="t")
    thread = app.thread("t")
    rows = await thread.history()
    found = await thread.blame("state.n")
    assert (found.value, found.checkpoint_id, found.node, found.visit, found.source) == (
        3,
        rows[0].id,
        "work",
        3,
        "node",
    )
    assert found.node_run_id is not None
    earlier = await thread.blame("n", rows[1].id)
    assert (earlier.value, earlier.checkpoint_id, earlier.visit) == (2, rows[1].id, 2)
    untouched = await thread.blame("state.log")
    assert (untouched.source, untouched.node, untouched.checkpoint_id) == ("input", None, rows[-1].id)


async def test_blame_finds_who_put_each_item_of_a_list_there(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b", "c")[0])
    await app.run(thread_id="t")
    await app.run(thread_id="t")
    thread = app.thread("t")
    assert [(await thread.blame(f"state.log[{i}]")).node for i in (0, 1, 2, 3, -1)] == ["a", "b", "c", "a", "c"]
    first, second = await thread.blame("state.log[0]"), await thread.blame("state.log[3]")
    assert first.run_id != second.run_id
    await thread.edit({"log": ["x", "y"]}, replace=["log"], by="ada")
    edited = await thread.blame("state.log[1]")
    assert (edited.source, edited.node, edited.by, edited.value) == ("edit", None, "ada", "y")


async def test_blame_of_a_part_is_whoever_changed_that_part(compile_graph: Compile) -> None:
    schema = {"type": "object", "properties": {
        "plan": {"type": "object", "default": {}},
        "notes": {"type": "object", "x-reducer": "merge", "default": {}},
    }}  # fmt: skip
    graph = Graph(schema)

    @graph.node(next="b")
    async def a(state: Any) -> dict[str, Any]:
        return {"plan": {"title": "one", "steps": [{"done": False}]}, "notes": {"x": 1, "y": 1}}

    @graph.node(next="c")
    async def b(state: Any) -> dict[str, Any]:
        return {"plan": {"title": "one", "steps": [{"done": True}]}, "notes": {"y": 2}}

    @graph.node
    async def c(state: Any) -> dict[str, Any]:
        return {"plan": {"title": "two", "steps": [{"done": True}]}}

    app = compile_graph(graph)
    await app.run(thread_id="t")
    thread = app.thread("t")
    asked = ("plan", "plan.title", "plan.steps[0].done", 'plan["steps"]', "notes.x", "notes.y", "notes")
    assert [(await thread.blame(f"state.{key}")).node for key in asked] == ["c", "c", "b", "b", "a", "b", "b"]
    for wrong in ("state.nothing", "state.plan.nothing", "state.plan.steps[7]", "state.plan..x", ""):
        with pytest.raises(StateError):
            await thread.blame(wrong)
    with pytest.raises(StateError) as refused:
        await thread.blame("state.nothing")
    assert "plan" in refused.value.detail["keys"]


def test_a_path_into_the_state_is_read() -> None:
    assert parse("state.messages[3].content") == ("messages", (3, "content"))
    assert parse("messages[-1]") == ("messages", (-1,))
    assert parse("state.notes['a b'].c") == ("notes", ("a b", "c"))
    assert parse("state") == ("state", ())


async def test_blame_follows_rewinds_and_forks(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b", "c")[0])
    await app.run(thread_id="t")
    thread = app.thread("t")
    rows = await thread.history()
    fork = await thread.fork(rows[2].id)
    await fork.edit({"n": 9}, as_node="b")
    await app.resume(fork.id)
    assert [(await fork.blame(k)).node for k in ("log[0]", "log[1]", "n")] == ["a", "c", "c"]
    assert (await fork.blame("log[0]")).checkpoint_id == rows[2].id
    assert (await thread.blame("n")).checkpoint_id == rows[0].id


async def test_blame_inside_a_subgraph_names_its_path(compile_graph: Compile) -> None:
    app = compile_graph(three_levels())
    await app.run(thread_id="t")
    await app.answer("t", "a")
    await app.answer("t", "b", by="ada")
    thread = app.thread("t")
    found = await thread.blame("state.log[0]", path="down#1/down#1")
    assert (found.node, found.path, found.source, found.by) == ("one", "down#1/down#1", "answer", "ada")
    with pytest.raises(StateError) as refused:
        await thread.blame("state.log", path="down#2")
    assert "down#1" in refused.value.detail["paths"]
    await app.answer("t", "c")
    outer = await thread.blame("state.log[2]")
    assert (outer.node, outer.path, outer.value) == ("down", "", "c")


async def test_blame_names_the_model_call_behind_a_message(store: Checkpointer) -> None:
    document = {
        "graphflow": "1", "start": "talk",
        "state": {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}},
        "nodes": {"talk": {"use": "model", "set": {"messages": "[out.message]"}}},
    }  # fmt: skip
    app = load_graph(document, checkpointer=store, model=ScriptedModel())
    await app.run({"query": "hello"}, thread_id="t")
    found = await app.thread("t").blame("state.messages[1].content")
    assert (found.node, found.model) == ("talk", f"{ScriptedModel().provider}/{ScriptedModel().model}")
    assert found.usage is not None and found.usage["modelCalls"] == 1
    asked = await app.thread("t").blame("state.messages[0]")
    assert (asked.source, asked.node, asked.model) == ("input", None, None)


async def test_why_tells_each_condition_with_its_values(compile_graph: Compile) -> None:
    graph = Graph(Counter, budget={"maxSteps": 50, "maxRounds": 2})

    @graph.node(
        next=[{"if": "state.n >= 5", "to": "done"}, {"if": "visits.work < limits.rounds", "to": "work"}, {"to": "end"}]
    )
    async def work(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    graph.ask("done", "ok?", next="end")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    first = (await app.thread("t").why(rows[1].id)).decisions[0]
    assert (first.node, first.visit, first.to, first.how) == ("work", 1, "work", "condition")
    assert [(c.when, c.to, c.held, c.values) for c in first.conditions] == [
        ("state.n >= 5", "done", False, {"state.n": 1}),
        ("visits.work < limits.rounds", "work", True, {"visits.work": 1, "limits.rounds": 2}),
        (None, "end", None, {}),
    ]
    last = (await app.thread("t").why()).decisions[0]
    assert (last.to, [c.held for c in last.conditions]) == ("end", [False, False, True])
    begun = await app.thread("t").why(rows[2].id)
    assert [(d.how, d.to) for d in begun.decisions] == [("input", "work")]


async def test_why_tells_what_conditions_saw_of_an_output_and_of_an_answer(store: Checkpointer) -> None:
    document = {
        "graphflow": "1", "start": "score", "budget": {"maxSteps": 20},
        "nodes": {
            "score": {"use": "fn:score", "next": [{"if": "out.score > 0.5 && size(out.parts) > 1", "to": "ask"}, {"to": "end"}]},
            "ask": {"ask": {"message": "?", "schema": {"type": "object", "properties": {"decision": {"type": "string"}}}},
                    "next": [{"if": "answer.decision == 'again'", "to": "score"}, {"to": "end"}]},
        },
    }  # fmt: skip

    def score() -> dict[str, Any]:
        return {"score": 0.7, "parts": ["a", "b"]}

    app = load_graph(document, checkpointer=store, functions={"score": score})
    await app.run({}, thread_id="t")
    await app.answer("t", {"decision": "enough"}, by="ada")
    rows = await app.thread("t").history()
    scored = (await app.thread("t").why(rows[2].id)).decisions[0]
    assert scored.conditions[0].values == {"out.score": 0.7, "out.parts": "list of 2"}
    answered = await app.thread("t").why(rows[0].id)
    assert (answered.source, answered.by) == ("answer", "ada")
    assert [(c.held, c.values) for c in answered.decisions[0].conditions] == [
        (False, {"answer.decision": "enough"}), (True, {}),
    ]  # fmt: skip


async def test_why_tells_a_choice_an_error_route_and_the_only_way(compile_graph: Compile) -> None:
    from graphflow import Goto

    graph = Graph(Counter)

    @graph.node(next={"choose": ["b", "end"]})
    async def a(state: Any) -> Goto:
        return Goto("b")

    @graph.node(next="end", error=[{"on": ["node_error"], "to": "mend"}])
    async def b(state: Any) -> None:
        raise ValueError("broken")

    @graph.node
    async def mend(state: Any) -> None:
        return None

    app = compile_graph(graph)
    await app.run(thread_id="t")
    rows = await app.thread("t").history()
    told = [(await app.thread("t").why(row.id)).decisions[0] for row in rows]
    assert [(d.node, d.how, d.to) for d in told] == [
        ("mend", "only", "end"), ("b", "error", "mend"), ("a", "choice", "b"), ("a", "input", "a"),
    ]  # fmt: skip
    assert told[1].error is not None and told[1].error["code"] == "node_error"


@pytest.mark.parametrize("inside", [False, True])
async def test_why_tells_an_error_route_that_leads_to_the_end(store: Checkpointer, inside: bool) -> None:
    async def fall(state: Any, ctx: Context) -> dict[str, Any]:
        raise ValueError("no")

    failing = {"use": "node:fall", "error": [{"on": ["any"], "to": "end"}], "next": "end"}
    document: dict[str, Any] = {"graphflow": "1", "start": "a", "nodes": {"a": failing}}
    if inside:
        document = {"graphflow": "1", "start": "sub", "nodes": {"sub": {"graph": document, "next": "end"}}}
    app = load_graph(document, nodes={"fall": fall}, checkpointer=store, settings=False)
    assert (await app.run({"query": "go"}, "t")).status == "completed"
    decision = (await app.thread("t").why()).decisions[0]
    assert (decision.node, decision.to, decision.how) == ("a", "end", "error")
    assert decision.error is not None and decision.error["message"] == "ValueError: no"


async def test_why_tells_that_a_run_failed_at_a_node_whose_error_no_route_took(store: Checkpointer) -> None:
    """It said that the node's error route led back to the node."""
    document = {
        "graphflow": "1",
        "state": {"properties": {"a": {"type": "number", "default": 0.0}, "b": {"type": "number"}}},
        "start": "divide",
        "nodes": {"divide": {"ask": {"message": "'?'"}, "set": {"b": "1.0 / state.a"}, "next": "end"}},
    }
    app = load_graph(document, checkpointer=store)
    await app.run({}, "t")
    await app.answer("t", {})
    (told,) = (await app.thread("t").why()).decisions
    assert (told.how, told.to, (told.error or {}).get("code")) == ("stopped", "divide", "expression")


async def test_why_follows_a_subgraph_out_to_the_node_that_ran_it(compile_graph: Compile) -> None:
    inner = Graph(Counter, name="inner", result="state.n")

    @inner.node(name="add", next=[{"if": "state.n > 5", "to": "end"}, {"to": "end"}])
    async def add(state: Any) -> dict[str, Any]:
        return {"n": state.n + 1}

    outer = Graph(Counter, budget={"maxSteps": 50})
    outer.subgraph("down", inner, set={"n": "state.n + out"}, next=[{"if": "state.n < 2", "to": "down"}, {"to": "end"}])
    app = compile_graph(outer)
    await app.run(thread_id="t")
    told = await app.thread("t").why()
    assert [(d.node, d.path, d.to) for d in told.decisions] == [("add", "down#2", "end"), ("down", "", "end")]
    assert told.decisions[1].conditions[0].values == {"state.n": 2}


async def test_why_tells_by_whom_a_thread_was_moved(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    await app.thread("t").rewind((await app.thread("t").history())[1].id, by="ada")
    told = await app.thread("t").why()
    assert (told.source, told.by, told.next, told.decisions[0].how) == ("rewind", "ada", ["b"], "rewind")


async def test_replay_runs_again_from_the_node_on_and_leaves_the_thread_as_it_is(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    done = await app.run(thread_id="t")
    before = await app.thread("t").history()
    for until, expected in (("b", ["b", "c"]), ("c", ["c"]), (None, ["a", "b", "c"])):
        ran.clear()
        again = await app.replay("t", until)
        assert (ran, again.state, again.thread_id != "t") == (expected, done.state, True)
    assert await app.thread("t").history() == before
    with pytest.raises(GraphflowError) as caught:
        await app.replay("t", "nowhere")
    assert caught.value.code == "invalid_input"


async def test_replay_begins_at_a_later_visit_when_asked_to(compile_graph: Compile) -> None:
    app = compile_graph(loop(4))
    await app.run(thread_id="t")
    point = await app.thread("t").replay_point("work#3")
    assert point.step == 2
    assert (await app.replay("t", "work#3")).state.n == 4
    with pytest.raises(GraphflowError):
        await app.replay("t", "work#5")


async def test_replay_of_a_question_asks_anew(compile_graph: Compile) -> None:
    graph, ran = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t")
    await app.answer("t", 5)
    ran.clear()
    waiting = await app.replay("t", "ask", new_thread_id="u")
    assert (waiting.status, ran) == ("waiting", ["once"])
    assert (await app.answer("u", 7)).state.n == 18


async def test_replay_of_a_write_needs_a_choice(compile_graph: Compile) -> None:
    writer, sent = Graph(Counter), list[str]()

    @writer.node
    async def send(state: Any, ctx: Context) -> None:
        await ctx.step("mail", lambda: sent.append("mail"))

    app = compile_graph(writer)
    await app.run(thread_id="w")
    with pytest.raises(EffectsNeedChoice):
        await app.replay("w", "send")
    assert (await app.replay("w", "send", effects="reuse")).status == "completed"
    assert sent == ["mail"]


async def test_replay_stops_at_a_breakpoint_that_stands_before_the_node(compile_graph: Compile) -> None:
    app = compile_graph(chain("a", "b")[0])
    waiting = await app.run(thread_id="t", interrupt_before=["b"])
    await app.answer("t", {waiting.interrupts[0].id: {"decision": "continue"}})
    again = await app.replay("t", "b")
    assert (again.status, [i.kind for i in again.interrupts]) == ("waiting", ["breakpoint"])


async def test_an_edit_inside_a_subgraph_is_by_its_path(compile_graph: Compile) -> None:
    app = compile_graph(three_levels())
    await app.run(thread_id="t")
    await app.answer("t", "a")
    thread = app.thread("t")
    before = await thread.history()
    for wrong in ({"as_node": "one"}, {"path": "down#9"}, {"path": "", "as_node": "one"}):
        with pytest.raises(StateError):
            await thread.edit({"log": ["x"]}, **wrong)  # type: ignore[arg-type]
    assert await thread.history() == before
    await thread.edit({"log": ["by hand"]}, path="down#1")
    state = await thread.state()
    assert {path: list(values.log) for path, values in state.frames.items()} == {
        "down#1": ["a", "by hand"], "down#1/down#1": [],
    }  # fmt: skip
    assert [i.node for i in state.interrupts] == ["one"]
    await thread.edit({"log": ["one by hand"]}, "one", path="down#1/down#1")
    state = await thread.state()
    assert (state.status, state.next, state.interrupts) == ("stopped", ["down#1/down#1/two"], ())
    await app.resume("t")
    assert list((await app.answer("t", "z")).state.log) == ["a", "by hand", "one by hand", "z"]


async def test_an_edit_of_an_outer_frame_closes_the_questions_of_those_inside(compile_graph: Compile) -> None:
    app = compile_graph(three_levels())
    await app.run(thread_id="t")
    waiting = await app.answer("t", "a")
    thread = app.thread("t")
    await thread.edit({"log": ["instead"]}, "down", path="")
    state = await thread.state()
    assert (state.status, state.frames, list(state.values.log)) == ("idle", {}, ["instead"])
    with pytest.raises(GraphflowError):
        await app.answer("t", {waiting.interrupts[0].id: "late"})


async def test_an_edit_of_an_older_checkpoint_is_one_commit(compile_graph: Compile) -> None:
    graph, ran = chain("a", "b", "c")
    app = compile_graph(graph)
    await app.run(thread_id="t")
    thread = app.thread("t")
    rows = await thread.history()
    await thread.edit({"n": 40}, "b", checkpoint_id=rows[2].id)
    assert [r.source for r in await thread.history()] == ["edit", "node", "input"]
    ran.clear()
    assert ((await app.resume("t")).state.n, ran) == (41, ["c"])


async def test_diff_reaches_into_subgraphs_and_over_forks(compile_graph: Compile) -> None:
    app = compile_graph(three_levels())
    await app.run(thread_id="t")
    first = (await app.thread("t").history())[0].id
    fork = await app.thread("t").fork(first)
    await app.answer(fork.id, "a")
    head = (await fork.history())[0].id
    changes = await app.thread("t").diff(first, head, other=fork)
    assert changes["down#1/log"] == [{"op": "add", "path": "/-", "value": "a"}]
    assert await app.thread("t").diff(first, first) == {}


async def test_naming_the_head_goes_on_and_does_nothing_again(compile_graph: Compile) -> None:
    graph, ran = Graph(Counter), list[str]()

    @graph.node
    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        await ctx.step("part", lambda: ran.append("part"))
        if len(ran) == 1:
            ran.append("failed")
            raise ValueError("not yet")
        return {"n": 1}

    app = compile_graph(graph)
    failed = await app.run(thread_id="t")
    head = (await app.thread("t").history())[0]
    assert (failed.status, head.error) == ("failed", "node_error")
    assert (await app.resume("t", head.id)).status == "completed"
    assert ran == ["part", "failed"]
    assert "rewind" not in {r.source for r in await app.thread("t").tree()}


@pytest.mark.parametrize("until", ["a#0", "a#2", "a#²", "nowhere#0", "#1", ""])
async def test_replay_from_a_visit_that_never_was_is_refused_with_those_that_were(
    compile_graph: Compile, until: str
) -> None:
    app = compile_graph(chain("a", "b")[0])
    await app.run(thread_id="t")
    with pytest.raises(GraphflowError, match="it came to a, b") as caught:
        await app.replay("t", until)
    assert caught.value.code == "invalid_input"
