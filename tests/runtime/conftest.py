"""Applications for the runtime's tests, over each store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphflow import Graph
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.runtime.compiled_graph import CompiledGraph
from graphflow.testing import FakeIds

Compile = Callable[..., CompiledGraph]


@pytest.fixture
def compile_graph(store: Checkpointer) -> Compile:
    """Compiles a builder over the store, with ids that count."""

    def build(graph: Graph, **options: Any) -> CompiledGraph:
        return graph.compile(**{"checkpointer": store, "ids": FakeIds(), **options})

    return build
