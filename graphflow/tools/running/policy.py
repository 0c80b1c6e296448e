"""What an agent allows the calls of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphflow.tools.selection import offered_tools

if TYPE_CHECKING:
    from graphflow.tools.context import RunnerContext
    from graphflow.tools.registry import ToolRegistry


@dataclass(frozen=True, kw_only=True)
class CallPolicy:
    """What the agent whose model made the calls may do."""

    tools: tuple[str, ...] | None = None
    """Names of the tools that the agent has; None: every registered one."""
    approval: str | Mapping[str, str] | None = None
    """The agent's `approval`: one word, or words by tool name and `*`."""
    disallow: bool = False
    """No tools were offered (`toolPolicy: DISALLOW`); a call that comes anyway gets an error result."""
    agent_key: str | None = None
    """The agent whose standing rules apply."""
    templates: bool = True
    """Whether a model wrote the arguments, so that `{{tool.field}}` in them is a reference; elsewhere it is just text."""


ANY_TOOL = CallPolicy()


def policy_of(registry: ToolRegistry, ctx: RunnerContext) -> CallPolicy:
    """What the agent of a node may do: its document's approval, and the tools that the node's `call_model` offered, or else
    those of the document.
    """
    node: Any = ctx
    document = getattr(node, "document", None)
    if document is None:  # the context of no node
        return ANY_TOOL
    given = document.tools is not None or document.keywords is not None
    tools = offered_tools(registry, document, {}) if given else None
    if node.offered is not None:
        tools = tuple(sorted(node.offered))
    return CallPolicy(tools=tools, approval=document.approval, agent_key=node.services.get("agent_key"))
