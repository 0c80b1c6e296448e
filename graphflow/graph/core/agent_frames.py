"""What sets an agent's frame apart from a subgraph's: a budget of its own, and a limit of how deep agents nest (E11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphflow.errors import NodeFailed
from graphflow.graph.core.immutable import FrozenDict
from graphflow.graph.core.machine import ROOT, Frame


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
