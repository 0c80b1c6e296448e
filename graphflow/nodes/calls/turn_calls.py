"""What the nodes that run a turn's calls have in common: what may be called, and the form of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from graphflow.approval_mode import ApprovalRule
from graphflow.graph.definition.document import GraphDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.messages import ToolCall
from graphflow.tools.running.policy import CallPolicy
from graphflow.tools.selection import offered_tools

if TYPE_CHECKING:
    from graphflow.tools.running.runner import ToolRunner

TOOLS_WITH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "calls": {"type": "array"},
        "max": {"type": "integer", "minimum": 0},
        "parallel": {"type": "boolean"},
        "tools": {"type": "array", "items": {"type": "string"}},
        "keywords": {"type": "array", "items": {"type": "string"}},
        "agents": {"type": "boolean"},
    },
    "additionalProperties": False,
}

OUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"results": {"type": "array"}, "messages": {"type": "array"}, "calls": {"type": "array"}},
}

TASK_DONE = "task_done"
"""The tool that ends a team's work."""


def approval_of(document: GraphDefinition) -> str | dict[str, str | ApprovalRule] | None:
    approval = document.approval
    return approval if approval is None or isinstance(approval, str) else dict(approval)


def _never_for_the_end(names: Iterable[str], approval: Any) -> Any:
    """The agent's `approval` without `task_done`: ending the work has no effect that needs approval."""
    # An explicit entry of the agent's author wins.
    if TASK_DONE not in names or (isinstance(approval, Mapping) and TASK_DONE in approval):
        return approval
    others = approval if isinstance(approval, Mapping) else {} if approval is None else {"*": approval}
    return {**others, TASK_DONE: "DISABLED"}


def _ends_work(result: Mapping[str, Any]) -> bool:
    return result["tool"] == TASK_DONE and "error" not in result


def offer(document: GraphDefinition) -> Callable[..., tuple[tuple[str, ...] | None, CallPolicy]]:
    """`(arguments, ctx) → ` the tools that a node of the document has, and what it may do with them."""
    approval, given = approval_of(document), document.tools is not None or document.keywords is not None

    def offered(arguments: Mapping[str, Any], ctx: NodeRun) -> tuple[tuple[str, ...] | None, CallPolicy]:
        some = given or "tools" in arguments or "keywords" in arguments
        names = offered_tools(ctx.tool.registry, document, arguments) if some else None
        asks = _never_for_the_end(names or (), approval)
        return names, CallPolicy(tools=names, approval=asks, agent_key=ctx.agent_key)

    return offered


def tools_output(
    calls: Sequence[ToolCall], results: Sequence[Any], arguments: Mapping[str, Any], ctx: NodeRun
) -> dict[str, Any]:
    """The node's output for these calls and their results; a call of `task_done` is the run's finish reason."""
    runner: ToolRunner = ctx.tool
    replies = [runner.message(call, result) for call, result in zip(calls, results, strict=True)]
    told = [{"tool": call.name, **_plain(result)} for call, result in zip(calls, results, strict=True)]
    if TASK_DONE in arguments.get("tools", ()) and any(map(_ends_work, told)):
        ctx.finish_reason = TASK_DONE
    # `calls` for those who look whether any is left to be run behind the node.
    return (
        {"results": told, "messages": replies, "calls": []}
        if "agents" in arguments
        else {"results": told, "messages": replies}
    )


def _plain(result: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"status": result.status, "data": result.data, "text": result.text}
    if result.error is not None:
        out["error"] = msgspec.to_builtins(result.error)
    return out
