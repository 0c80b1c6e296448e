"""The node kinds that agent files need, without models or tools behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.definition.kinds import NodeFunction

TOOLS = ("bash", "city_datetime", "mock_city_weather")
PROVIDERS = ("auto", "bailian", "qwen", "scripted")


@dataclass(frozen=True)
class FakeKind:
    name: str
    effects: str = "none"
    with_schema: Mapping[str, Any] | None = None
    out_schema: Mapping[str, Any] | None = None
    exists: Callable[[str], bool] = field(default=lambda _: True)

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        use = node.use or ""
        if not self.exists(use.partition(":")[2]):
            yield Issue(pointer="/use", message=f"{use!r} does not exist", kind="reference")

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        raise NotImplementedError


class FakeKinds:
    """`model`, `tools`, `agent:KEY` and subgraphs by key."""

    def __init__(self, documents: Callable[[str], Mapping[str, Any] | None] = lambda _: None) -> None:
        self._documents = documents
        self._kinds = {
            "model": FakeKind("model"),
            "verify": FakeKind("verify"),
            "tools": FakeKind("tools"),
            "agent": FakeKind("agent", exists=lambda key: documents(key) is not None),
        }

    def find(self, use: str) -> FakeKind | None:
        return self._kinds.get(use.partition(":")[0])

    def names(self) -> list[str]:
        return sorted(self._kinds)

    def graph(self, key: str) -> Mapping[str, Any] | None:
        return self._documents(key)

    def reducer(self, name: str) -> Callable[[Any, Any], Any] | None:
        return None
