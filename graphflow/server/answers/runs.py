"""Answers about runs: what began, ended, waits or was removed from a queue."""

from __future__ import annotations

from typing import Any

from graphflow.runtime.result import RunStatus
from graphflow.runtime.runs.run_list import RunState
from graphflow.server.answers.parts import AnswerData, OpenQuestion, RunFailure, UsageFigures
from graphflow.service.runs.submit import Submitted


class RunLinks(AnswerData):
    """Addresses, relative to the server's."""

    run: str
    events: str
    """To join the run's stream."""
    thread: str


class RunLine(AnswerData):
    """A run, in short."""

    run_id: str
    thread_id: str
    chat_id: str
    """The same."""
    agent_key: str | None
    status: RunState
    """`queued`: it waits for its turn; `stopped`: its process died, and a server goes on with it; `pruned`: its records are gone."""
    created_at: int | None
    """When it was asked for, epoch ms; null where its id does not tell."""
    updated_at: int | None
    """When its newest record was made; null before the first."""
    ended_at: int | None
    usage: UsageFigures
    checkpoint_id: str | None
    """Its newest checkpoint."""
    finish_reason: str | None = None
    error: RunFailure | None = None
    links: RunLinks


class RunResource(RunLine):
    """A run."""

    answer: Any = None
    """Of a completed run."""
    interrupts: list[OpenQuestion]
    """What it asks people now."""


class RunAccepted(AnswerData):
    """A run that goes on in the background."""

    run_id: str
    chat_id: str
    request_id: str | None = None
    status: RunState
    queue_position: int | None = None
    """1: it is next."""
    links: RunLinks


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
    "get /api/runs": list[RunLine],
    "get /api/runs/{run_id}": RunResource,
    "post /api/query": RunOutcome,
    "post /api/submit": Submitted,
    "post /api/threads/{thread_id}/resume": RunOutcome,
    "post /api/threads/{thread_id}/cancel": Cancelled,
    "post /api/threads/{thread_id}/signal": SignalSent,
    "get /api/threads/{thread_id}/queue": list[QueuedLine],
    "delete /api/threads/{thread_id}/queue/{run_id}": Withdrawn,
}
"""Method and path → `data` of the answer."""
ACCEPTED: dict[str, Any] = dict.fromkeys(
    (
        "post /api/query",
        "post /api/threads/{thread_id}/resume",
        "post /api/threads/{thread_id}/messages/{message_id}/regenerate",
        "post /api/threads/{thread_id}/messages/{message_id}/edit",
    ),
    RunAccepted,
)
"""The same of an answer with status 202."""
