"""What is stored is what ran: a thread read back at any checkpoint is the machine that was there (E3, E4)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import Graph, MemoryCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.journal import ThreadJournal
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.graph.core.machine import Machine
from graphflow.testing import FakeIds, collect
from tests.campaign import size
from tests.forked import python
from tests.runtime.conftest import Compile
from tests.runtime.graphs import asking, loop


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


async def assert_same(store: Checkpointer, thread_id: str, machines: dict[str, Machine]) -> None:
    listed = await store.list_checkpoints(thread_id, all_lineages=True)
    assert listed
    for row in listed:
        moved = decode_meta(row.meta).source in ("rewind", "fork")  # which reads no lists
        loaded = await load_thread(store, thread_id, row.id, logs=not moved)
        assert loaded is not None
        assert loaded.machine == machines[row.id]


async def test_every_checkpoint_loads_as_the_machine_that_was_committed(
    store: Checkpointer, compile_graph: Compile, machines: dict[str, Machine]
) -> None:
    graph, _ = asking()
    app = compile_graph(graph)
    await app.run(thread_id="t", params={"tags": ["x", ("tuple", 1)]})
    await app.answer("t", 5)
    await app.run(thread_id="t")
    history = await app.thread("t").history()
    await app.thread("t").rewind(history[-2].id, effects="rerun")
    await app.resume("t")
    await app.thread("t").edit({"n": 50, "log": ["edited"]}, as_node="before")
    await assert_same(store, "t", machines)


async def test_snapshots_change_nothing_but_the_way_a_thread_is_read(
    store: Checkpointer, compile_graph: Compile, machines: dict[str, Machine]
) -> None:
    await compile_graph(loop(300)).run(thread_id="t")
    stored = await store.load("t")
    assert stored is not None
    assert stored.snapshot is not None
    assert len(stored.records) < 150
    await assert_same(store, "t", machines)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
writes = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "plain": values,
            "log": st.lists(values, max_size=3),
            "box": st.dictionaries(st.text(max_size=3), values, max_size=3),
            "bag": st.lists(st.integers(0, 5), max_size=4),
            "total": st.integers(-5, 5),
        },
    ),
    min_size=1,
    max_size=8,
)
SCHEMA = {
    "type": "object",
    "properties": {
        "plain": {"default": None},
        "log": {"type": "array", "x-reducer": "append", "default": []},
        "box": {"type": "object", "x-reducer": "merge", "default": {}},
        "bag": {"type": "array", "x-reducer": "union", "default": []},
        "total": {"type": "integer", "x-reducer": "sum", "default": 0},
    },
}


@pytest.mark.campaign
@settings(max_examples=size(60, long=3_000), deadline=None)
@given(writes)
def test_any_writes_read_back_as_they_were_reduced(steps: list[dict[str, Any]]) -> None:
    graph = Graph(SCHEMA)
    for index, update in enumerate(steps):

        async def write(state: Any, update: dict[str, Any] = update) -> dict[str, Any]:
            return update

        graph.node(write, name=f"n{index}", next=f"n{index + 1}" if index + 1 < len(steps) else "end")  # type: ignore[call-overload]  # the names are bound by defaults

    async def check() -> None:
        store = MemoryCheckpointer()
        result = await graph.compile(checkpointer=store, ids=FakeIds()).run(thread_id="t")
        loaded = await load_thread(store, "t")
        assert loaded is not None
        assert loaded.machine.root.state == result.state

    asyncio.run(check())


async def test_the_stored_log_is_what_was_sent_with_blocks_as_snapshots(compile_graph: Compile) -> None:
    graph = Graph({"type": "object", "properties": {}})

    @graph.node(next="two")
    async def one(state: Any, ctx: Any) -> None:
        await ctx.reasoning("let me ")
        await ctx.reasoning("see")
        await ctx.content("he")
        await ctx.content("llo")

    @graph.node
    async def two(state: Any, ctx: Any) -> None:
        ctx.emit({"progress": 1})
        await ctx.content("bye")

    app = compile_graph(graph)
    sent = await collect(app.stream(thread_id="t"))
    stored = [event for event, _ in await app.thread("t").events()]
    ends = {e.seq: e.type for e in sent if e.type.endswith(".end") and e.type != "node.end"}
    kept = {
        e.seq
        for e in sent
        if not e.type.endswith((".delta", ".progress")) and e.type not in ("content.start", "reasoning.start")
    }
    assert {e.seq for e in stored} == kept
    assert {e.seq: e.type.replace("snapshot", "end") for e in stored if e.type.endswith("snapshot")} == ends
    assert [e.text for e in stored if e.type.endswith("snapshot")] == ["let me see", "hello", "bye"]  # type: ignore[attr-defined]
    assert [e for e in stored if not e.type.endswith("snapshot")] == [
        e for e in sent if e.seq in kept and e.seq not in ends
    ]


CHILD = """
import asyncio, os, sys
from graphflow import Graph, SqliteCheckpointer
graph = Graph({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}, budget={"maxSteps": 100000})
stop = int(sys.argv[2])

@graph.node(next=[{"if": "state.n < 200", "to": "work"}, {"to": "end"}])
async def work(state, ctx):
    print(state.n, flush=True)
    if stop == state.n:
        sys.stdin.readline()
    return {"n": state.n + 1}

async def main():
    store = SqliteCheckpointer(sys.argv[1])
    app = graph.compile(checkpointer=store)
    if await store_has(store):
        result = await app.resume("t")
    else:
        result = await app.run(thread_id="t", durability=sys.argv[3])
    print("done", result.status, result.state.n, flush=True)
    await store.close()

async def store_has(store):
    await store.setup()
    row = await store.thread("t")
    return row is not None and row.head is not None  # with async durability the suffix that is lost may be all of it

asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_kill_9_in_the_middle_loses_at_most_a_suffix_and_resume_goes_on(tmp_path: Path, durability: str) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    command = [script, tmp_path / "t.db"]
    child = python(*command, "120", durability, pipes=("stdin", "stdout"))
    assert child.stdout is not None
    seen = []
    for line in child.stdout:
        seen.append(int(line))
        if seen[-1] == 120:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    out, err = python(*command, "-1", durability, pipes=("stdout", "stderr")).communicate()
    lines = out.split()
    assert lines[-3:] == ["done", "completed", "200"], err
    first_again = int(lines[0])
    assert first_again <= 120
    if durability == "sync":
        assert first_again == 120


async def test_stored_bytes_grow_with_what_is_new_and_not_with_the_thread(tmp_path: Path) -> None:
    store = SqliteCheckpointer(tmp_path / "t.db")
    graph = Graph(
        {"type": "object", "properties": {"messages": {"type": "array", "x-reducer": "messages", "default": []}}}
    )
    text = "word " * 200

    @graph.node
    async def reply(state: Any) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": text}]}

    app = graph.compile(checkpointer=store)
    sizes = []
    for _ in range(3):
        for _ in range(50):
            await app.run(text, thread_id="t")
        listed = await store.list_checkpoints("t")
        sizes.append(sum(row.size for row in listed))
    await store.close()
    first, second, third = sizes[0], sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert third <= second * 1.1 <= first * 1.25
