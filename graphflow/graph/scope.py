"""What expressions see, and what a run may still use: scopes, visits, limits and usage (spec 1.3, 2.1, E11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import BudgetExceeded
from graphflow.graph.machine import Frame, Machine
from graphflow.graph.plan import Plan
from graphflow.graph.state import State
from graphflow.messages import AIMessage, HumanMessage


class Visits(Mapping[str, int]):
    """`visits.NODE` of one frame."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> int:
        return self._frame.visits.get(name, 0)

    def __iter__(self) -> Any:
        return iter(self._frame.visits)

    def __len__(self) -> int:
        return len(self._frame.visits)


def scope_of(
    machine: Machine, frame: Frame, limits: Any = None, usage: Any = None, state: State | None = None, **more: Any
) -> dict[str, Any]:
    """The roots of an expression in this frame (spec 2.1 rule 7)."""
    return {
        "state": frame.state if state is None else state,
        "input": frame.input,
        "visits": Visits(frame),
        "limits": machine.limits if limits is None else limits,
        "usage": machine.usage if usage is None else usage,
        "error": frame.error,
        **frame.scope,
        **more,
    }


USAGE_OF_LIMIT = {
    "modelCalls": ("modelCalls",),
    "toolCalls": ("toolCalls",),
    "tokens": ("promptTokens", "completionTokens"),
}
"""Limit → the usage figures that count against it."""


def check_budget(
    limits: Mapping[str, Any], usage: Mapping[str, Any], figure: str, *, more: int = 1, reserve: int = 0
) -> None:
    """Raises `BudgetExceeded` when `more` of this figure would pass its limit (spec 1.3)."""
    limit = limits.get(figure)
    if limit is None:
        return
    used = sum(usage.get(name, 0) for name in USAGE_OF_LIMIT[figure])
    if used + more > limit + reserve:
        raise exceeded(figure, limit, used)


def exceeded(figure: str, limit: Any, used: Any) -> BudgetExceeded:
    return BudgetExceeded(
        f"the budget's {figure} is used up: {used} of {limit}; resume with a larger budget, or name a node in budget.then",
        figure=figure,
        limit=limit,
        used=used,
    )


def add_usage(old: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both usages summed, figure by figure."""
    out = dict(old)
    for figure, value in more.items():
        out[figure] = out.get(figure, 0) + value
    return out


def result_of(plan: Plan, frame: Frame, scope: Mapping[str, Any]) -> Any:
    """The output of a finished frame: its `result`, else the last assistant text, else its state (E9)."""
    if plan.result is not None:
        return plan.result.evaluate(scope)
    if not plan.has_messages:
        return frame.state
    messages = frame.state.get("messages", ())
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AIMessage):
            return message.content
        if isinstance(message, HumanMessage):
            break
    return None
