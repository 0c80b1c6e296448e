"""Kinds and documents for the tests of the compiler: small, and known by heart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.definition.regions import Region, body_name


def graph_key(region: Region) -> str | None:
    """The key of a body's subgraph in `CheckedDocument.subgraphs`: the `KEY` that is named, else `FAN` or `FAN[BRANCH]`."""
    if region.graph is None:
        return None
    return region.graph.graph if isinstance(region.graph.graph, str) else body_name(region.fan, region.branch)


class FakeKind:
    """A kind whose nodes do nothing."""

    def __init__(
        self,
        name: str,
        *,
        with_schema: Mapping[str, Any] | None = None,
        out_schema: Mapping[str, Any] | None = None,
        refuses: Callable[[NodeDefinition], Iterable[Issue]] = lambda node: (),
    ) -> None:
        self.name = name
        self.effects = "none"
        self.with_schema = with_schema
        self.out_schema = out_schema
        self._refuses = refuses

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        return self._refuses(node)

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Any:
        async def run(arguments: Any, context: Any) -> Any:
            return arguments

        return run


def _unknown_tools(node: NodeDefinition) -> Iterable[Issue]:
    tools = node.with_.get("tools") if isinstance(node.with_, Mapping) else None
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if tool != "bash":
            yield Issue(
                pointer=f"/with/tools/{index}",
                message=f"no tool is named {tool!r}",
                hint="one of bash",
                kind="reference",
            )


MODEL_WITH = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "systemPrompt": {"type": "string"},
        "messages": {"type": "array"},
        "tools": {"type": "array", "items": {"type": "string"}},
        "schema": {"type": "object"},
        "stream": {"enum": ["content", "reasoning", "hidden"]},
    },
    "additionalProperties": False,
}
BASH_WITH = {
    "type": "object",
    "required": ["command"],
    "properties": {"command": {"type": "string"}, "timeoutMs": {"type": "integer"}},
    "additionalProperties": False,
}
BASH_OUT = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "code": {"type": "integer"}, "ok": {"type": "boolean"}},
    "additionalProperties": False,
}


class FakeKinds:
    """`model`, `tools`, `tool:bash`, `fn:summarise`, `node:worker`, reducer `fn:longest`, graphs as given."""

    def __init__(self, graphs: Mapping[str, Any] | None = None) -> None:
        self.graphs = dict(graphs or {})
        kinds = [
            FakeKind("model", with_schema=MODEL_WITH, refuses=_unknown_tools),
            FakeKind("tools"),
            FakeKind("tool:bash", with_schema=BASH_WITH, out_schema=BASH_OUT),
            FakeKind("fn:summarise"),
            FakeKind("node:worker", with_schema={"type": "object", "additionalProperties": False}),
        ]
        self.kinds = {kind.name: kind for kind in kinds}

    def find(self, use: str) -> FakeKind | None:
        return self.kinds.get(use)

    def names(self) -> list[str]:
        return list(self.kinds)

    def graph(self, key: str) -> Mapping[str, Any] | None:
        return self.graphs.get(key)

    def reducer(self, name: str) -> Callable[[Any, Any], Any] | None:
        return max if name == "longest" else None


def document(
    nodes: Mapping[str, Any] | None = None, *, state: Mapping[str, Any] | None = None, **keys: Any
) -> dict[str, Any]:
    """A sound document of one `model` node, with what a test changes; `start` is the first node."""
    nodes = {"answer": {"use": "model", "with": {"prompt": "Hi"}, "next": "end"}} if nodes is None else nodes
    out: dict[str, Any] = {"graphflow": "1", "start": next(iter(nodes), "")}
    if state is not None:
        out["state"] = {"type": "object", "properties": dict(state)}
    return {**out, "nodes": dict(nodes), **keys}
