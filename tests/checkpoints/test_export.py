"""What a thread takes along from one store to another, beyond what the suite of all stores promises (spec 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow import Context, load_graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.checkpoints.encryption.checkpointer import EncryptedCheckpointer
from graphflow.checkpoints.memory.checkpointer import MemoryCheckpointer
from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
from graphflow.checkpoints.record_decoder import named_documents
from graphflow.checkpoints.record_encoder import encode_snapshot
from graphflow.checkpoints.sqlite.checkpointer import SqliteCheckpointer
from graphflow.graph.core.immutable import FrozenDict
from graphflow.graph.core.machine import Machine
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing.checkpointer.suite import lines_of, stream
from tests.postgres import Schemas

KINDS = ["memory", "sqlite", "encrypted", "postgres"]
Make = Callable[[str], Checkpointer]


@pytest.fixture
def make(tmp_path: Path, schemas: Schemas, schema: str) -> Make:
    def made(kind: str) -> Checkpointer:
        if kind == "postgres":
            return PostgresCheckpointer(schemas.url, schema=schema)
        if kind == "memory":
            return MemoryCheckpointer()
        store = SqliteCheckpointer(tmp_path / "threads.db")
        return EncryptedCheckpointer(store, ["k:" + "A" * 43 + "="], compression=True) if kind == "encrypted" else store

    return made


def version(store: Checkpointer, *names: str) -> CompiledGraph:
    """A graph of nodes that count, one after the other, and then ask."""

    async def work(state: Any, ctx: Context) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    nodes: dict[str, Any] = {
        name: {"use": "node:work", "next": following}
        for name, following in zip(names, [*names[1:], "sure"], strict=True)
    }
    nodes["sure"] = {"ask": {"message": "sure?", "schema": {"type": "boolean"}}, "next": "end"}
    state = {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}
    return load_graph(
        {"graphflow": "1", "start": names[0], "nodes": nodes, "state": state}, checkpointer=store, nodes={"work": work}
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_every_version_that_the_past_was_made_under_goes_along(kind: str, make: Make) -> None:
    store, away = make(kind), MemoryCheckpointer()
    await version(store, "one", "two").run({}, "t")
    await version(store, "one", "two", "three").thread("t").migrate()
    lines = await lines_of(store, "t")
    await away.import_thread(stream(lines))
    assert await lines_of(away, "t") == [
        {**lines[0], "thread": dict(lines[0]["thread"], owner=None, lease_until=0)},
        *lines[1:],
    ]
    app = version(away, "one", "two", "three")
    past = (await app.thread("t").history())[-2]
    await app.thread("t").rewind(past.id)
    result = await app.resume("t")
    assert (result.status, result.state["n"]) == ("waiting", 2), "it goes on as the version of that moment does"
    await store.close()


def test_a_snapshot_tells_of_the_version_too_and_foreign_bytes_tell_of_none() -> None:
    """The record that said so first may be pruned."""
    snapshot = encode_snapshot(Machine(document="sha256:x", params={"when": FrozenDict()}), 1, 0, {})
    assert named_documents(b"", snapshot) == ["sha256:x"]
    for foreign in (
        b"",
        b"data",
        b"\x00\x00\x00\x02\x01\xa4\xb2",
        b"\x00\x00\x00\x01",
        bytes(range(256)),
        b"\x01" + b"\x91" * 100_000,
    ):
        assert named_documents(foreign, foreign) == []
