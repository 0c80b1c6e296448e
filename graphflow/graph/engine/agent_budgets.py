"""The budgets of the agents that a node run is in: each is checked against what was used within its agent (E11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import BudgetExceeded
from graphflow.graph.core.agent_frames import agents_above
from graphflow.graph.core.budget import SPENT, add_usage, check_spending
from graphflow.graph.core.machine import Frame
from graphflow.graph.engine.run import Run


def check_agents(run: Run, number: int, figure: str, more: int) -> None:
    """Raises `BudgetExceeded` if an agent around the frame has no `more` of this figure left.

    Args:
        figure: `modelCalls` or `toolCalls`.
    """
    frames = run.machine.frames
    for agent in agents_above(frames, frames[number]):
        plan = run.plan.graphs[agent.graph]
        limits = plan.limits
        limit = limits.get(figure)
        if limit is None and SPENT.isdisjoint(limits):
            continue
        used = _used_in(run, agent)
        total = used.get(figure, 0)
        # The node that wraps up has one model call in reserve.
        if figure == "modelCalls" and agent.granted is not None and total + more <= agent.granted:
            continue
        if limit is not None and total + more > limit:
            raise BudgetExceeded(
                f"agent {plan.key!r} has used up the {figure} of its budget: {total} of {limit}",
                figure=figure,
                limit=limit,
                used=total,
                agent=agent.path,
            )
        if figure == "modelCalls":
            _check_spending(plan.key, agent, limits, used)


def _check_spending(key: str, agent: Frame, limits: Mapping[str, Any], used: Mapping[str, Any]) -> None:
    try:
        check_spending(limits, used, {})
    except BudgetExceeded as error:
        facts = {**error.detail, "agent": agent.path}
        raise BudgetExceeded(f"agent {key!r}: {error.message}", **facts) from None


def _used_in(run: Run, agent: Frame) -> dict[str, Any]:
    """What was used in the agent's frame and below, what no record holds yet included."""
    used, frames = dict(agent.spent or {}), run.machine.frames
    for number, more in run.usage.items():
        if number in frames and any(above.number == agent.number for above in agents_above(frames, frames[number])):
            used = add_usage(used, more)
    return used
