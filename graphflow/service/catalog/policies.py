"""What an agent's runs are held to: tool effects and approvals, budgets, limits of this server (spec 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from graphflow.graph.definition.document import GraphDefinition, PerRequest
from graphflow.runtime.runs.preconditions import LIMITS
from graphflow.service.context import ServiceContext
from graphflow.tools.running.approval import approval_rule, must_ask
from graphflow.tools.selection import offered_tools


def policies(context: ServiceContext, document: GraphDefinition) -> dict[str, Any]:
    """The policies in force for an agent of this document.

    Standing rules come on top of `approval`: they belong to people and expire, so they are listed by `/api/rules`.
    """
    settings = context.settings
    return {
        "tools": [_tool(context, name, document) for name in tool_names(context, document)],
        "budget": msgspec.to_builtins(document.budget),
        "invariants": list(document.invariants),
        "interruptBefore": list(document.interrupt_before),
        "interruptAfter": list(document.interrupt_after),
        "limits": {
            "maxResultChars": settings.tools.max_result_chars,
            "holdMs": settings.tools.hold_ms,
            "windowRuns": settings.memory.chat_k,
            "maxBodyBytes": settings.server.max_body_bytes,
            "maxBodyValues": settings.server.max_body_values,
            "maxUploadBytes": settings.uploads.max_bytes,
            "maxRequestsPerMinute": settings.server.max_requests_per_minute,
            "maxRuns": settings.server.max_runs,
            "maxQueued": settings.server.max_queued,
        },
        "requestBudget": list(LIMITS),
        "perRequest": _per_request(context, document),
    }


def _per_request(context: ServiceContext, document: GraphDefinition) -> dict[str, Any]:
    """What a request may choose: what the agent allows and the settings do not take away."""
    allowed, kinds = document.per_request or PerRequest(), context.settings.agents.per_request
    return {
        "models": list(allowed.models) if "model" in kinds else [],
        "options": list(allowed.options) if "options" in kinds else [],
        "variables": allowed.variables if "variables" in kinds else {},
    }


def tool_names(context: ServiceContext, document: GraphDefinition) -> list[str]:
    """The tools that the agent's nodes may call, its graphs in place included; of an expression nothing is known."""
    names = [*offered_tools(context.tools, document, {})]
    for node in document.nodes.values():
        given = node.with_ if isinstance(node.with_, Mapping) else {}
        names += _used(context, document, node.use, given)
        if isinstance(node.graph, Mapping):
            names += _in_place(context, document, node.graph)
    return sorted({name for name in names if "${" not in name})


def _used(context: ServiceContext, document: GraphDefinition, use: Any, given: Mapping[str, Any]) -> Iterable[str]:
    if isinstance(use, str) and use.startswith("tool:"):
        return [use.removeprefix("tool:")]
    return offered_tools(context.tools, document, given) if use in ("model", "tools") else ()


def _in_place(context: ServiceContext, document: GraphDefinition, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        given = value.get("with")
        yield from _used(context, document, value.get("use"), given if isinstance(given, Mapping) else {})
        for inner in value.values():
            yield from _in_place(context, document, inner)


def _tool(context: ServiceContext, name: str, document: GraphDefinition) -> dict[str, Any]:
    rule = approval_rule(name, document.approval, context.runner.approval)
    mode, who = rule.mode, {"by": rule.by, "count": rule.count}
    tool = context.tools.get(name)
    if tool is None:  # a file that is refused now; the agent keeps the version that it was loaded with
        return {
            "name": name,
            "effects": None,
            "idempotent": None,
            "undo": None,
            "approval": mode,
            "asks": None,
            "capabilities": [],
            **who,
        }
    return {
        "name": name,
        "effects": tool.effects,
        "idempotent": tool.idempotent,
        "undo": tool.undo,
        "approval": mode,
        "asks": must_ask(tool, mode),
        "capabilities": list(tool.capabilities),
        **who,
    }
