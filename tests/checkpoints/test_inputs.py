"""Promises of stored inputs: a query is kept once, and comes back whole wherever the thread is read."""

from typing import Annotated, Any, TypedDict

import pytest

from graphflow import Graph, HumanMessage, MemoryCheckpointer
from graphflow.checkpoints.loading import load_thread
from graphflow.checkpoints.record_decoder import decode_body
from graphflow.graph.builder import messages

LONG = "where do the long questions go? " * 40
INPUT = {"before": 1, "query": LONG, "after": [2]}


class Talk(TypedDict):
    messages: Annotated[list[Any], messages]


def _graph(store: MemoryCheckpointer, *, nodes: int = 1, fails: bool = False) -> Any:
    graph = Graph(Talk, input={"type": "object"}, budget={"maxSteps": 99})
    for number in range(nodes):

        async def node(state: Any) -> dict[str, Any]:
            if fails:
                raise ValueError("no")
            return {"messages": [HumanMessage(content="x" * 700)]}

        graph.node(node, name=f"n{number}", next=f"n{number + 1}" if number + 1 < nodes else "end")  # type: ignore[call-overload]  # the names are bound by defaults
    return graph.compile(checkpointer=store)


async def _input(store: MemoryCheckpointer, checkpoint_id: str | None = None) -> Any:
    loaded = await load_thread(store, "t", checkpoint_id)
    assert loaded is not None
    return loaded.machine.root.input


async def _stored(store: MemoryCheckpointer) -> bytes:
    stored = await store.load("t")
    assert stored is not None
    return b"".join([stored.snapshot or b"", *(record.data for record in stored.records)])


async def test_a_long_query_is_not_in_the_record_beside_its_message() -> None:
    store = MemoryCheckpointer()
    await _graph(store).run(INPUT, "t")
    assert LONG.encode() not in await _stored(store)


async def test_an_input_is_read_back_whole_and_in_its_order() -> None:
    store = MemoryCheckpointer()
    await _graph(store).run(INPUT, "t")
    read = await _input(store)
    assert list(read.items()) == list(INPUT.items())
    with pytest.raises(TypeError):
        read["query"] = "other"


async def test_a_short_query_stays_where_it_is() -> None:
    store = MemoryCheckpointer()
    await _graph(store).run("short", "t")
    assert await _input(store) == {"query": "short"}
    assert b"short" in await _stored(store)


async def test_an_input_comes_back_from_a_snapshot() -> None:
    store = MemoryCheckpointer()
    await _graph(store, nodes=60).run(INPUT, "t")
    stored = await store.load("t")
    assert stored is not None
    assert stored.snapshot is not None
    assert LONG.encode() not in await _stored(store)
    assert await _input(store) == INPUT


async def test_each_turn_has_its_own_query_at_every_checkpoint() -> None:
    store = MemoryCheckpointer()
    app = _graph(store)
    for turn in range(3):
        await app.run(f"{turn} {LONG}", "t")
    inputs = [(await _input(store, point.id))["query"][0] for point in await app.thread("t").history()]
    assert inputs == ["2", "2", "1", "1", "0", "0"]


async def test_a_replaced_message_does_not_change_the_input() -> None:
    store = MemoryCheckpointer()
    app = _graph(store)
    await app.run(INPUT, "t")
    await app.thread("t").edit({"messages": [HumanMessage(content="other")]}, replace=["messages"])
    assert await _input(store) == INPUT


async def test_a_new_input_stores_only_what_it_changes() -> None:
    store = MemoryCheckpointer()
    app = _graph(store)
    await app.run("one", "t")
    await app.run("two", "t")
    loaded = await load_thread(store, "t")
    assert loaded is not None
    records = await store.read_records("t", lineage=loaded.chain[-1][0], after=0, upto=loaded.chain[-1][1])
    first, second = (decode_body(r.data).patch.machine for r in records if decode_body(r.data).source == "input")
    assert first["limits"] == loaded.machine.limits
    assert not {"limits", "before", "after", "durability"} & second.keys()


async def test_a_failed_run_forgets_its_failure_with_the_next_input() -> None:
    store = MemoryCheckpointer()
    assert (await _graph(store, fails=True).run(INPUT, "t")).status == "failed"
    assert (await _graph(store).run("again", "t")).status == "completed"
    loaded = await load_thread(store, "t")
    assert loaded is not None
    assert loaded.machine.error is None
    assert loaded.machine.root.error is None
