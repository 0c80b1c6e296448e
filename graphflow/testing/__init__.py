"""Fakes and conformance suites that users may import into their own tests.

`ScriptedModel`, `InMemoryStore`, `FakeClock`, `FakeIds` and `collect` stand in for the world; `app_client` serves an application to
a client; `stream_grammar` checks a run's events;
`checkpointer_conformance`, `conversation_store_conformance`, `store_conformance`, `chat_model_conformance` and
`tool_envelope_conformance` are suites to run against one's own implementations.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphflow.testing.app_client import app_client
from graphflow.testing.fakes import FakeClock, FakeIds, collect

if TYPE_CHECKING:
    from graphflow.models.scripted.model import ScriptedModel as ScriptedModel
    from graphflow.testing.in_memory_store import InMemoryStore as InMemoryStore

__all__ = ["FakeClock", "FakeIds", "InMemoryStore", "ScriptedModel", "app_client", "collect"]

_LAZY = {
    "InMemoryStore": "graphflow.testing.in_memory_store",
    "ScriptedModel": "graphflow.models.scripted.model",
}


def __getattr__(name: str) -> Any:
    # Lazy: they load the model client and the memory, which tests of plain graphs do not need.
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'graphflow.testing' has no attribute {name!r}")
