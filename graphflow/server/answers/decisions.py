"""Answers about what people decided, and the rules that decide for them."""

from __future__ import annotations

from typing import Any, Literal

from graphflow.server.answers.parts import AnswerData
from graphflow.tools.running.standing_rules import StandingRule


class ShownToPerson(AnswerData):
    """What whoever decided was shown."""

    payload: Any = None
    arguments: Any = None


class DecisionLine(AnswerData):
    """A decision about a tool call or a question."""

    at: int
    by: str
    kind: str
    decision: str
    shown: ShownToPerson
    node: str | None = None
    ran: Any = None
    """The arguments with which the call ran; absent if it was not made, or not yet."""
    interrupt_id: str | None = None
    rule_id: str | None = None
    tool_id: str | None = None
    tool_name: str | None = None
    reason: str | None = None


class Removed(AnswerData):
    """A rule that is gone."""

    id: str
    removed: Literal[True]


DECISIONS: dict[str, Any] = {
    "get /api/rules": list[StandingRule],
    "post /api/rules": StandingRule,
    "delete /api/rules/{rule_id}": Removed,
    "get /api/threads/{thread_id}/decisions": list[DecisionLine],
}
"""Method and path → `data` of the answer."""
