"""Time travel with branches half done: states, edits, rewinds, forks and replays inside maps and parallels (E8, E10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import CompiledGraph, Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import AnswerRefused, StateError
from tests.runtime.branches import STATE, WORK, Gates, document, fan

MINE: dict[str, Any] = {"type": "object", "properties": {**STATE, "mine": {"type": "integer", "default": 0, "x-scope": "branch"}}}  # fmt: skip


class Shop:
    """Notes what ran; items 0 and 2 of the map ask how much, item 1 does not."""

    def __init__(self, store: Checkpointer, **fan: Any) -> None:
        self.ran: list[str] = []
        nodes = {
            "fan": {"map": "state.items", "as": "item", "do": "take", "set": {"outs": "out"}, "next": "tell", **fan},
            "take": {"use": "fn:take", "with": {"n": "${item}"}, "set": {"mine": "out"}, "next": "check"},
            "check": {"use": "node:check", "next": [{"if": "state.mine == 20", "to": "thank"}, {"to": "end"}]},
            "thank": {"use": "fn:thank", "set": {"total": "out"}, "next": "end"},
            "tell": {"use": "fn:tell", "set": {"total": "out"}, "next": "end"},
        }
        graph = document(nodes, state=MINE)
        functions = {"take": self.take, "thank": self.thank, "tell": self.tell}
        self.app: CompiledGraph = load_graph(
            graph, checkpointer=store, functions=functions, nodes={"check": self.check}
        )

    async def take(self, n: int) -> int:
        self.ran.append(f"take {n}")
        return 10 * n

    async def check(self, state: Any, ctx: Context) -> dict[str, Any]:
        item = state.mine // 10

        async def look() -> int:
            self.ran.append(f"look {item}")
            return 0

        await ctx.step("look", look, effects="read")
        answer = await ctx.ask(f"item {item}?", schema={"type": "integer"}) if item != 1 else 1
        self.ran.append(f"check {item}")
        return {"results": [answer], "total": answer}

    async def thank(self) -> int:
        self.ran.append("thank")
        return 1000

    async def tell(self) -> int:
        self.ran.append("tell")
        return 100_000

    async def answer_all(self, thread_id: str, **answers: int) -> Any:
        open_ = (await self.app.thread(thread_id).state()).interrupts
        return await self.app.answer(thread_id, {i.id: answers[f"i{i.path[6]}"] for i in open_ if f"i{i.path[6]}" in answers})  # fmt: skip


@pytest.fixture
def shop(store: Checkpointer) -> Shop:
    return Shop(store)


async def test_states_and_differences_of_open_and_ended_branches_are_by_their_path(shop: Shop) -> None:
    await shop.app.run({}, "t")
    thread = shop.app.thread("t")
    first = (await thread.state()).checkpoint_id
    await shop.answer_all("t", i2=7)
    frames = (await thread.state()).frames
    assert {path: list(values["results"]) for path, values in frames.items()} == {
        "fan#1[0]": [],
        "fan#1[1]": [1],
        "fan#1[2]": [7],
    }
    assert first is not None
    changes = await thread.diff(first, (await thread.history())[0].id)
    assert changes == {
        "fan#1[2]/results": [{"op": "add", "path": "/-", "value": 7}],
        "fan#1[2]/total": [{"op": "replace", "path": "", "value": 1007}],
    }


# --- edits


async def test_an_open_branch_is_edited_by_its_path_and_goes_on_with_it(shop: Shop) -> None:
    await shop.app.run({}, "t")
    thread = shop.app.thread("t")
    await thread.edit({"total": 500}, path="fan#1[0]")
    await thread.edit({"results": [5, 6]}, path="fan#1[0]", replace=["results"])
    state = await thread.state()
    assert (state.status, state.frames["fan#1[0]"]["total"], list(state.frames["fan#1[0]"]["results"])) == ("waiting", 500, [5, 6])  # fmt: skip
    result = await shop.answer_all("t", i0=3, i2=4)
    assert (result.status, list(result.state["results"])) == ("completed", [5, 6, 3, 1, 4])
    assert result.state["total"] == 500 + 3 + 1 + 4 + 1000 + 100_000


async def test_an_edit_may_end_a_branch_and_the_last_one_completes_the_join(shop: Shop) -> None:
    first = await shop.app.run({}, "t")
    thread = shop.app.thread("t")
    await thread.edit({"results": [5], "total": 5}, "check", path="fan#1[0]")
    state = await thread.state()
    assert [i.path for i in state.interrupts] == ["fan#1[2]"]
    assert list(state.frames["fan#1[0]"]["results"]) == [5]
    await thread.edit({"results": [6], "total": 6}, "thank", path="fan#1[2]")
    state = await thread.state()
    assert (state.status, state.next, list(state.values["results"]), state.values["total"]) == ("stopped", ["tell"], [5, 1, 6], 12)  # fmt: skip
    result = await shop.app.resume("t")
    assert (result.status, result.state["total"]) == ("completed", 100_012)
    assert [branch["status"] for branch in result.state["outs"]] == ["done"] * 3
    assert shop.ran.count("tell") == 1
    with pytest.raises(AnswerRefused):
        await shop.app.answer("t", {first.interrupts[0].id: 1})


async def test_a_branch_that_waits_frees_its_place_and_an_edit_that_ends_it_gives_none_away(
    store: Checkpointer,
) -> None:
    shop = Shop(store, max=1)
    waiting = await shop.app.run({}, "t")
    assert [i.path for i in waiting.interrupts] == ["fan#1[0]", "fan#1[2]"]
    thread = shop.app.thread("t")
    await thread.edit({"results": [5]}, "check", path="fan#1[0]")
    state = await thread.state()
    assert (state.status, [i.path for i in state.interrupts]) == ("waiting", ["fan#1[2]"])
    assert list((await shop.answer_all("t", i2=7)).state["results"]) == [5, 1, 7]


async def test_what_can_not_be_edited_is_refused_with_what_can(shop: Shop) -> None:
    await shop.app.run({}, "t")
    thread = shop.app.thread("t")
    with pytest.raises(StateError, match="edit one of them by its path") as caught:
        await thread.edit({"total": 1})
    assert (caught.value.code, caught.value.detail["paths"]) == ("invalid_input", ["fan#1[0]", "fan#1[2]"])
    with pytest.raises(StateError, match="needs the path of its frame") as caught:
        await thread.edit({"total": 1}, "check")
    assert caught.value.detail["paths"] == ["", "fan#1[0]", "fan#1[2]"]
    with pytest.raises(StateError, match=r"branch 'fan#1\[1\]' has ended"):
        await thread.edit({"total": 1}, path="fan#1[1]")
    with pytest.raises(StateError, match=r"'tell' is not a node of the body that 'fan#1\[0\]' runs; nodes there: take, check, thank"):  # fmt: skip
        await thread.edit({"total": 1}, "tell", path="fan#1[0]")
    with pytest.raises(StateError, match="'check' is not a node of this graph outside its branches; nodes there: fan, tell") as caught:  # fmt: skip
        await thread.edit({"total": 1}, "check", path="")
    assert caught.value.detail["nodes"] == ["fan", "tell"]
    assert len(await thread.history()) == len(await thread.tree())


async def test_an_edit_as_the_node_that_opened_them_ends_all_branches_and_their_questions(shop: Shop) -> None:
    await shop.app.run({}, "t")
    thread = shop.app.thread("t")
    await thread.edit({"total": 7}, "fan", path="")
    state = await thread.state()
    assert (state.next, state.interrupts, state.frames, state.values["total"]) == (["tell"], (), {}, 7)
    assert (await shop.app.resume("t")).state["total"] == 100_007


# --- rewind, fork, replay


async def row_of(shop: Shop, node: str, place: int = 0) -> Any:
    """A checkpoint in which a node finished, the oldest first."""
    rows = [row for row in await shop.app.thread("t").history() if row.node == node and row.source in ("node", "answer")]  # fmt: skip
    return rows[::-1][place]


async def test_going_back_into_a_map_runs_what_had_not_finished_and_nothing_else(shop: Shop) -> None:
    await shop.app.run({}, "t")
    await shop.answer_all("t", i0=3)
    await shop.answer_all("t", i2=4)
    thread, tree = shop.app.thread("t"), await shop.app.thread("t").tree()
    shop.ran.clear()
    row = next(
        row for row in tree if row.source == "answer"
    )  # the last answer completed the map; before it 0 and 1 had
    await thread.rewind(row.parent or "")
    again = await thread.state()
    assert ([i.path for i in again.interrupts], again.status) == (["fan#1[2]"], "waiting")
    result = await shop.answer_all("t", i2=40)
    assert list(result.state["results"]) == [3, 1, 40]
    assert shop.ran == ["look 2", "check 2", "thank", "tell"]
    kept = {row.id for row in await thread.tree()}
    assert kept >= {row.id for row in tree}


async def test_a_fork_in_a_map_inherits_no_answers_and_no_operations(shop: Shop) -> None:
    first = await shop.app.run({}, "t")
    shop.ran.clear()
    fork = await shop.app.thread("t").fork()
    state = await fork.state()
    assert [(i.path, i.reissue_of) for i in state.interrupts] == [(i.path, i.id) for i in first.interrupts]
    with pytest.raises(AnswerRefused):
        await shop.app.answer(fork.id, {first.interrupts[0].id: 1})
    result = await shop.answer_all(fork.id, i0=8, i2=9)
    assert list(result.state["results"]) == [8, 1, 9]
    assert sorted(shop.ran) == ["check 0", "check 2", "look 0", "look 2", "tell", "thank"]
    assert (await shop.app.thread("t").state()).interrupts == first.interrupts


async def test_a_replay_begins_at_a_node_of_one_branch_however_many_are_open(store: Checkpointer) -> None:
    shop = Shop(store, map="[1, 11, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]")
    waiting = await shop.app.run({}, "t")
    answers = {i.id: 5 for i in waiting.interrupts}
    done = await shop.app.answer("t", answers)
    assert done.status == "completed"
    for until, runs in [
        ("fan#1[11]/take", "take 2"),
        ("fan#1[11]/check", "look 2"),
        ("tell", "tell"),
        ("fan", "take 1"),
    ]:
        shop.ran.clear()
        again = await shop.app.replay("t", until)
        assert runs in shop.ran, until
        while again.status == "waiting":
            again = await shop.app.answer(again.thread_id, {i.id: 5 for i in again.interrupts})
        assert (again.status, again.state) == ("completed", done.state)
    assert "take 1" in shop.ran


async def test_a_fork_with_branches_half_done_runs_only_their_rest(store: Checkpointer) -> None:
    gates = Gates()
    more = {"use": "fn:work", "with": {"n": "${item + 100}"}, "set": {"results": "[out]"}, "next": "end"}
    app = fan(gates, {"work": {**WORK, "next": "more"}, "more": more}, store=store)
    gates.open(0, 100, 1)
    run = asyncio.create_task(app.run({}, "t"))  # noqa: TID251 - awaited below
    await gates.begun_are(0, 1, 2, 100, 101)
    await app.thread("t").cancel()
    await asyncio.gather(run, return_exceptions=True)
    state = await app.thread("t").state()
    assert {path: list(values["results"]) for path, values in state.frames.items()} == {
        "fan#1[0]": [0, 1000],
        "fan#1[1]": [10],
        "fan#1[2]": [],
    }
    fork = await app.thread("t").fork()
    gates.begun.clear()
    gates.open(2, 101, 102)
    for thread_id in (fork.id, "t"):
        result = await app.resume(thread_id)
        assert (list(result.state["results"]), result.state["total"]) == ([0, 1000, 10, 1010, 20, 1020], 30)
        assert sorted(gates.begun) == [2, 101, 102]
        gates.begun.clear()


async def test_time_travel_reaches_a_subgraph_inside_one_item(store: Checkpointer) -> None:
    inner = {
        "graphflow": "1", "start": "first", "result": "state.log",
        "state": {"type": "object", "properties": {"log": {"type": "array", "x-reducer": "append", "default": []}}},
        "nodes": {
            "first": {"ask": {"message": "first?", "schema": {"type": "string"}}, "set": {"log": "[answer]"}, "next": "second"},
            "second": {"ask": {"message": "second?", "schema": {"type": "string"}}, "set": {"log": "[answer]"}, "next": "end"},
        },
    }  # fmt: skip
    nodes = {
        "fan": {"map": "[1, 2]", "as": "item", "do": "sub", "next": "end"},
        "sub": {"graph": inner, "set": {"results": "out"}, "next": "end"},
    }
    app = load_graph(document(nodes), checkpointer=store)
    thread = app.thread("t")

    async def say(**words: str) -> Any:
        open_ = (await thread.state()).interrupts
        return await app.answer("t", {i.id: words[f"i{i.path[6]}"] for i in open_ if f"i{i.path[6]}" in words})

    await app.run({}, "t")
    await say(i0="a", i1="b")
    between = (await thread.history())[0].id
    await say(i0="c", i1="d")
    assert list((await thread.state()).values["results"]) == ["a", "c", "b", "d"]
    await thread.rewind(between)
    state = await thread.state()
    assert {path: list(values["log"]) for path, values in state.frames.items() if "/" in path} == {"fan#1[0]/sub#1": ["a"], "fan#1[1]/sub#1": ["b"]}  # fmt: skip
    assert [(i.path, i.node) for i in state.interrupts] == [("fan#1[0]/sub#1", "second"), ("fan#1[1]/sub#1", "second")]
    await thread.edit({"log": ["x"]}, "second", path="fan#1[1]/sub#1", by="ada")
    state = await thread.state()
    assert list(state.frames["fan#1[1]"]["results"]) == ["b", "x"]
    result = await say(i0="z")
    assert (result.status, list(result.state["results"])) == ("completed", ["a", "z", "b", "x"])
    found = await thread.blame("state.results[3]")
    assert [(b.path, b.node, b.source) for b in (found, found.branches[0])] == [("", "fan", "answer"), ("fan#1[1]", "sub", "edit")]  # fmt: skip
