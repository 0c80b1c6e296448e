"""The `model` node: one turn of a model, every delta an event at once (spec 1.4, 2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphflow.errors import Issue
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.nodes.turn import TurnFactory

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction
    from graphflow.tools.registry import ToolRegistry

WITH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "messages": {"type": "array"},
        "systemPrompt": {"type": "string"},
        "tools": {"type": "array", "items": {"type": "string"}},
        "toolChoice": {"type": "string"},
        "providerKey": {"type": "string"},
        "model": {"type": "string"},
        "compute": {"type": "string", "enum": ["LOW", "MEDIUM", "HIGH"]},
        "schema": {"type": "object"},
        "output": {"type": "string", "enum": ["PLAIN", "REASONING_SUMMARY"]},
        "stream": {"type": "string", "enum": ["content", "reasoning", "hidden", "candidate"]},
        "showReasoning": {"type": "boolean"},
        "parallelToolCalls": {"type": "boolean"},
        "mustCall": {"type": "boolean"},
        "lastTurn": {"type": "boolean"},
    },
    "additionalProperties": False,
}


class ModelKind:
    """`use: model`.

    Args:
        tools: the registry that tool names are checked against and offered from.
        providers: provider keys that exist, for checking; None checks nothing.
    """

    name = "model"
    effects = "none"
    with_schema: Mapping[str, Any] | None = WITH_SCHEMA
    out_schema: Mapping[str, Any] | None = None
    """Dynamic: with a `schema`, the output also has the object's own fields."""

    def __init__(self, tools: ToolRegistry, providers: Sequence[str] | None = None) -> None:
        self._tools, self._providers = tools, providers

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        arguments = node.with_ if isinstance(node.with_, Mapping) else {}
        tools = arguments.get("tools")
        if isinstance(tools, list | tuple):
            for index, tool in enumerate(tools):
                # An expression gets its value only when the node runs.
                if isinstance(tool, str) and "${" not in tool and tool not in self._tools:
                    yield Issue(
                        pointer=f"/with/tools/{index}",
                        message=f"no tool {tool!r} is registered",
                        hint=self._tools.hint(tool),
                        kind="reference",
                    )
        provider = arguments.get("providerKey")
        if isinstance(provider, str) and "${" not in provider and self._providers and provider not in self._providers:
            yield Issue(
                pointer="/with/providerKey",
                message=f"no provider {provider!r}",
                hint=f"known: {', '.join(self._providers)}",
                kind="reference",
            )

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        turns = TurnFactory(document, self._tools)

        async def run(arguments: Any, ctx: NodeRun) -> dict[str, Any]:
            return await turns.turn(arguments, ctx).run()

        return run
