"""What expressions see, and what a run may still use: scopes, visits, limits and usage (spec 1.3, 2.1, E11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import BudgetExceeded
from graphflow.graph.machine import Frame, Machine
from graphflow.graph.plan import Plan
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


class Scope(dict[str, Any]):
    """The roots of an expression in one frame (spec 2.1 rule 7): `state` and what was given at once, the rest when
    an expression names it.
    """

    __slots__ = ("_frame", "_limits", "_usage")

    def __init__(self, frame: Frame, limits: Any, usage: Any, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self._frame, self._limits, self._usage = frame, limits, usage

    def __missing__(self, root: str) -> Any:
        frame = self._frame
        if root == "state":
            return frame.state
        if root == "visits":
            return Visits(frame)
        if root in ("limits", "usage", "input", "error"):
            return {"limits": self._limits, "usage": self._usage, "input": frame.input, "error": frame.error}[root]
        return frame.scope[root]


def scope_of(plan: Plan, machine: Machine, frame: Frame, **given: Any) -> Scope:
    """The scope of expressions in a frame of this machine; `given` adds roots (`out`, `answer`) or overrides them.

    Args:
        plan: the frame's own.
    """
    return Scope(frame, limits_in(plan, frame, machine.limits), machine.usage, given)


def limits_in(plan: Plan, frame: Frame, limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """`limits` as a frame sees them: the run's, and in a subgraph its own document's figures over them (E11)."""
    return {**limits, **plan.limits} if frame.graph else limits


USAGE_OF_LIMIT = {
    "modelCalls": ("modelCalls",),
    "toolCalls": ("toolCalls",),
    "tokens": ("promptTokens", "completionTokens"),
}
"""Limit → the usage figures that count against it."""


def check_budget(
    limits: Mapping[str, Any], usage: Mapping[str, Any], figure: str, *, more: int = 1, reserve: int = 0
) -> None:
    """Raises `BudgetExceeded` when `more` of this figure would pass its limit (spec 1.3).

    A figure that is not known any more, since a provider did not tell it, never counts as 0: nothing is left of it.
    """
    limit = limits.get(figure)
    if limit is None:
        return
    figures = [usage.get(name, 0) for name in USAGE_OF_LIMIT[figure]]
    if None in figures:
        raise exceeded(figure, limit, None)
    used = sum(figures)
    if used + more > limit + reserve:
        raise exceeded(figure, limit, used)


def check_spending(limits: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
    """Raises `BudgetExceeded` when the run has spent its tokens or its money; what a call spends is known after it."""
    check_budget(limits, usage, "tokens")
    if "costUsd" in limits and (usage.get("costUsd", 0) is None or usage.get("costUsd", 0) >= limits["costUsd"]):
        raise exceeded("costUsd", limits["costUsd"], usage.get("costUsd", 0))


def exceeded(figure: str, limit: Any, used: Any) -> BudgetExceeded:
    if used is None:
        text = f"the budget has a limit on {figure} ({limit}), and a provider did not say what a call has used"
        text += "; limit modelCalls instead"
    else:
        text = f"the budget's {figure} is used up: {used} of {limit}; resume with a larger budget, or name a node in budget.then"
    return BudgetExceeded(
        text,
        figure=figure,
        limit=limit,
        used=used,
    )


def add_usage(old: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both usages summed, figure by figure; None is an unknown figure, and unknown is its sum."""
    out = dict(old)
    for figure, value in more.items():
        had = out.get(figure, 0)
        out[figure] = None if value is None or had is None else _sum(had, value)
    return out


def _sum(a: float, b: float) -> float:
    """Money is a float of whole 10⁻¹² USD: rounded to that, its sum does not depend on the order."""
    total = a + b
    return round(total, 12) if type(total) is float else total


def told_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The usage as events tell it: a cost that is not known is left out, as all that is null there."""
    return {figure: value for figure, value in usage.items() if value is not None or figure != "costUsd"}


def usage_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What was added to a usage; figures that did not change are left out."""
    out: dict[str, Any] = {}
    called = after.get("modelCalls") != before.get("modelCalls")
    for figure, value in after.items():
        had = before.get(figure, 0)
        if value is None or had is None:
            if had is not None or called:
                out[figure] = None
        elif value != had:
            out[figure] = _sum(value, -had)
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
