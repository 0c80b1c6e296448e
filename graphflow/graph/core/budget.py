"""What a run, and each agent in it, may still use and has used: limits and usage (spec 1.3, E11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphflow.errors import BudgetExceeded, NodeFailed
from graphflow.graph.core.immutable import FrozenDict
from graphflow.graph.core.machine import ROOT, Frame

USAGE_OF_LIMIT = {
    "modelCalls": ("modelCalls",),
    "toolCalls": ("toolCalls",),
    "tokens": ("promptTokens", "completionTokens"),
    "costUsd": ("costUsd",),
}
"""Limit → the usage figures that count against it."""
SPENT = frozenset({"tokens", "costUsd"})
"""Limits on what is only known after a call."""


def check_spending(limits: Mapping[str, Any], recorded: Mapping[str, Any], unrecorded: Mapping[str, Any]) -> None:
    """Raises `BudgetExceeded` when the run has no token or no money left; what a call uses is only known after it.

    A count that the provider does not send never counts as 0: after such a call nothing is left.
    """
    for figure in sorted(SPENT & limits.keys(), reverse=True):
        usage = add_usage(recorded, unrecorded)
        if usage.get("uncountedCalls"):
            raise uncounted(figure, limits[figure])
        used = sum(usage.get(name, 0) for name in USAGE_OF_LIMIT[figure])
        if used >= limits[figure]:
            raise exceeded(figure, limits[figure], used)


def uncounted(figure: str, limit: Any) -> BudgetExceeded:
    return BudgetExceeded(
        f"the budget limits {figure} to {limit}, and the provider did not report the usage of its last turn, so the"
        " limit can't be enforced; limit maxModelCalls instead",
        figure=figure,
        limit=limit,
        used=None,
    )


def exceeded(figure: str, limit: Any, used: Any, reserved: int = 0) -> BudgetExceeded:
    """
    Args:
        reserved: how much of `used` is kept for what has begun and not finished.
    """
    kept = f" ({reserved} reserved for nodes that have not finished)" if reserved else ""
    return BudgetExceeded(
        f"the budget's {figure} is used up: {used} of {limit}{kept}; resume with a larger budget, or name a node in budget.onExceeded",
        figure=figure,
        limit=limit,
        used=used,
    )


def is_spent(error: Mapping[str, Any]) -> bool:
    """Whether the steps, the time or the events are used up. Every node needs them, so no retry, error route or join can go on."""
    code, detail = error["code"], error.get("detail") or {}
    if code == "limit_exceeded":
        return detail.get("setting") == "bounds.events"
    return code == "budget_exceeded" and detail.get("figure") in ("steps", "timeoutMs")


def add_usage(old: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both usages summed, figure by figure."""
    out = dict(old)
    for figure, value in more.items():  # as `_sum`, without its call: each model call adds a dozen figures
        total = out.get(figure, 0) + value
        out[figure] = round(total, 12) if type(total) is float else total
    return out


def _sum(a: float, b: float) -> float:
    """Money is a float of whole 10⁻¹² USD: rounded to that, its sum does not depend on the order."""
    total = a + b
    return round(total, 12) if type(total) is float else total


def usage_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What was added to a usage; figures that did not change are left out."""
    return {
        figure: _sum(value, -before.get(figure, 0)) for figure, value in after.items() if value != before.get(figure, 0)
    }


def shown_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage as events show it: an unknown value is null, never 0.

    Tokens are null if any call was not counted; the cost is left out if the cost of any call is unknown.
    """
    out = {figure: value for figure, value in usage.items() if figure != "unpricedCalls"}
    if usage.get("unpricedCalls"):
        out.pop("costUsd", None)
    if usage.get("uncountedCalls"):
        out |= {"promptTokens": None, "completionTokens": None}
    return out


def known_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A usage for people: a cost that is not known is None there, and not left out."""
    if not usage.get("modelCalls"):
        return dict(usage)
    return {**shown_usage(usage), "costUsd": None if usage.get("unpricedCalls") else usage.get("costUsd", 0.0)}


# --- agents: a frame with a budget of its own, and a limit of how deep such frames nest


def agents_above(table: Mapping[int, Frame], frame: Frame) -> Iterator[Frame]:
    """The frames of the agents that a frame is in, from the inside out; itself if it is one."""
    while frame.number > ROOT:
        if frame.spent is not None:
            yield frame
        frame = table[frame.parent]


def refuse_too_deep(table: Mapping[int, Frame], frame: Frame, node: str, agent: str, most: int) -> None:
    """Raises `tool_error` if an agent that this frame's node opens would be one too many within each other."""
    depth = sum(1 for _ in agents_above(table, frame)) + 1
    if depth > most:
        raise NodeFailed(
            f"agent {agent!r} was not called by node {node!r}: it would be at depth {depth}, and agents call each other at most "
            f"{most} deep; do the work without it, or raise the setting `bounds.max_agent_depth`",
            code="tool_error",
            agent=agent,
            depth=depth,
        )


def agent_output(out: Any) -> FrozenDict:
    """The `out` of an `agent:` node: the agent's output, and as `text` if it is one."""
    return FrozenDict({"text": out if isinstance(out, str) else "", "output": out})


def is_own_limit(frame: Frame, error: Mapping[str, Any]) -> bool:
    """Whether the failure is a limit of the budget of the agent whose frame this is, not one of the run."""
    if frame.spent is None or error["code"] != "budget_exceeded":
        return False
    return (error.get("detail") or {}).get("agent") == frame.path


def own_limit_failure(error: Mapping[str, Any]) -> dict[str, Any]:
    """The failure as the node has it that opened the agent: the run itself has budget left, so error routes may go on."""
    return {**error, "code": "tool_error"}
