"""The join of many branches is computed beside the event loop, and is one atomic step all the same (ADR 0039)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from graphflow import CompiledGraph, MemoryCheckpointer, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.graph.core import fan_out
from tests.runtime.branches import document

NODES = {
    "fan": {"map": "state.items", "as": "item", "do": "work", "set": {"outs": "out"}, "next": "end"},
    "work": {"use": "fn:work", "with": {"n": "${item}"}, "set": {"total": "out", "results": "[out]"}, "next": "end"},
}
STATE = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "default": list(range(5))},
        "total": {"type": "integer", "default": 0, "x-reducer": "fn:add"},
        "results": {"type": "array", "default": [], "x-reducer": "append"},
        "outs": {"type": "array", "default": []},
    },
}


@pytest.fixture(autouse=True)
def three_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "MANY", 3)


class Adding:
    """A reducer that notes where it runs, and can be held while it joins."""

    def __init__(self) -> None:
        self.joins_in: set[str] = set()
        self.joining, self.go = threading.Event(), threading.Event()
        self.go.set()

    def add(self, old: int, new: int) -> int:
        name = threading.current_thread().name
        if name != "MainThread":
            self.joins_in.add(name)
            self.joining.set()
            self.go.wait(30)
        return old + new

    def graph(self, store: Checkpointer | None, nodes: dict[str, Any] = NODES) -> CompiledGraph:
        async def work(n: int) -> int:
            if n == 7:
                raise ValueError("no seven")
            return n

        return load_graph(document(nodes, state=STATE), checkpointer=store, functions={"work": work, "add": self.add})


async def test_a_wide_join_is_computed_beside_the_loop_and_a_narrow_one_is_not(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, narrow = Adding(), Adding()
    done = await wide.graph(store).run({}, "wide")
    monkeypatch.setattr(fan_out, "MANY", 100)
    same = await narrow.graph(store).run({}, "narrow")
    assert (len(wide.joins_in), narrow.joins_in) == (1, set())
    assert (done.status, done.state) == (same.status, same.state) and list(done.state["results"]) == [0, 1, 2, 3, 4]
    steps = [
        [(row.source, row.node, row.next, row.step) for row in await wide.graph(store).thread(key).history(100)]
        for key in ("wide", "narrow")
    ]
    assert steps[0] == steps[1]  # no record more, none less


async def test_the_loop_turns_while_a_wide_join_is_computed() -> None:
    held = Adding()
    held.go.clear()
    run = asyncio.ensure_future(held.graph(MemoryCheckpointer()).run({}, "t"))  # noqa: TID251 - awaited below
    while not held.joining.is_set():
        await asyncio.sleep(0)
    for _ in range(10):  # others have their turn, and the run is where it was
        await asyncio.sleep(0)
    assert not run.done()
    held.go.set()
    assert (await run).state["total"] == 10


async def test_what_comes_during_a_wide_join_takes_effect_after_it(store: Checkpointer) -> None:
    held = Adding()
    held.go.clear()
    nodes = {**NODES, "fan": {**NODES["fan"], "next": "after"}, "after": {"use": "wait", "with": {"signal": "never"}, "next": "end"}}  # fmt: skip
    app = held.graph(store, nodes)
    run = asyncio.ensure_future(app.run({}, "t"))  # noqa: TID251 - awaited below
    while not held.joining.is_set():
        await asyncio.sleep(0)
    threading.Timer(0.01, held.go.set).start()  # the loop waits for the join then
    await app.thread("t").cancel()
    await run
    state = await app.thread("t").state()
    assert (state.status, state.values["total"], state.frames) == ("stopped", 10, {})


async def test_nothing_of_a_wide_join_is_on_record_before_it_is_whole(store: Checkpointer) -> None:
    held = Adding()
    held.go.clear()
    app = held.graph(store)
    run = asyncio.ensure_future(app.run({}, "t"))  # noqa: TID251 - awaited below
    while not held.joining.is_set():
        await asyncio.sleep(0)
    meanwhile = await app.thread("t").history(100)
    held.go.set()
    await run
    assert max((row.step for row in meanwhile), default=0) < 6  # five items, and the node that opened them
    assert (await app.thread("t").history(1))[0].step == 6


async def test_a_wide_join_whose_reducer_fails_fails_its_node(store: Checkpointer) -> None:
    class Failing(Adding):
        def add(self, old: int, new: int) -> int:
            if super().add(old, new) > 6:
                raise ValueError("too much")
            return old + new

    failed = await Failing().graph(store).run({}, "t")
    assert failed.status == "failed" and failed.error is not None
    assert "its reducer 'fn:add' failed: ValueError: too much" in failed.error["message"], failed.error
