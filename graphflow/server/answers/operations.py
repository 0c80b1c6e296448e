"""Answers for operators: open questions, usage, health."""

from __future__ import annotations

from typing import Any, Literal

from graphflow.server.answers.parts import AnswerData, InboxLine, SpentFigures


class SpentLine(SpentFigures):
    """A line of the ledger, with what it is grouped by."""

    day: str | None = None
    agent_key: str | None = None
    model: str | None = None


class UsageReport(AnswerData):
    """What was used over all threads."""

    total: SpentFigures
    lines: list[SpentLine]


class Health(AnswerData):
    """The process answers."""

    status: Literal["ok"]


class Readiness(AnswerData):
    """The server takes requests."""

    status: Literal["ready"]
    agents: int
    runs: int
    """Live runs of this process."""


OPERATIONS: dict[str, Any] = {
    "get /api/inbox": list[InboxLine],
    "get /api/usage": UsageReport,
    "get /api/health": Health,
    "get /api/ready": Readiness,
}
"""Method and path → `data` of the answer."""
