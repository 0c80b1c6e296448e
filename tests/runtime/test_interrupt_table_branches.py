"""Questions in branches of `map` and `parallel`: the cases of docs/internals/conformance.md's table that need them (E5, E10, E13)."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter as Count
from typing import Any

import pytest

from graphflow import Context, load_graph, tool
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.errors import AnswerRefused
from graphflow.graph.core.machine import Interrupt
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.launch import launch_answer
from graphflow.testing import FakeClock, FakeIds, collect
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.questions import forget

STATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "default": ["a", "b", "c"]},
        "log": {"type": "array", "default": [], "x-reducer": "append"},
        "done": {"default": None},
    },
}
ROUTE = [{"if": "item == 'b'", "to": "free"}, {"to": "ask"}]
"""Two of three items ask; the other goes on by itself."""


def reviews(store: Checkpointer, ran: Count[str], **changes: Any) -> CompiledGraph:
    """`map` over three items: each is prepared, two ask a person, each is filed; then a node after the join."""
    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "prepare", "set": {"done": "out"}, "next": "after"},
        "prepare": {"use": "fn:prepare", "with": {"item": "${item}"}, "set": {"log": "[out]"}, "next": ROUTE},
        "ask": {
            "ask": {"message": "keep ${item}?", "schema": {"type": "boolean"}},
            "set": {"log": "[item + ' ' + string(answer)]"},
            "next": "file",
        },
        "free": {"use": "fn:free", "with": {"item": "${item}"}, "next": "file"},
        "file": {"use": "fn:file", "with": {"item": "${item}"}, "set": {"log": "[out]"}},
        "after": {"use": "fn:after"},
    }
    nodes["fan"] |= changes.pop("fan", {})
    nodes |= changes

    def count(name: str) -> Any:
        async def run(item: str = "") -> str:
            ran[f"{name} {item}".strip()] += 1
            return f"{name} {item}".strip()

        return run

    functions = {name: count(name) for name in ("prepare", "free", "file", "after")}
    document = {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes, "budget": {"maxSteps": 100}}
    return load_graph(document, checkpointer=store, functions=functions, ids=FakeIds())


def item_of(asked: Interrupt) -> str:
    return str(asked.payload["message"]).split()[1].rstrip("?")


ORDERS: list[Any] = [*itertools.permutations(["a", "c"]), ["a c"]]


@pytest.mark.parametrize("order", ORDERS, ids=" then ".join)
@pytest.mark.parametrize("restarted", [False, True], ids=["hot", "restarted"])
async def test_questions_in_two_of_three_items_are_answered_in_any_order_and_everything_runs_once(
    store: Checkpointer, order: list[str], restarted: bool
) -> None:
    ran: Count[str] = Count()
    app = reviews(store, ran)
    waiting = await app.run({}, thread_id="t")
    asked = {item_of(i): i for i in waiting.interrupts}
    assert sorted(asked) == ["a", "c"]
    assert [asked[name].path for name in ("a", "c")] == ["fan#1[0]", "fan#1[2]"]
    result: Any = waiting
    for names in order:
        if restarted:
            forget(app)
            app = reviews(store, ran)
        result = await app.answer("t", {asked[name].id: name == "a" for name in names.split()})
    assert result.status == "completed"
    assert set(ran.values()) == {1}
    assert ran.total() == 3 + 1 + 3 + 1
    assert [entry["index"] for entry in result.state.done] == [0, 1, 2]
    expected = ["prepare a", "a true", "file a", "prepare b", "file b", "prepare c", "c false", "file c"]
    assert list(result.state.log) == expected, "writes are reduced in the order of the items"


async def test_a_bare_answer_is_refused_while_two_items_ask(store: Checkpointer) -> None:
    app = reviews(store, Count())
    waiting = await app.run({}, thread_id="t")
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", True)
    assert caught.value.code == "answer_ambiguous"
    first, second = waiting.interrupts
    assert [i.id for i in (await app.answer("t", {first.id: True})).interrupts] == [second.id]
    assert (await app.answer("t", True)).status == "completed"


async def test_an_answer_while_a_sibling_still_runs_neither_cancels_it_nor_runs_it_again(store: Checkpointer) -> None:
    begun, gate, ran = asyncio.Event(), asyncio.Event(), Count[str]()

    async def work() -> str:
        ran["work"] += 1
        begun.set()
        await gate.wait()
        ran["worked"] += 1
        return "worked"

    nodes = {
        "fan": {"parallel": {"person": "ask", "machine": "work"}, "set": {"done": "out"}},
        "ask": {"ask": {"message": "well?", "schema": {"type": "string"}}, "set": {"log": "[answer]"}},
        "work": {"use": "fn:work", "set": {"log": "[out]"}},
    }
    document = {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes}
    app = load_graph(document, checkpointer=store, functions={"work": work}, ids=FakeIds())
    live = await launch(app, {}, "t", hold_ms=60_000)
    assert live.log is not None
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(0):
            if event.type == "interrupt.request":
                await begun.wait()
                live.executor.answer(event.interrupt_id, "yes", "answered")  # type: ignore[attr-defined]
            if event.type == "interrupt.resolve":
                assert ran == {"work": 1}, "the sibling goes on"
                gate.set()
        await live.over.wait()
    state = await app.thread("t").state()
    assert (state.status, list(state.values.log)) == ("idle", ["yes", "worked"])
    assert ran == {"work": 1, "worked": 1}


async def test_when_the_join_needs_no_more_the_open_questions_of_the_others_are_closed(store: Checkpointer) -> None:
    ran: Count[str] = Count()
    app = reviews(store, ran, fan={"join": {"wait": 2}})
    waiting = await app.run({}, thread_id="t")
    asked = {item_of(i): i for i in waiting.interrupts}
    done = await app.answer("t", {asked["c"].id: True})
    assert (done.status, done.interrupts) == ("completed", ())
    with pytest.raises(AnswerRefused) as caught:
        await app.answer("t", {asked["a"].id: True})
    assert (caught.value.code, ran["file a"], ran["after"]) == ("answer_stale", 0, 1)


async def test_a_failed_item_that_is_collected_leaves_the_questions_of_its_siblings_open(store: Checkpointer) -> None:
    ran: Count[str] = Count()
    wrong = {"use": "fn:free", "with": {"item": "${item}"}, "set": {"log": "[state.items[99]]"}, "next": "file"}
    app = reviews(store, ran, fan={"join": {"onError": "collect"}}, free=wrong)
    waiting = await app.run({}, thread_id="t")
    assert sorted(map(item_of, waiting.interrupts)) == ["a", "c"]
    forget(app)
    done = await app.answer("t", {i.id: True for i in waiting.interrupts})
    assert [entry["status"] for entry in done.state.done] == ["done", "failed", "done"]
    assert (ran["file a"], ran["file b"], ran["file c"]) == (1, 0, 1)


async def test_ending_the_run_by_one_branchs_answer_closes_the_questions_of_all(store: Checkpointer) -> None:
    paid: list[str] = []

    @tool(
        parameters={"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
        approval_hint="It is dear.",
    )
    async def pay(to: str) -> str:
        """Pays."""
        paid.append(to)
        return to

    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "pay", "next": "end"},
        "pay": {"use": "tool:pay", "with": {"to": "${item}"}},
    }
    document = {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes}
    app = load_graph(document, checkpointer=store, tools=[pay], ids=FakeIds())
    a, _, c = (await app.run({}, thread_id="t")).interrupts
    waiting = await app.answer("t", {c.id: {"decision": "approve"}})
    assert (waiting.status, paid, len(waiting.interrupts)) == ("waiting", ["c"], 2)
    done = await app.answer("t", {a.id: {"decision": "terminate"}})
    assert (done.status, done.finish_reason, done.interrupts, paid) == ("completed", "rejected", (), ["c"])


async def test_the_third_round_of_asking_again_inside_an_item_works_like_the_first(store: Checkpointer) -> None:
    again = [{"if": "answer == false && visits.ask < 4", "to": "ask"}, {"to": "file"}]
    ask = {"ask": {"message": "keep ${item}?", "schema": {"type": "boolean"}}, "next": again}
    ran: Count[str] = Count()
    app = reviews(store, ran, ask=ask)
    waiting: Any = await app.run({}, thread_id="t")
    seen = set()
    for _ in range(3):
        asked = next(i for i in waiting.interrupts if item_of(i) == "a")
        seen.add(asked.id)
        forget(app)
        waiting = await app.answer("t", {asked.id: False})
    last = {i.id: True for i in waiting.interrupts}
    assert len(last) == 2
    assert len(seen | set(last)) == 5
    done = await app.answer("t", last)
    assert (done.status, set(ran.values())) == ("completed", {1})


async def test_a_question_in_a_subgraph_inside_an_item_bears_its_whole_path(store: Checkpointer) -> None:
    inner = {
        "graphflow": "1",
        "input": {"type": "object"},
        "state": {"type": "object", "properties": {"x": {"type": "integer", "default": 0}}},
        "result": "state.x",
        "start": "number",
        "nodes": {"number": {"ask": {"message": "which?", "schema": {"type": "integer"}}, "set": {"x": "answer"}}},
    }
    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "down", "set": {"done": "out.map(o, o.out)"}},
        "down": {"graph": inner, "set": {"log": "[out]"}},
    }
    app = load_graph(
        {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes}, checkpointer=store, ids=FakeIds()
    )
    waiting = await app.run({}, thread_id="t")
    assert [i.path for i in waiting.interrupts] == [f"fan#1[{n}]/down#1" for n in range(3)]
    for number, asked in reversed(list(enumerate(waiting.interrupts))):
        forget(app)
        waiting = await app.answer("t", {asked.id: number})
    assert (waiting.status, list(waiting.state.done), list(waiting.state.log)) == ("completed", [0, 1, 2], [0, 1, 2])


async def test_an_item_whose_question_expires_fails_alone_where_failures_are_collected(store: Checkpointer) -> None:
    clock = FakeClock()
    nodes = {
        "fan": {
            "map": "state.items", "as": "item", "do": "ask", "join": {"onError": "collect"},
            "set": {"done": "out.map(o, o.status)"},
        },
        "ask": {"ask": {"message": "keep ${item}?", "expires": "PT1M", "schema": {"type": "boolean"}}},
    }  # fmt: skip
    document = {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes}
    app = load_graph(document, checkpointer=store, ids=FakeIds(), clock=clock)
    a, b, c = (await app.run({}, thread_id="t")).interrupts
    await app.answer("t", {b.id: True})
    clock.advance(61)
    for asked in (a, c):
        with pytest.raises(AnswerRefused) as caught:
            await app.answer("t", {asked.id: True})
        assert caught.value.code == "answer_stale"
    state = await app.thread("t").state()
    assert (state.status, list(state.values.done)) == ("idle", ["failed", "done", "failed"])


async def test_a_node_that_asks_by_itself_in_each_branch_does_its_operations_once(store: Checkpointer) -> None:
    ran: Count[str] = Count()

    async def review(state: Any, ctx: Context) -> dict[str, Any]:
        path = next(i for i in itertools.count() if f"begun {i}" not in ran)
        ran[f"begun {path}"] += 1

        async def act() -> str:
            ran["acted"] += 1
            return "acted"

        await ctx.step("act", act)
        return {"log": [await ctx.ask("well?", schema={"type": "string"})]}

    nodes = {
        "fan": {"parallel": {name: name for name in ("one", "two", "three")}},
        **{name: {"use": "node:review"} for name in ("one", "two", "three")},
    }
    document = {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes}
    app = load_graph(document, checkpointer=store, nodes={"review": review}, ids=FakeIds())
    waiting: Any = await app.run({}, thread_id="t")
    assert len(waiting.interrupts) == 3
    words = {i.id: i.path for i in waiting.interrupts}
    for key in reversed(list(words)):
        forget(app)
        waiting = await app.answer("t", {key: words[key]})
    assert (waiting.status, ran["acted"]) == ("completed", 3)
    assert list(waiting.state.log) == ["fan#1[one]", "fan#1[two]", "fan#1[three]"]


async def test_a_node_that_holds_its_question_keeps_nobody_elses_answer_waiting(store: Checkpointer) -> None:
    """Two branches ask by themselves, one after the other; the first answer goes on although the second one waits."""
    first = asyncio.Event()

    async def ask(state: Any, ctx: Context) -> dict[str, Any]:
        return {"log": [await ctx.ask(f"{ctx.node}?", schema={"type": "string"})]}

    async def work(state: Any) -> dict[str, Any]:
        first.set()
        return {"log": ["worked"]}

    nodes = {
        "fan": {"parallel": {"one": "form", "two": "ask"}, "set": {"done": "out"}},
        "form": {"ask": {"message": "form?"}, "next": "work"},
        "work": {"use": "node:work"},
        "ask": {"use": "node:ask"},
    }
    document = {"graphflow": "1", "start": "fan", "state": STATE, "nodes": nodes}
    app = load_graph(document, checkpointer=store, nodes={"ask": ask, "work": work}, ids=FakeIds())
    await app.run({}, thread_id="t", interrupt_before=["fan"])
    live = await launch_answer(app.host, "t", {"decision": "continue"}, hold_ms=60_000)
    assert live.log is not None
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(live.log.mark):
            if event.type == "interrupt.request" and len(live.executor.machine.interrupts) == 2:
                form = next(i for i in live.executor.machine.interrupts.values() if i.node == "form")
                live.executor.answer(form.id, "yes", "answered")
                await first.wait()
                live.executor.release()
        await live.over.wait()
    (left,) = (await app.thread("t").state()).interrupts
    assert (await app.answer("t", {left.id: "two"})).status == "completed"


async def test_branches_that_wait_at_once_are_logged_as_they_were_announced(store: Checkpointer) -> None:
    """The fan's own `node.start` comes between the commit and what follows it (E1)."""
    app = reviews(store, Count())
    sent = await collect(app.stream({}, thread_id="t", interrupt_before=["prepare"]))
    assert [e.type for e in sent].count("interrupt.request") == 3
    stored = [event for event, _ in await app.thread("t").events()]
    assert stored == sent
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.mark == sent[-1].seq


async def test_while_a_question_is_held_no_number_is_promised_to_what_is_still_to_be_said(store: Checkpointer) -> None:
    """An answer to another question, or a cancel, may be heard before a commit is durable and announced (E1)."""
    app = reviews(store, Count())
    live = await launch(app, {}, "t", hold_ms=60_000)
    assert live.log is not None
    async with asyncio.timeout(PATIENCE_S):
        async for event in live.log.follow(0):
            if event.type == "interrupt.request" and len(live.executor.machine.interrupts) == 2:
                await live.executor.flush()
                loaded = await load_thread(store, "t")
                assert loaded is not None
                assert loaded.pending
                assert all(number > loaded.mark for _, number in loaded.pending)
                break
    live.executor.cancel()
    await live.over.wait()
