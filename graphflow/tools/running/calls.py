"""Small facts about the calls of one model turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.messages import ToolCall
from graphflow.tools.context import RunnerContext
from graphflow.tools.port import Tool
from graphflow.tools.registry import ToolRegistry
from graphflow.tools.result import ToolResult, failed
from graphflow.tools.running.arguments import parse_arguments
from graphflow.tools.running.execution import ReadyCall
from graphflow.tools.running.policy import CallPolicy
from graphflow.tools.schema import did_you_mean

_SOURCE_FIELDS = ("title", "url", "icon")


def find_tool(registry: ToolRegistry, name: str, policy: CallPolicy) -> Tool | ToolResult:
    """The tool of this name if the agent may call it, else an error result that lists the tools."""
    if policy.disallow:
        return failed(
            "PERMISSION_DENIED",
            f"{name!r} was not run: no tools are offered in this turn.",
            "Answer from what you know already.",
        )
    offered = registry.names() if policy.tools is None else list(policy.tools)
    # A registered tool that was not offered is reported like an unknown one: the model can't use it either way.
    tool = registry.get(name) if name in offered else None
    if tool is not None:
        return tool
    if (server := registry.gone(name)) is not None:
        return failed(
            "NOT_FOUND",
            f"{name} can't be called: the MCP server {server!r} does not offer it now, or can't be reached",
            "Go on without it.",
        )
    listed = ", ".join(offered) or "none"
    return failed("NOT_FOUND", f"there is no tool {name!r}; tools are {listed}.{did_you_mean(name, offered)}")


def as_called(ready: ReadyCall) -> bool:
    """Whether the model's call is exactly what ran: nothing was resolved or edited, and its id is the key."""
    # Only the arguments of writes are kept for a rewind, so only there a reference saves space.
    if ready.tool.effects != "write" or ready.key != ready.call.id:
        return False
    return parse_arguments(ready.call.arguments) == ready.arguments


def own_calls(calls: Sequence[ToolCall], ctx: RunnerContext) -> tuple[list[ToolCall], list[str]]:
    """The calls, each with an id that no other call of the node's attempt has, and their operation keys (E5).

    A key is the call's id, with a number for a call whose id was used before: by this turn, or by an earlier one of the node.
    """
    keys = [ctx.call_key(call.id) for call in calls]
    return [
        call if key == call.id else msgspec.structs.replace(call, id=f"{call.id}_{key.rpartition('#')[2]}")
        for call, key in zip(calls, keys, strict=True)
    ], keys


def one_too_many(allowed: int) -> ToolResult:
    """The result of a call beyond what a round allows."""
    rule = "one tool per round" if allowed == 1 else f"{allowed} tools per round"
    return failed("REJECTED", f"{rule}: this call was not run.", "If it is still needed, call it in the next round.")


def source_facts(source: Any, otherwise: str) -> dict[str, Any]:
    """A source of a result, `{sourceId?, icon?, title?, url?}`, as the fields of its event.

    Args:
        source: as the tool gave it.
        otherwise: the id of a source without one.
    """
    given = source if isinstance(source, Mapping) else {"title": str(source)}
    facts = {name: str(given[name]) for name in _SOURCE_FIELDS if given.get(name)}
    return {"source_id": str(given.get("sourceId") or given.get("source_id") or otherwise), **facts}
