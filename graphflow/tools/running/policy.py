"""What an agent allows the calls of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphflow.approval_mode import ApprovalRule
from graphflow.capabilities import GUARDED, askers, missing
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.selection import offered_tools

if TYPE_CHECKING:
    from graphflow.tools.context import RunnerContext
    from graphflow.tools.port import Tool
    from graphflow.tools.registry import ToolRegistry


@dataclass(frozen=True, kw_only=True)
class CallPolicy:
    """What the agent whose model made the calls may do."""

    tools: tuple[str, ...] | None = None
    """Names of the tools that the agent has; None: every registered one."""
    approval: str | Mapping[str, str | ApprovalRule] | None = None
    """The agent's `approval`: one word, or words and rules by tool name and `*`."""
    disallow: bool = False
    """No tools were offered (`toolPolicy: DISALLOW`); a call that comes anyway gets an error result."""
    names_tool: bool = False
    """The document itself names the tool that is called: `use: tool:NAME`."""
    agent_key: str | None = None
    """The agent whose standing rules apply."""
    templates: bool = True
    """Whether a model wrote the arguments, so that `{{tool.field}}` in them is a reference; elsewhere it is just text."""


ANY_TOOL = CallPolicy()


def lacking(tool: Tool, policy: CallPolicy, ctx: RunnerContext) -> ToolResult | None:
    """The error result of a call whose capabilities the agent does not grant, or the run does not have."""
    if not tool.capabilities:
        return None
    # A call outside any node has no agent and no starter: Python code makes it.
    machine = getattr(ctx, "machine", None)
    if machine is None:
        return None
    if policy.tools is None and not policy.names_tool:
        named = " and ".join(map(repr, tool.capabilities))
        return failed(
            "PERMISSION_DENIED",
            f"{tool.name} was not run: it needs the capability {named}, and this agent's file does not grant it",
            f"An agent grants it by listing {tool.name!r} in its `tools`; tell the person, or go on without it.",
        )
    if not (absent := missing(tool.capabilities, machine.starter)):
        return None
    named, who = " and ".join(map(repr, absent)), " and ".join(map(repr, askers(machine.starter)))
    return failed(
        "PERMISSION_DENIED",
        f"{tool.name} was not run: it needs the capability {named}, which this run lacks, because {who} started it",
        f"{_granted_by(absent)}; tell the person, or go on without it.",
    )


def _granted_by(absent: list[str]) -> str:
    if GUARDED.intersection(absent):
        return "It takes a run that somebody with the scope `admin` has started"
    return "The setting `server.capabilities` of the server grants it to tokens and users"


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
    return CallPolicy(tools=tools, approval=document.approval, agent_key=node.agent_key)
