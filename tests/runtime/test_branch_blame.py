"""Who wrote a value that a join reduced, down to the branch, its node and visit; and why branches went where they went."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.errors import StateError
from graphflow.runtime.history.blame import Blame
from graphflow.runtime.history.walk import walk_back
from tests.runtime.branches import STATE, WORK, Gates, document, fan
from tests.runtime.test_branch_travel import Shop

KEYS: dict[str, Any] = {
    **STATE,
    "notes": {"type": "object", "x-reducer": "merge", "default": {}},
    "best": {"type": "integer", "x-reducer": "max", "default": 0},
    "seen": {"type": "array", "x-reducer": "union", "default": []},
    "word": {"type": "string", "default": ""},
}


def who(blame: Blame) -> tuple[Any, ...]:
    return (blame.path, blame.node, blame.visit, blame.value)


def down(blame: Blame) -> list[tuple[Any, ...]]:
    """The first write on each level."""
    return [who(blame), *(down(blame.branches[0]) if blame.branches else [])]


def nested(store: Checkpointer, **outer: Any) -> Any:
    nodes = {
        "outer": {"map": "[[1, 2], [3]]", "as": "row", "do": "inner", "set": {"results": "[99]"}, "next": "last", **outer},
        "inner": {"map": "row", "as": "cell", "do": "work", "set": {"total": "100", "best": "50"}, "next": "end"},
        "work": {
            "use": "fn:work", "with": {"n": "${cell}"}, "next": "again",
            "set": {"results": "[out]", "total": "out", "best": "out", "seen": "[out % 20]", "notes": "{string(out): row, 'all': out}"},
        },
        "again": {"use": "fn:work", "with": {"n": "${cell}"}, "set": {"total": "1"}, "next": [{"if": "visits.again < 2", "to": "again"}, {"to": "end"}]},
        "last": {"use": "fn:work", "with": {"n": "${7}"}, "set": {"results": "[out]"}, "next": "end"},
    }  # fmt: skip
    graph = document(nodes, state={"type": "object", "properties": KEYS}, budget={"maxSteps": 100})
    return load_graph(graph, checkpointer=store, functions={"work": Gates(open_from_start=True).work})


async def test_an_item_of_a_list_is_traced_through_every_join_to_the_node_that_wrote_it(store: Checkpointer) -> None:
    app = nested(store)
    await app.run({}, "t")
    thread = app.thread("t")
    found = [down(await thread.blame(f"state.results[{i}]")) for i in range(5)]
    assert found == [
        [("", "outer", 1, 10), ("outer#1[0]", "inner", 1, 10), ("outer#1[0]/inner#1[0]", "work", 1, 10)],
        [("", "outer", 1, 20), ("outer#1[0]", "inner", 1, 20), ("outer#1[0]/inner#1[1]", "work", 1, 20)],
        [("", "outer", 1, 30), ("outer#1[1]", "inner", 1, 30), ("outer#1[1]/inner#1[0]", "work", 1, 30)],
        [("", "outer", 1, 99)],
        [("", "last", 1, 70)],
    ]


async def test_of_a_sum_over_many_branches_the_past_is_read_once_for_all_of_them(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {
        "fan": {"map": str(list(range(50))), "as": "item", "do": "work", "next": "end"},
        "work": {**WORK, "set": {"total": "1"}, "next": "end"},
    }
    graph = document(nodes, state={"type": "object", "properties": KEYS}, budget={"maxSteps": 500})
    app = load_graph(graph, checkpointer=store, functions={"work": Gates(open_from_start=True).work})
    await app.run({}, "t")
    walks: list[str] = []

    def noted(store: Checkpointer, thread_id: str, chain: Any, **options: Any) -> Any:
        walks.append(thread_id)
        return walk_back(store, thread_id, chain, **options)

    monkeypatch.setattr("graphflow.runtime.history.provenance.walk_back", noted)
    found = await app.thread("t").blame("state.total")
    assert (found.value, len(found.branches)) == (50, 50)
    assert len(walks) <= 3


async def test_of_a_sum_every_write_is_told_in_the_order_in_which_it_was_added(store: Checkpointer) -> None:
    app = nested(store)
    await app.run({}, "t")
    found = await app.thread("t").blame("state.total")
    assert (who(found)[:3], found.value) == (("", "outer", 1), 266)
    inner = [each for each in found.branches if each.node == "inner"]
    assert [each.path for each in inner] == ["outer#1[0]", "outer#1[1]"]
    wrote = [who(each) for row in inner for each in row.branches]
    assert wrote == [
        (path, node, visit, value)
        for path, n in [("outer#1[0]/inner#1[0]", 1), ("outer#1[0]/inner#1[1]", 2), ("outer#1[1]/inner#1[0]", 3)]
        for node, visit, value in [("work", 1, 10 * n), ("again", 1, 1), ("again", 2, 1)]
    ]


async def test_of_a_part_of_a_merged_object_the_last_writer_in_branch_order_is_told(store: Checkpointer) -> None:
    app = nested(store, max=1)
    await app.run({}, "t")
    thread = app.thread("t")
    assert down(await thread.blame("state.notes['20']"))[-1] == ("outer#1[0]/inner#1[1]", "work", 1, [1, 2])
    assert down(await thread.blame("state.notes.all"))[-1] == ("outer#1[1]/inner#1[0]", "work", 1, 30)
    best = await thread.blame("state.best")
    assert best.value == 50


async def test_an_item_that_several_wrote_is_the_first_one_s_in_a_union(store: Checkpointer) -> None:
    app = nested(store)
    await app.run({}, "t")
    thread = app.thread("t")
    assert list((await thread.state()).values["seen"]) == [10, 0]
    assert [down(await thread.blame(f"state.seen[{i}]"))[-1][0] for i in (0, 1)] == ["outer#1[0]/inner#1[0]", "outer#1[0]/inner#1[1]"]  # fmt: skip


async def test_a_key_that_is_replaced_is_the_later_branch_s_and_the_earlier_shows_inside_it(
    store: Checkpointer,
) -> None:
    nodes = {
        "both": {"parallel": {"late": {"do": "second", "after": ["soon"]}, "soon": "first"}, "next": "end"},
        "first": {"use": "fn:work", "with": {"n": "${1}"}, "set": {"word": "'first'", "results": "[out]"}, "next": "end"},
        "second": {"ask": {"message": "?", "schema": {"type": "string"}}, "set": {"word": "answer", "results": "[2]"}, "next": "end"},
    }  # fmt: skip
    graph = document(nodes, state={"type": "object", "properties": KEYS}, budget={"maxSteps": 100})
    app = load_graph(graph, checkpointer=store, functions={"work": Gates(open_from_start=True).work})
    await app.run({}, "t")
    thread = app.thread("t")
    inside = await thread.blame("state.word", path="both#1[late]")
    assert who(inside) == ("both#1[soon]", "first", 1, "first")
    assert who(await thread.blame("state.results[0]", path="both#1[late]")) == ("both#1[soon]", "first", 1, 10)
    assert who(await thread.blame("state.results[0]", path="both#1[soon]")) == ("both#1[soon]", "first", 1, 10)
    assert (await thread.blame("state.items", path="both#1[late]")).source == "input"
    await app.answer("t", "second", by="ada")
    assert down(await thread.blame("state.word")) == [
        ("", "both", 1, "second"),
        ("both#1[late]", "second", 1, "second"),
    ]
    assert [down(await thread.blame(f"state.results[{i}]"))[-1][:2] for i in (0, 1)] == [("both#1[soon]", "first"), ("both#1[late]", "second")]  # fmt: skip
    with pytest.raises(StateError):
        await thread.blame("state.word", path="both#1[late]")


async def test_losers_and_failures_are_nobody_s_writes(store: Checkpointer) -> None:
    gates = Gates(open_from_start=True)
    gates.failing.add(1)
    app = fan(gates, store=store, join={"onError": "collect"})
    await app.run({}, "t")
    found = await app.thread("t").blame("state.total")
    assert [who(each) for each in found.branches] == [("fan#1[0]", "work", 1, 0), ("fan#1[2]", "work", 1, 20)]
    assert down(await app.thread("t").blame("state.results[1]"))[-1] == ("fan#1[2]", "work", 1, 20)
    assert (await app.thread("t").blame("state.outs")).branches == ()


async def test_what_an_edit_wrote_in_a_branch_is_the_edit_s(store: Checkpointer) -> None:
    shop = Shop(store)
    await shop.app.run({}, "t")
    thread = shop.app.thread("t")
    await thread.edit({"results": [55]}, "check", path="fan#1[0]", by="ada")
    inside = await thread.blame("state.results[0]", path="fan#1[0]")
    assert (inside.source, inside.node, inside.by) == ("edit", "check", "ada")
    assert (await shop.answer_all("t", i2=7)).status == "completed"
    found = await thread.blame("state.results[0]")
    assert down(found) == [("", "fan", 1, 55), ("fan#1[0]", "check", 1, 55)]
    assert (found.branches[0].source, found.branches[0].by) == ("edit", "ada")


# --- why


async def test_why_tells_a_branch_s_last_route_its_join_s_and_what_came_between(store: Checkpointer) -> None:
    work = {**WORK, "next": [{"if": "out > 10 && state.total > 5", "to": "more"}, {"to": "end"}]}
    more = {"use": "fn:work", "with": {"n": "${item}"}, "next": [{"if": "visits.more < 1", "to": "more"}, {"if": "state.total >= 20", "to": "end"}, {"to": "more"}]}  # fmt: skip
    nodes = {
        "fan": {
            "map": "state.items", "as": "item", "do": "work", "max": 1,
            "next": [{"if": "size(out) == 2", "to": "end"}, {"if": "state.total == 30", "to": "done"}, {"to": "end"}],
        },
        "work": work, "more": more, "done": {**WORK, "with": {"n": "${5}"}},
    }  # fmt: skip
    app = load_graph(
        document(nodes, budget={"maxSteps": 100}),
        checkpointer=store,
        functions={"work": Gates(open_from_start=True).work},
    )
    await app.run({}, "t")
    thread = app.thread("t")
    rows = {(row.node, row.next[0] if row.next else ""): row for row in await thread.history()}
    first = (await thread.why(rows["work", "fan#1[1]/work"].id)).decisions
    assert [(d.path, d.node, d.to, d.how) for d in first] == [("fan#1[0]", "work", "end", "condition")]
    assert first[0].conditions[0].values == {"out": 0, "state.total": 0}
    last = (await thread.why(rows["more", "done"].id)).decisions
    assert [(d.path, d.node, d.to, d.how) for d in last] == [
        ("fan#1[2]", "more", "end", "condition"),
        ("", "fan", "done", "condition"),
    ]
    assert [c.values for c in last[0].conditions] == [{"visits.more": 1}, {"state.total": 20}, {}]
    assert [(c.held, c.values) for c in last[1].conditions] == [(False, {"out": "list of 3"}), (True, {"state.total": 30}), (None, {})]  # fmt: skip


async def test_why_tells_what_became_of_a_failure_on_every_level(store: Checkpointer) -> None:
    gates = Gates(open_from_start=True)
    gates.failing.add(1)
    after = {**WORK, "with": {"n": "${7}"}}
    app = fan(gates, {"after": after}, store=store, max=1, error=[{"on": ["node_error"], "to": "after"}])
    await app.run({}, "t")
    row = next(row for row in await app.thread("t").history() if row.next == ["after"])
    told = (await app.thread("t").why(row.id)).decisions
    assert [(d.path, d.node, d.to, d.how) for d in told] == [("fan#1[1]", "work", "fail", "failed"), ("", "fan", "after", "error")]  # fmt: skip
    assert told[1].error == {"code": "node_error", "message": told[0].error["message"]}  # type: ignore[index]

    skipping = fan(gates, store=store, max=1, join={"onError": "skip"})
    await skipping.run({}, "u")
    row = next(row for row in await skipping.thread("u").history() if row.next == ["fan#1[2]/work"])
    told = (await skipping.thread("u").why(row.id)).decisions
    assert [(d.path, d.node, d.to, d.how) for d in told] == [("fan#1[1]", "work", "end", "skip")]
