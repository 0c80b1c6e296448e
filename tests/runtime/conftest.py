"""Stores and applications for the runtime's tests: every promise about threads is kept by each store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, MemoryCheckpointer, PostgresCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds
from tests.postgres import Schemas

Compile = Callable[..., CompiledGraph]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpointer]:
    """A fresh store of each kind."""
    if request.param == "postgres":
        schemas: Schemas = request.getfixturevalue("schemas")
        made: Checkpointer = PostgresCheckpointer(schemas.url, schema=schemas.take())
    else:
        made = MemoryCheckpointer() if request.param == "memory" else SqliteCheckpointer(tmp_path / "t.db")
    yield made
    await made.close()
    if request.param == "postgres":
        schemas.empty()


@pytest.fixture
def compile_graph(store: Checkpointer) -> Compile:
    """Compiles a builder over the store, with ids that count."""

    def build(graph: Graph, **options: Any) -> CompiledGraph:
        return graph.compile(**{"checkpointer": store, "ids": FakeIds(), **options})

    return build
