"""Lists that are written anew: what they were before is not read again, and comes back where it is asked for (E4)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from graphflow import Graph, HumanMessage, MemoryCheckpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.rows import Log
from graphflow.runtime.compiled_graph import CompiledGraph

STATE = {
    "type": "object",
    "properties": {
        "notes": {"type": "array", "default": [], "x-reducer": "append", "x-scope": "run"},
        "log": {"type": "array", "default": [], "x-reducer": "append"},
        "messages": {"type": "array", "default": [], "x-reducer": "messages"},
    },
}
LONG = "a question that is long enough to be stored by reference, " * 4


class Watched(MemoryCheckpointer):
    """A store that notes how many entries are read."""

    entries = 0

    async def read_logs(self, chain: Sequence[tuple[int, int]], logs: Sequence[Log]) -> list[list[bytes]]:
        found = await super().read_logs(chain, logs)
        self.entries += sum(map(len, found))
        return found


def compiled(store: MemoryCheckpointer) -> CompiledGraph:
    graph = Graph(STATE, input={"type": "object"})

    @graph.node
    async def work(state: Any) -> dict[str, Any]:
        return {"notes": [f"note {n}" for n in range(20)], "log": ["x"]}

    return graph.compile(checkpointer=store)


async def read(app: CompiledGraph, store: Watched, checkpoint_id: str | None = None) -> tuple[Any, int]:
    """The state as it is read from the store, and how many log entries that took."""
    store.entries = 0
    loaded = await load_thread(store, "t", checkpoint_id)
    assert loaded is not None
    return loaded.machine.root.state, store.entries


@pytest.mark.parametrize("snapshots", [False, True])
async def test_lists_of_earlier_runs_are_not_read_again(snapshots: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphflow.checkpoints.journal.SNAPSHOT_MIN_BYTES", 300 if snapshots else 1 << 30)
    store = Watched()
    app = compiled(store)
    for _ in range(30):
        await app.run({}, "t")
    state, entries = await read(app, store)
    assert list(state.notes) == [f"note {n}" for n in range(20)]
    assert len(state.log) == 30
    assert entries <= 30 + 21
    for row in await app.thread("t").history():
        earlier, _ = await read(app, store, row.id)
        assert len(earlier.notes) == (20 if row.node == "work" and row.step else 0)


async def test_a_query_before_the_restart_is_still_found() -> None:
    store = Watched()
    app = compiled(store)
    await app.run({"query": LONG}, "t")
    await app.thread("t").edit({"messages": [HumanMessage(content="instead")]}, replace=["messages"])
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.root.input["query"] == LONG
    assert [m.content for m in loaded.machine.root.state.messages] == ["instead"]
    await app.run({"query": LONG + "again"}, "t")
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.root.input["query"] == LONG + "again"
    assert [m.content for m in loaded.machine.root.state.messages] == ["instead", LONG + "again"]


async def test_a_page_of_states_reads_each_entry_once() -> None:
    store = Watched()
    app = compiled(store)
    for _ in range(30):
        await app.run({}, "t")
    thread = app.thread("t")
    store.entries = 0
    states = await thread.states(20)
    assert store.entries < 30 + 11 * 21  # the list `log`, and the notes of the eleven runs that the page is of
    assert [len(state.values.log) for state in states[::2]] == list(range(30, 20, -1))
    assert len({id(state.values.log._items) for state in states}) == 1


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_written_reads_back_at_every_checkpoint(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphflow.checkpoints.journal.SNAPSHOT_MIN_BYTES", 600)
    draw, store = Random(seed), Watched()
    app = compiled(store)
    await app.run({"query": LONG}, "t")
    thread = app.thread("t")
    runs = app.host.runs
    assert runs is not None
    known: dict[str, Any] = {row.id: (await thread.state(row.id)).values for row in await thread.history()}
    for step in range(40):
        if draw.random() < 0.5:
            runs.forget("t")
        what = draw.random()
        if what < 0.3:
            done = await app.run({"query": LONG if draw.random() < 0.5 else "short"}, "t")
            assert (await thread.state()).values == done.state
        elif what < 0.6:
            await thread.edit({"log": [f"edit {step}"], "messages": [HumanMessage(content=f"{step}")]})
        elif what < 0.85:
            await thread.edit({"log": [f"new {step}"]}, replace=["log"])
        else:
            await thread.rewind(draw.choice(sorted(known)))
        state = await thread.state()
        assert state.checkpoint_id is not None
        known[state.checkpoint_id] = state.values
        runs.forget("t")
        assert (await thread.state()).values == state.values
    for checkpoint_id, values in known.items():
        assert (await thread.state(checkpoint_id)).values == values
    tree = {state.checkpoint_id: state.values for state in await thread.states(all_lineages=True)}
    assert {checkpoint_id: tree[checkpoint_id] for checkpoint_id in known} == known
