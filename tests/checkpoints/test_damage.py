"""A stored thread with a damaged or newer row: the error names the row, and what lies before it is still read (spec 4.4)."""

from __future__ import annotations

from typing import Any

import pytest

from graphflow import Graph, MemoryCheckpointer
from graphflow.checkpoints import codec
from graphflow.checkpoints.record_decoder import decode_meta
from graphflow.checkpoints.record_encoder import encode_data
from graphflow.checkpoints.record_fields import FORMAT
from graphflow.checkpoints.rows import Place
from graphflow.errors import StoreError
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.runtime.thread import Thread
from graphflow.testing.checkpointer.suite import refused

STATE = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "default": 0},
        "text": {"type": "string", "default": ""},
        "notes": {"type": "array", "default": [], "x-reducer": "append"},
    },
}


async def _ran(store: MemoryCheckpointer) -> CompiledGraph:
    """A thread `t` of six steps; its state is heavy enough for snapshots."""
    graph = Graph(STATE, budget={"maxSteps": 60})

    @graph.node(next=[{"if": "state.n < 6", "to": "count"}, {"to": "end"}])
    async def count(state: Any) -> dict[str, Any]:
        return {"n": state["n"] + 1, "notes": [f"note {state['n']}"], "text": f"{state['n']}" * 5_000}

    app = graph.compile(checkpointer=store)
    await app.run({}, "t")
    return app


async def _damaged(kind: str, ordinal: int, blob: bytes) -> tuple[Thread, list[str]]:
    """A thread with this blob in the place of a stored one, in a process that never saw it; its checkpoints, oldest first."""
    store = MemoryCheckpointer()
    app = await _ran(store)

    def change(place: Place, data: bytes) -> bytes:
        return blob if (place.kind, place.ordinal) == (kind, ordinal) else data

    await store.rewrite(change)
    runs = app.host.runs
    assert runs is not None
    runs.forget("t")
    thread = app.thread("t")
    return thread, [info.id for info in reversed(await thread.history())]


def _body(*parts: Any) -> bytes:
    return encode_data(codec.encode(list(parts)), 0, 0, [])


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02\x01\xc1",
        _body(),
        _body(FORMAT, "node"),
        _body("one", "node", "count", 0, 0, {}, [], {}, None),
        _body(FORMAT, "node", "count", 0, 0, {}, [[0, []]], {}, None),
        _body(FORMAT, "ask", "count", 0, 0, {}, [], {"i": {"kind": "ask"}}, None),
        encode_data(codec.encode([FORMAT, "node", "count", 0, 0, {}, [], {}, None]), "one", 0, []),  # type: ignore[arg-type]
        encode_data(codec.encode([FORMAT, "node", "count", 0, 0, {}, [], {}, None]), 1, 0, [7]),
    ],
    ids=range(10),
)
async def test_a_damaged_record_is_named_and_what_lies_before_it_is_read(blob: bytes) -> None:
    thread, ids = await _damaged("record", 4, blob)
    for reading in (thread.state(ids[3]), thread.events()):
        error = await refused(StoreError, reading)
        assert error.code == "store_failed"
        assert repr(ids[3]) in error.message and "load an earlier checkpoint" in error.message
    assert (await thread.state(ids[2])).values["n"] == 2


async def test_a_record_of_a_newer_format_asks_for_an_update() -> None:
    thread, ids = await _damaged("record", 4, _body(FORMAT + 1, "a", "shape", "of", "its", "own"))
    error = await refused(StoreError, thread.state(ids[3]))
    assert error.code == "store_version_unsupported"
    assert f"format is {FORMAT + 1}" in error.message and repr(ids[3]) in error.message


@pytest.mark.parametrize(
    "parts",
    [({"colour": 1}, [], {}), ({}, [[0, {"colour": 1}]], {}), ({}, [], {"i": {"id": "i", "colour": 1}})],
    ids=["machine", "frame", "interrupt"],
)
async def test_a_field_of_a_newer_version_asks_for_an_update(parts: tuple[Any, ...]) -> None:
    thread, ids = await _damaged("record", 4, _body(FORMAT, "node", "count", 0, 0, *parts, None))
    error = await refused(StoreError, thread.state(ids[3]))
    assert error.code == "store_version_unsupported"
    assert "'colour'" in error.message and repr(ids[3]) in error.message


async def test_an_event_of_a_newer_version_asks_for_an_update() -> None:
    body = codec.encode([FORMAT, "node", "count", 0, 0, {}, [], {}, None])
    thread, ids = await _damaged("record", 4, encode_data(body, 9, 0, [[999, 0, 0, {}]]))
    error = await refused(StoreError, thread.events())
    assert error.code == "store_version_unsupported"
    assert "999" in error.message and repr(ids[3]) in error.message


@pytest.mark.parametrize("blob", [b"", b"?" + codec.encode(1), b"+", b"=" + codec.encode(1), b"+\x01\xc1"])
async def test_a_damaged_entry_names_its_list(blob: bytes) -> None:
    thread, ids = await _damaged("item", 3, blob)
    error = await refused(StoreError, thread.state())
    assert error.code == "store_failed"
    assert "'notes'" in error.message
    assert list((await thread.state(ids[3])).values["notes"]) == ["note 0", "note 1", "note 2"]


@pytest.mark.parametrize(
    ("blob", "code"),
    [
        (b"", "store_failed"),
        (codec.encode([FORMAT, 1]), "store_failed"),
        (codec.encode([99]), "store_version_unsupported"),
    ],
)
async def test_a_damaged_snapshot_names_its_thread_and_what_lies_before_it_is_read(blob: bytes, code: str) -> None:
    whole = MemoryCheckpointer()
    await _ran(whole)
    snapshots: list[int] = []

    def note(place: Place, data: bytes) -> bytes:
        if place.kind == "snapshot":
            snapshots.append(place.ordinal)
        return data

    await whole.rewrite(note)
    first = min(snapshots)
    thread, ids = await _damaged("snapshot", first, blob)
    error = await refused(StoreError, thread.state(ids[first - 1]))
    assert error.code == code
    assert "snapshot of thread 't'" in error.message
    assert (await thread.state(ids[first - 2])).values["n"] == first - 2


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", b"\xa2\xff\xff"])
def test_damaged_metadata_names_its_record(data: bytes) -> None:
    with pytest.raises(StoreError, match="'018f'") as caught:
        decode_meta(data, "018f")
    assert caught.value.code == "store_failed"
