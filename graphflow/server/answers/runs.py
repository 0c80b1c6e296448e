"""Answers about runs: what began, ended, waits or was removed from a queue."""

from __future__ import annotations

from typing import Any

from graphflow.runtime.result import RunStatus
from graphflow.server.answers.parts import AnswerData, OpenQuestion, RunFailure, UsageFigures
from graphflow.service.runs.submit import Submitted


class RunOutcome(AnswerData):
    """A run that has ended or waits."""

    run_id: str
    status: RunStatus
    request_id: str | None = None
    chat_id: str | None = None
    answer: Any = None
    finish_reason: str | None = None
    usage: UsageFigures | None = None
    checkpoint_id: str | None = None
    interrupts: list[OpenQuestion] | None = None
    error: RunFailure | None = None


class Cancelled(AnswerData):
    """Whether a run was cancelled."""

    thread_id: str
    cancelled: bool


class SignalSent(AnswerData):
    """Whether a signal woke a node."""

    thread_id: str
    name: str
    woken: bool


class QueuedLine(AnswerData):
    """An input that waits for its turn."""

    run_id: str
    request_id: str | None
    position: int
    message: str | None
    agent_key: str | None
    queued_at: int


class Withdrawn(AnswerData):
    """Whether a queued input was removed."""

    thread_id: str
    run_id: str
    withdrawn: bool


RUNS: dict[str, Any] = {
    "post /api/query": RunOutcome,
    "post /api/submit": Submitted,
    "post /api/threads/{thread_id}/resume": RunOutcome,
    "post /api/threads/{thread_id}/cancel": Cancelled,
    "post /api/threads/{thread_id}/signal": SignalSent,
    "get /api/threads/{thread_id}/queue": list[QueuedLine],
    "delete /api/threads/{thread_id}/queue/{run_id}": Withdrawn,
}
"""Method and path → `data` of the answer."""
