"""Branches are opened in windows: how many work at once is kept with the run, and a branch that waits frees its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphflow import Bounds, CompiledGraph, Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from tests.launching import launch
from tests.patience import PATIENCE_S
from tests.runtime.branches import STATE, document

ASKS: dict[str, Any] = {"ask": {"message": "item ${item}?", "holdMs": 0}, "set": {"results": "[answer]"}, "next": "end"}


def fan(store: Checkpointer | None, crowd: Crowd, bounds: Bounds | None = None, **fields: Any) -> CompiledGraph:
    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "work", "next": "end", **fields},
        "work": {"use": "fn:work", "with": {"n": "${item}"}, "set": {"results": "[out]"}, "next": "end"},
    }
    return load_graph(document(nodes, state=of(10)), checkpointer=store, functions={"work": crowd.work}, bounds=bounds)


def of(count: int) -> dict[str, Any]:
    """A state whose `items` are so many numbers."""
    items = {"type": "array", "default": list(range(count))}
    return {"type": "object", "properties": {**STATE, "items": items}}


class Crowd:
    """Work that lets the others have their turn, and counts how many do it at once."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.failing: set[int] = set()
        self.at_once = self.most = 0

    async def work(self, n: int) -> int:
        self.begun.append(n)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            self.at_once -= 1
        if n in self.failing:
            raise ValueError(f"work {n} failed")
        return 10 * n


@pytest.mark.parametrize(("bounds", "fields", "most"), [(Bounds(map_max=3), {}, 3), (Bounds(map_max=3), {"max": 5}, 5), (None, {}, 10)])  # fmt: skip
async def test_at_most_the_window_works_at_once_and_results_are_in_input_order(
    bounds: Bounds | None, fields: dict[str, Any], most: int
) -> None:
    crowd = Crowd()
    done = await fan(None, crowd, bounds, **fields).run({})
    assert (done.status, list(done.state["results"])) == ("completed", [10 * n for n in range(10)])
    assert (crowd.most, crowd.begun) == (most, list(range(10)))


async def test_a_branch_of_a_parallel_begins_when_another_has_ended() -> None:
    crowd = Crowd()
    nodes: dict[str, Any] = {"fan": {"parallel": {f"b{n}": f"w{n}" for n in range(6)}, "next": "end"}}
    for n in range(6):
        nodes[f"w{n}"] = {"use": "fn:work", "with": {"n": n}, "set": {"results": "[out]"}, "next": "end"}
    app = load_graph(document(nodes, state=of(0)), functions={"work": crowd.work}, bounds=Bounds(map_max=2))
    done = await app.run({})
    assert (list(done.state["results"]), crowd.most) == ([0, 10, 20, 30, 40, 50], 2)


async def test_a_branch_that_waits_frees_its_place_so_all_questions_are_asked(store: Checkpointer) -> None:
    nodes = {"fan": {"map": "state.items", "as": "item", "do": "work", "max": 2, "next": "end"}, "work": ASKS}
    app = load_graph(document(nodes, state=of(5)), checkpointer=store)
    waiting = await app.run({}, "t")
    assert [i.path for i in waiting.interrupts] == [f"fan#1[{n}]" for n in range(5)]
    done = await app.answer("t", {i.id: i.path for i in reversed(waiting.interrupts)})
    assert (done.status, list(done.state["results"])) == ("completed", [f"fan#1[{n}]" for n in range(5)])


@pytest.mark.parametrize("below", [False, True], ids=["a branch", "a subgraph of a branch"])
async def test_a_branch_that_waits_frees_its_place_also_while_its_process_holds_the_question(
    store: Checkpointer, below: bool
) -> None:
    async def ask(state: Any, ctx: Context) -> None:
        await ctx.ask("which?", schema={"type": "string"})

    act: dict[str, Any] = {"use": "node:ask", "next": "end"}
    inner = {"graph": {"graphflow": "1", "start": "act", "nodes": {"act": act}}}
    nodes = {"fan": {"map": "state.items", "as": "item", "do": inner if below else "act", "max": 1, "next": "end"}}
    app = load_graph(
        document(nodes if below else {**nodes, "act": act}, state=of(3)), checkpointer=store, nodes={"ask": ask}
    )
    async with asyncio.timeout(PATIENCE_S):
        live = await launch(app, {}, "t")
        while len(asked := list(live.executor.machine.interrupts)) < 3:
            await asyncio.sleep(0)
        done = await app.answer("t", dict.fromkeys(asked, "this"))
    assert done.status == "completed"


async def test_a_branch_of_which_all_that_is_open_waits_frees_its_place_too(store: Checkpointer) -> None:
    inner = {
        "graphflow": "1",
        "start": "work",
        "nodes": {"work": {"ask": {"message": "so?", "holdMs": 0}, "next": "end"}},
    }
    nodes = {
        "fan": {"map": "state.items", "as": "item", "do": "below", "max": 1, "next": "end"},
        "below": {"map": "[1, 2]", "as": "part", "do": {"graph": inner}, "max": 1, "next": "end"},
    }
    app = load_graph(document(nodes, state=of(3)), checkpointer=store)
    waiting = await app.run({}, "t")
    assert len(waiting.interrupts) == 6
    done = await app.answer("t", {i.id: "yes" for i in waiting.interrupts})
    assert done.status == "completed"


async def test_a_run_keeps_the_window_that_it_began_with(store: Checkpointer) -> None:
    """The settings may change between two processes; a run goes on as it began."""
    crowd = Crowd()
    crowd.failing = {4}
    failed = await fan(store, crowd, Bounds(map_max=2)).run({}, "t")
    assert (failed.status, crowd.most) == ("failed", 2)
    crowd.failing = set()
    done = await fan(store, crowd, Bounds(map_max=8)).resume("t")
    assert (done.status, list(done.state["results"]), crowd.most) == ("completed", [10 * n for n in range(10)], 2)


async def test_more_branches_than_fan_out_fail_the_node_before_any_begins(store: Checkpointer) -> None:
    crowd = Crowd()
    app = fan(store, crowd, Bounds(fan_out=9))
    failed = await app.run({}, "t")
    assert failed.status == "failed" and failed.error is not None
    assert (failed.error["code"], failed.error["detail"]["setting"], failed.error["detail"]["limit"]) == ("limit_exceeded", "bounds.fan_out", 9)  # fmt: skip
    assert crowd.begun == []
    done = await fan(store, crowd, Bounds(fan_out=10)).resume("t")
    assert (done.status, len(done.state["results"])) == ("completed", 10)


async def test_a_fan_out_beyond_the_limit_can_be_routed_as_any_failure() -> None:
    crowd = Crowd()
    error = [{"on": ["any"], "to": "end"}]
    done = await fan(None, crowd, Bounds(fan_out=9), error=error).run({})
    assert (done.status, crowd.begun) == ("completed", [])
