"""Fakes and conformance suites that users may import into their own tests.

`ScriptedModel`, `FakeClock`, `FakeIds` and `collect` stand in for the world; `stream_grammar` checks a run's events;
`checkpointer_conformance`, `conversation_store_conformance`, `store_conformance`, `chat_model_conformance` and
`tool_envelope_conformance` are suites to run against one's own implementations.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphflow.testing.fakes import FakeClock, FakeIds, collect

if TYPE_CHECKING:
    from graphflow.models.scripted.model import ScriptedModel as ScriptedModel

__all__ = ["FakeClock", "FakeIds", "ScriptedModel", "collect"]


def __getattr__(name: str) -> Any:
    # Lazy: it loads the model client, which tests of graphs without models do not need.
    if name == "ScriptedModel":
        return importlib.import_module("graphflow.models.scripted.model").ScriptedModel
    raise AttributeError(f"module 'graphflow.testing' has no attribute {name!r}")
