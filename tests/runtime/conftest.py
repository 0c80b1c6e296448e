"""Stores and applications for the runtime's tests: every promise about threads is kept by each store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from graphflow import Graph, MemoryCheckpointer, SqliteCheckpointer
from graphflow.checkpoints.port import Checkpointer
from graphflow.runtime.compiled import CompiledGraph
from graphflow.testing import FakeIds

Compile = Callable[..., CompiledGraph]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpointer]:
    """A fresh store of each kind."""
    made: Checkpointer = MemoryCheckpointer() if request.param == "memory" else SqliteCheckpointer(tmp_path / "t.db")
    yield made
    await made.close()


@pytest.fixture
def compile_graph(store: Checkpointer) -> Compile:
    """Compiles a builder over the store, with ids that count."""

    def build(graph: Graph, **options: Any) -> CompiledGraph:
        return graph.compile(**{"checkpointer": store, "ids": FakeIds(), **options})

    return build
