"""A thread is moved to another version as one checkpoint, or refused with all that stands against it (spec 2.4, E17)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import AnswerRefused, GraphflowError, ThreadBusy
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.thread import Thread
from graphflow.testing import FakeIds
from tests.launching import launch

IDS = FakeIds()


class Ran(list[str]):
    """Names of the node functions that ran, and of the operations that were done."""


def graph(
    store: Checkpointer, nodes: dict[str, Any], state: dict[str, Any] | None = None, ran: Ran | None = None, **keys: Any
) -> CompiledGraph:
    noted = Ran() if ran is None else ran

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        noted.append(ctx.node)
        return {"n": state["n"] + 1}

    async def asking(state: Any, ctx: Context) -> dict[str, Any]:
        async def act() -> str:
            noted.append(f"{ctx.node} acts")
            return "done"

        await ctx.step("act", act, effects="write", idempotent=True)
        answer = await ctx.ask("how many?", schema={"type": "integer"})
        return {"n": state["n"] + answer}

    properties = {"n": {"type": "integer", "default": 0}, **(state or {})}
    document = {
        "graphflow": "1",
        "start": next(iter(nodes)),
        "nodes": nodes,
        "state": {"type": "object", "properties": properties},
        **keys,
    }
    return load_graph(document, checkpointer=store, ids=IDS, nodes={"work": work, "asking": asking})


def work(after: str = "end", **fields: Any) -> dict[str, Any]:
    return {"use": "node:work", "next": after, **fields}


def ask(after: str = "end", message: str = "ok?", kind: str = "boolean", **fields: Any) -> dict[str, Any]:
    return {"ask": {"message": message, "schema": {"type": kind}, **fields}, "next": after}


async def waiting(app: CompiledGraph, thread_id: str = "t") -> Thread:
    assert (await app.run({}, thread_id)).status == "waiting"
    return app.thread(thread_id)


async def test_a_waiting_thread_goes_on_under_the_new_version_and_its_question_is_asked_anew(store):
    old_ran, new_ran = Ran(), Ran()
    old = graph(store, {"draft": work("approve"), "approve": ask("send"), "send": work()}, ran=old_ran)
    new = graph(
        store,
        {"draft": work("approve"), "approve": ask("check", "really?"), "check": work("send"), "send": work()},
        ran=new_ran,
    )
    thread = await waiting(old)
    (first,) = (await thread.state()).interrupts
    report = await new.thread("t").migrate(by="me")
    assert (report.status, report.from_version, report.to_version) == ("waiting", old.version, new.version)
    state = await new.thread("t").state()
    (again,) = state.interrupts
    assert state.status == "waiting"
    assert (again.reissue_of, again.payload["message"]) == (first.id, "really?")
    assert again.id != first.id
    with pytest.raises(AnswerRefused) as refused:
        await new.answer("t", {first.id: True})
    assert refused.value.code == "answer_stale"
    result = await new.answer("t", {again.id: True})
    assert (result.status, old_ran, new_ran) == ("completed", ["draft"], ["check", "send"])
    top = next(c for c in await new.thread("t").history() if c.source == "migrate")
    assert top.id == report.checkpoint_id
    row = await store.thread("t")
    assert row is not None
    assert row.facts.document == new.version


async def test_without_a_migration_the_thread_stays_with_its_own_version(store):
    ran = Ran()
    old = graph(store, {"approve": ask("a"), "a": work()}, ran=ran)
    new = graph(store, {"approve": ask("b"), "b": work()}, ran=ran)
    await waiting(old)
    await new.answer("t", True)
    assert ran == ["a"]


async def test_renamed_nodes_are_found_by_the_map(store):
    ran = Ran()
    old = graph(store, {"draft": work("approve"), "approve": ask("send"), "send": work()})
    new = graph(store, {"write": work("confirm"), "confirm": ask("mail"), "mail": work()}, ran=ran)
    await waiting(old)
    report = await new.thread("t").migrate({"approve": "confirm", "send": "mail"})
    assert report.nodes == [{"path": "", "from": "approve", "to": "confirm"}]
    assert report.questions[0]["node"] == "confirm"
    assert (await new.answer("t", True)).status == "completed"
    assert ran == ["mail"]


async def test_a_dry_run_says_all_and_changes_nothing(store):
    old = graph(store, {"approve": ask()}, {"gone": {"type": "string", "default": "x"}})
    new = graph(store, {"approve": ask(message="?")}, {"extra": {"type": "string", "default": "new"}})
    thread = await waiting(old)
    before = await thread.history(), await thread.state(), await store.thread("t")
    report = await new.thread("t").migrate(dry_run=True)
    assert (report.added, report.dropped, report.problems, report.checkpoint_id) == (["extra"], ["gone"], [], None)
    assert (await thread.history(), await thread.state(), await store.thread("t")) == before


async def test_every_problem_is_said_at_once_and_nothing_changes(store):
    old = graph(
        store,
        {"approve": ask()},
        {"k": {"type": "string", "default": "x"}, "l": {"type": "array", "default": [1], "x-reducer": "append"}},
    )
    new = graph(
        store,
        {"other": ask()},
        {"k": {"type": "integer", "default": 0}, "l": {"type": "array", "default": []}},
        input={"type": "object", "required": ["topic"], "properties": {"topic": {"type": "string"}}},
    )
    thread = await waiting(old)
    before = await thread.history(), await thread.state()
    with pytest.raises(GraphflowError) as refused:
        await new.thread("t").migrate({"aprove": "other", "approve": "othr"})
    error = refused.value
    assert error.code == "migration_refused"
    assert [problem["where"] for problem in error.detail["problems"]] == [
        "map aprove",
        "map approve",
        "node approve",
        "state k",
        "state l",
        "input",
    ]
    with pytest.raises(GraphflowError) as refused:
        await new.thread("t").migrate({"approve": "other"})
    assert [problem["where"] for problem in refused.value.detail["problems"]] == ["state k", "state l", "input"]
    assert "did you mean" in error.message
    assert (await thread.history(), await thread.state()) == before
    assert (await old.answer("t", True)).status == "completed"


@pytest.mark.parametrize("snapshot", [False, True])
async def test_new_keys_begin_at_their_default_and_a_list_may_become_one_that_grows(store, snapshot, monkeypatch):
    if snapshot:
        monkeypatch.setattr("graphflow.checkpoints.journal.SNAPSHOT_MIN_BYTES", 1)
    old = graph(store, {"approve": ask()}, {"l": {"type": "array", "default": [1, 2]}})
    new = graph(
        store,
        {
            "approve": ask("note"),
            "note": {"use": "node:work", "set": {}, "next": "add"},
            "add": {"ask": {"message": "add?"}, "set": {"l": "[answer]", "log": "[answer]"}, "next": "end"},
        },
        {
            "l": {"type": "array", "default": [], "x-reducer": "append"},
            "log": {"type": "array", "default": ["first"], "x-reducer": "append"},
            "word": {"type": "string", "default": "hi"},
        },
    )
    await waiting(old)
    report = await new.thread("t").migrate()
    assert (report.added, report.rewritten) == (["word", "log"], ["l"])
    await new.answer("t", True)
    await new.answer("t", 3)
    values = (await new.thread("t").state()).values
    assert (list(values["l"]), list(values["log"]), values["word"]) == ([1, 2, 3], ["first", 3], "hi")
    older = (await new.thread("t").history())[-1]
    assert list((await new.thread("t").state(older.id)).values["l"]) == [1, 2]


async def test_what_a_node_had_recorded_before_its_question_is_not_done_again(store):
    old_ran, new_ran = Ran(), Ran()
    old = graph(store, {"act": {"use": "node:asking", "next": "end"}}, ran=old_ran)
    new = graph(store, {"do_it": {"use": "node:asking", "next": "after"}, "after": work()}, ran=new_ran)
    await waiting(old)
    await new.thread("t").migrate({"act": "do_it"})
    result = await new.answer("t", 5)
    assert (result.status, result.state["n"], old_ran, new_ran) == ("completed", 6, ["act acts"], ["after"])


async def test_a_question_inside_a_node_keeps_the_thread_to_a_node_of_the_same_kind(store):
    old = graph(store, {"act": {"use": "node:asking", "next": "end"}})
    new = graph(store, {"act": work()})
    await waiting(old)
    with pytest.raises(GraphflowError, match=r"inside 'act' \(a node with use 'node:asking'\)"):
        await new.thread("t").migrate()
    with pytest.raises(GraphflowError, match="a node with 'ask'"):
        await graph(store, {"act": ask()}).thread("t").migrate()


async def test_frames_of_subgraphs_move_with_their_paths_and_keys(store):
    def child(**nodes: Any) -> dict[str, Any]:
        state = {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}
        return {"graphflow": "1", "start": next(iter(nodes)), "nodes": nodes, "state": state, "result": "state.n"}

    ran = Ran()
    old = graph(store, {"sub": {"graph": child(q=ask("w"), w=work()), "next": "end"}})
    new = graph(
        store,
        {"part": {"graph": child(question=ask("w"), w=work()), "set": {"n": "out"}, "next": "last"}, "last": work()},
        ran=ran,
    )
    await waiting(old)
    report = await new.thread("t").migrate({"sub": "part", "q": "question"})
    assert report.nodes == [{"path": "", "from": "sub", "to": "part"}, {"path": "sub#1", "from": "q", "to": "question"}]
    (asked,) = (await new.thread("t").state()).interrupts
    assert (asked.path, asked.node) == ("part#1", "question")
    result = await new.answer("t", True)
    assert (result.status, result.state["n"], ran) == ("completed", 2, ["w", "last"])


async def test_a_breakpoint_and_the_runs_other_stops_move_along(store):
    ran = Ran()
    old = graph(store, {"a": work("b"), "b": work("c"), "c": work()})
    new = graph(store, {"a": work("x"), "x": work("c"), "c": work()}, ran=ran)
    await old.run({}, "t", interrupt_before=["b", "c"])
    report = await new.thread("t").migrate({"b": "x"})
    (asked,) = (await new.thread("t").state()).interrupts
    assert (asked.kind, asked.node, asked.payload["next"]) == ("breakpoint", "x", "x")
    assert report.forgotten == []
    result = await new.answer("t", {"decision": "continue"})
    assert (result.status, ran) == ("waiting", ["x"])
    assert (await new.answer("t", {"decision": "continue"})).status == "completed"


async def test_visits_are_counted_on_under_the_new_names(store):
    ran = Ran()

    def looping(name: str) -> dict[str, Any]:
        return {name: {**ask(), "next": [{"if": f"visits.{name} < 3", "to": name}, {"to": "end"}]}}

    old, new = (
        graph(store, looping("a"), budget={"maxSteps": 9}),
        graph(store, looping("b"), ran=ran, budget={"maxSteps": 9}),
    )
    await waiting(old)
    await old.answer("t", True)
    await new.thread("t").migrate({"a": "b"})
    assert (await new.answer("t", True)).status == "waiting"
    assert (await new.answer("t", True)).status == "completed"


async def test_a_failed_or_stopped_thread_goes_on_as_another_run(store):
    ran = Ran()
    old = graph(
        store, {"a": work("b"), "b": {**ask(), "next": [{"if": "answer == true", "to": "fail"}, {"to": "end"}]}}
    )
    new = graph(
        store,
        {
            "a": work("b"),
            "b": {"ask": {"message": "m"}, "next": "end"},
        },
        ran=ran,
    )
    await waiting(old)
    failed = await old.answer("t", True)
    assert failed.status == "failed"
    report = await new.thread("t").migrate()
    assert report.status == "failed"
    state = await new.thread("t").state()
    assert (state.status, state.next) == ("stopped", ["b"])
    assert state.run_id != failed.run_id
    assert (await new.resume("t")).status == "waiting"


async def test_an_idle_thread_is_pinned_to_the_new_version(store):
    old = graph(store, {"a": work()}, {"l": {"type": "array", "default": [1]}})
    new = graph(store, {"a": work()}, {"l": {"type": "array", "default": [], "x-reducer": "append"}})
    await old.run({}, "t")
    with pytest.raises(GraphflowError) as refused:
        await new.run({}, "t")
    assert refused.value.code == "state_incompatible"
    assert (await new.thread("t").migrate()).status == "idle"
    assert (await new.thread("t").state()).status == "idle"
    result = await new.run({}, "t")
    assert (result.status, list(result.state["l"])) == ("completed", [1])


async def test_the_same_version_is_no_migration(store):
    app = graph(store, {"approve": ask()})
    thread = await waiting(app)
    before = await thread.history()
    assert (await thread.migrate()).unchanged
    assert await thread.history() == before


async def test_going_back_to_before_the_migration_goes_back_to_the_old_version(store):
    ran = Ran()
    old = graph(store, {"approve": ask("a"), "a": work()}, ran=ran)
    new = graph(store, {"approve": ask("b"), "b": work()}, ran=ran)
    thread = await waiting(old)
    head = (await thread.history())[0]
    await new.thread("t").migrate()
    await new.thread("t").rewind(head.id)
    await new.answer("t", True)
    assert ran == ["a"]


async def test_a_thread_that_a_run_works_on_is_left_alone_and_one_that_only_holds_its_questions_is_not(store):
    old = graph(store, {"approve": ask("a"), "a": work()})
    new = graph(store, {"approve": ask("b"), "b": work()})
    live = await launch(old, {}, "t", hold_ms=60_000)
    assert live.log is not None
    async for event in live.log.follow(0):
        if event.type == "interrupt.request":
            break
    report = await new.thread("t").migrate()
    assert report.status == "waiting"
    assert live.over.is_set()
    row = await store.take("t", owner="else/where/1", now=1, lease_ms=10**15, create=False)
    with pytest.raises(ThreadBusy):
        await new.thread("t").migrate()
    await store.release("t", row.fence)


async def test_what_was_visited_under_the_old_version_counts_for_the_properties_of_the_new(store):
    nodes = {"draft": work("approve"), "approve": ask("hold"), "hold": ask("send"), "send": work()}
    always = ["before send visit approve", "send at most 1"]
    old, new = graph(store, nodes), graph(store, nodes, invariants=always)
    await waiting(old)
    await old.answer("t", True)
    await new.thread("t").migrate()
    assert (await new.answer("t", True)).status == "completed"


async def test_a_thread_that_stands_where_a_property_forbids_it_is_refused(store):
    old = graph(store, {"draft": work("send"), "send": ask()})
    new = graph(
        store,
        {"draft": work("approve"), "approve": ask("send"), "send": ask()},
        invariants=["before send visit approve"],
    )
    await waiting(old)
    with pytest.raises(GraphflowError, match="'approve' has not finished in this run"):
        await new.thread("t").migrate()


async def test_the_log_of_a_waiting_run_goes_on_without_a_gap(store):
    old = graph(store, {"approve": ask("a"), "a": work()})
    new = graph(store, {"approve": ask("b"), "b": work()})
    thread = await waiting(old)
    first = await thread.events()
    await new.thread("t").migrate()
    await new.answer("t", True)
    log = [event for event, _ in await new.thread("t").events()]
    assert [event.seq for event in log] == sorted({event.seq for event in log})
    assert [event.type for event in log][: len(first)] == [event.type for event, _ in first]
    kinds = [event.type for event in log]
    assert kinds.count("interrupt.request") == 2
    assert kinds.count("run.complete") == 1


def fanned(
    fan: str = "fan", first: str = "one", second: str = "two", after: str = "end", **fields: Any
) -> dict[str, Any]:
    """A parallel whose branch `a` works and whose branch `b` asks, then works."""
    return {
        fan: {"parallel": {"a": first, "b": second}, "next": after, **fields},
        first: work(),
        second: ask(f"{second}_more"),
        f"{second}_more": work(),
    }


SUM = {"n": {"type": "integer", "default": 0, "x-reducer": "max"}}


@pytest.mark.parametrize("snapshot", [False, True])
async def test_open_branches_move_along_and_what_has_ended_is_joined_with_them(store, snapshot, monkeypatch):
    if snapshot:
        monkeypatch.setattr("graphflow.checkpoints.journal.SNAPSHOT_MIN_BYTES", 1)
    old_ran, new_ran = Ran(), Ran()
    old = graph(store, fanned(), SUM, ran=old_ran)
    new = graph(store, {**fanned("split", "left", "right", "last"), "last": work()}, SUM, ran=new_ran)
    await waiting(old)
    names = {"fan": "split", "one": "left", "two": "right", "two_more": "right_more"}
    report = await new.thread("t").migrate(names)
    assert report.nodes == [
        {"path": "", "from": "fan", "to": "split"},
        {"path": "fan#1[b]", "from": "two", "to": "right"},
    ]
    (asked,) = (await new.thread("t").state()).interrupts
    assert (asked.path, asked.node) == ("split#1[b]", "right")
    result = await new.answer("t", True)
    assert (result.status, old_ran, new_ran, result.state["n"]) == ("completed", ["one"], ["right_more", "last"], 2)


@pytest.mark.parametrize(
    ("nodes", "state", "where", "words"),
    [
        (
            {**fanned(), "fan": {"parallel": {"a": "one", "c": "two"}, "next": "end"}},
            {},
            "fan#1[b]: node fan",
            "opens others",
        ),
        (fanned(), {"extra": {"type": "integer", "default": 0}}, "node fan", "other state keys: extra"),
        (
            {"fan": {"parallel": {"a": "one", "b": "x"}, "next": "two"}, "one": work(), "x": work(), "two": ask()},
            {},
            "fan#1[b]: node two",
            "outside any branch",
        ),
    ],
)
async def test_open_branches_that_the_new_version_would_not_have_opened_keep_the_thread_back(
    store, nodes, state, where, words
):
    await waiting(graph(store, fanned(), SUM))
    with pytest.raises(GraphflowError) as refused:
        await graph(store, nodes, {**SUM, **state}).thread("t").migrate()
    (problem,) = refused.value.detail["problems"]
    assert problem["where"] == where
    assert words in problem["message"]


async def test_items_of_a_map_with_subgraphs_move_along(store):
    def child(question: str) -> dict[str, Any]:
        state = {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}
        nodes = {question: {**ask(), "set": {"n": "answer ? 1 : 2"}}}
        return {
            "graphflow": "1",
            "start": question,
            "nodes": nodes,
            "state": state,
            "result": "state.n",
            "input": {"type": "object"},
        }

    def mapped(fan: str, question: str) -> dict[str, Any]:
        return {
            fan: {
                "map": "state.items",
                "as": "it",
                "do": {"graph": child(question)},
                "set": {"got": "out"},
                "next": "end",
            }
        }

    state = {"items": {"type": "array", "default": [1, 2]}, "got": {"default": None}}
    old, new = graph(store, mapped("fan", "q"), state), graph(store, mapped("each", "really"), state)
    await waiting(old)
    first = (await old.thread("t").state()).interrupts[0]
    await old.answer("t", {first.id: True})
    await new.thread("t").migrate({"fan": "each", "q": "really"})
    (asked,) = (await new.thread("t").state()).interrupts
    assert (asked.path, asked.node) == ("each#1[1]", "really")
    result = await new.answer("t", False)
    assert (result.status, [item["out"] for item in result.state["got"]]) == ("completed", [1, 2])


async def test_what_branches_finished_under_the_old_version_counts_for_the_properties_of_the_new(store):
    nodes = {**fanned(after="hold"), "hold": ask("send"), "send": work()}
    old = graph(store, nodes, SUM)
    new = graph(store, nodes, SUM, invariants=["before send visit one", "before hold visit fan", "one at most 1"])
    await waiting(old)
    await old.answer("t", True)
    assert (await new.thread("t").migrate()).problems == []
    assert (await new.answer("t", True)).status == "completed"
