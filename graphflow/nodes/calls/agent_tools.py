"""Agents as the tools of other agents: what a model is told of them, and what a call of one is checked against.

A tool of this kind is never run: its call opens the agent's frame, behind the `tools` node (decision 0056).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphflow.errors import NodeFailed
from graphflow.graph.definition.document import DEFAULT_INPUT_SCHEMA, GraphDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.tools.port import Tool
from graphflow.tools.result import ToolResult
from graphflow.tools.schema import taken_arguments
from graphflow.tools.wire_names import AGENT, agent_key

if TYPE_CHECKING:
    from graphflow.tools.context import ToolContext
    from graphflow.tools.registry import ToolRegistry

INPUT = "agentInput"
"""Where the data of a result holds the input of the agent that is to be opened."""


class AgentInput:
    """The body of an agent's tool: its result is the agent's input, not its answer."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self._schema)

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(taken_arguments(arguments, self._schema))

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        return ToolResult(data={INPUT: dict(arguments)})


def agent_tool(key: str, document: GraphDefinition) -> Tool:
    """The agent as a tool: its input schema and its description."""
    # Of an agent without an input schema the query is all that a model has to give, and nothing to go without.
    schema = document.input or {**DEFAULT_INPUT_SCHEMA, "required": ["query"]}
    described = document.description or f"The agent {document.name or key}."
    return Tool(name=f"{AGENT}{key}", description=described, body=AgentInput(schema), effects="none")


def with_agents(registry: ToolRegistry, names: Iterable[str], ctx: NodeRun) -> ToolRegistry:
    """The registry with those of the names that are agents, in the version of this run.

    Raises:
        NodeFailed: no node of the run's graphs opens one of these agents.
    """
    keys = [key for key in map(agent_key, names) if key is not None]
    return registry.overlaid([agent_tool(key, _document(key, ctx)) for key in keys]) if keys else registry


def _document(key: str, ctx: NodeRun) -> GraphDefinition:
    if (document := ctx.agent(key)) is None:
        raise NodeFailed(
            f"node {ctx.node!r} offers the agent {key!r}, and no `tools` node of the graph lists it, so nothing could run a call of"
            f' it; add "{AGENT}{key}" to the `tools` of that node or of the document',
            code="validation",
        )
    return document
