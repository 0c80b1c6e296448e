"""What expressions see in a frame (spec 2.1 rule 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import NodeFailed
from graphflow.graph.core.immutable import freeze, thaw
from graphflow.graph.core.machine import Frame, Machine
from graphflow.graph.core.plan import Plan
from graphflow.graph.expressions.cel_library import to_plain
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
    """The roots of an expression in one frame (spec 2.1 rule 7); all but the given ones are built when first named."""

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


def limits_in(plan: Plan, frame: Frame, limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """`limits` as a frame sees them: the run's; in a subgraph, its own document's limits override them (E11)."""
    return {**limits, **plan.limits} if frame.graph else limits


def scope_of(plan: Plan, machine: Machine, frame: Frame, **given: Any) -> Scope:
    """The scope of expressions in a frame of this machine; `given` adds roots (`out`, `answer`) or overrides them.

    Args:
        plan: the frame's own.
    """
    return Scope(frame, limits_in(plan, frame, machine.limits), machine.usage, given)


def taken_input(plan: Plan, given: Any) -> Any:
    """The input of a subgraph as its schema takes it, by the rules for a run's own (E9).

    Raises:
        NodeFailed: `validation`, it does not fit.
    """
    checker = plan.input_checker
    # Messages and Python's own types are objects of classes, which only their plain form says. It costs a walk.
    if checker.errors(given) and (issues := checker.errors(to_plain(given))):
        first = "; ".join(f"{issue.pointer or 'with'}: {issue.message}" for issue in issues[:5])
        raise NodeFailed(
            f"what the node passes in `with` does not fit the input schema of its graph: {first}",
            code="validation",
            errors=[issue.as_dict() for issue in issues],
        )
    if not plan.takes_integers:
        return given
    plain = thaw(given)
    return given if (taken := checker.taken(plain)) is plain else freeze(taken)


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
            return message.text
        # Text from before the last user message answers an earlier input, not this one.
        if isinstance(message, HumanMessage):
            break
    return None
