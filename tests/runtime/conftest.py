"""Applications for the runtime's tests, over each store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, PostgresCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds
from tests.postgres import Schemas

Compile = Callable[..., CompiledGraph]
OpenStore = Callable[[], Checkpointer]


@pytest.fixture
def compile_graph(store: Checkpointer) -> Compile:
    """Compiles a builder over the store, with ids that count."""

    def build(graph: Graph, **options: Any) -> CompiledGraph:
        return graph.compile(**{"checkpointer": store, "ids": FakeIds(), **options})

    return build


@pytest.fixture(params=["sqlite", "postgres"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens one store again and again, as several processes do."""
    schemas: Schemas | None = request.getfixturevalue("schemas") if request.param == "postgres" else None
    schema = schemas.take() if schemas else ""
    made: list[Checkpointer] = []

    def open_again() -> Checkpointer:
        made.append(
            PostgresCheckpointer(schemas.url, schema=schema) if schemas else SqliteCheckpointer(tmp_path / "t.db")
        )
        return made[-1]

    yield open_again
    for store in made:
        await store.close()
    if schemas:
        schemas.empty()
