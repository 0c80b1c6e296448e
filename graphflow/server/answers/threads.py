"""Answers about threads: their head, state, history and cost."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from graphflow.runtime.history.provenance import Blame
from graphflow.runtime.history.thread_states import CheckpointInfo
from graphflow.runtime.history.why import Why
from graphflow.runtime.thread_status import ThreadStatus
from graphflow.server.answers.parts import AnswerData, OpenQuestion, SpentFigures, UsageFigures, Values
from graphflow.server.answers.runs import RunOutcome


class ThreadSummary(AnswerData):
    """A thread at its head."""

    thread_id: str
    title: str
    metadata: Values
    """What `PATCH /api/threads/{id}` has written."""
    agent_key: str | None
    version: str | None
    status: ThreadStatus
    driven: bool
    run_id: str | None
    checkpoint_id: str | None
    next: list[str]
    interrupts: list[OpenQuestion]
    state: dict[str, str]
    """Key → kind and size of the value."""
    usage: UsageFigures
    created_at: int
    updated_at: int
    trace: list[str] | None = None
    """Of a failed thread, with the scope `admin`: where in the server's Python code it failed."""


class ThreadLine(AnswerData):
    """A thread, in short."""

    thread_id: str
    status: ThreadStatus
    driven: bool
    """Whether a live process drives it."""
    agent_key: str | None
    title: str | None
    created_at: int
    updated_at: int
    metadata: Values


class MessageLine(AnswerData):
    """What a user said, or an answer."""

    message_id: str
    role: Literal["user", "assistant"]
    content: str
    run_id: str
    at: int
    checkpoint_id: str | None
    """The checkpoint that has it."""
    references: list[Any] | None = None
    """Files that came with it."""


class StateAt(AnswerData):
    """The state at a checkpoint."""

    thread_id: str
    checkpoint_id: str | None
    status: ThreadStatus
    driven: bool
    run_id: str | None
    values: Values
    next: list[str]
    interrupts: list[OpenQuestion]
    usage: UsageFigures
    frames: dict[str, Values]
    """Open subgraphs and branches by path; of a branch only the keys that it wrote, and of a list only the items."""


class Changes(AnswerData):
    """What differs between two checkpoints."""

    from_: str
    to: str
    changes: dict[str, list[Values]]
    """State key → JSON Patch."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"))


class ThreadCost(AnswerData):
    """What a thread has used."""

    thread_id: str
    total: UsageFigures
    runs: dict[str, UsageFigures]
    nodes: dict[str, UsageFigures]
    models: dict[str, UsageFigures]
    spent: SpentFigures
    """Of all branches."""


class ThreadHead(AnswerData):
    """A thread's new head."""

    thread_id: str
    checkpoint_id: str


class Forked(AnswerData):
    """A new thread."""

    thread_id: str
    checkpoint_id: str | None
    forked_from: str


class Deleted(AnswerData):
    """A thread that is gone."""

    thread_id: str
    deleted: Literal[True]


class ThreadBlame(Blame, frozen=True, kw_only=True):
    """What wrote a value of a thread."""

    thread_id: str


class ThreadWhy(Why, frozen=True, kw_only=True):
    """Why a checkpoint of a thread has the next node that it has."""

    thread_id: str


THREADS: dict[str, Any] = {
    "get /api/threads": list[ThreadLine],
    "get /api/threads/{thread_id}": ThreadSummary,
    "patch /api/threads/{thread_id}": ThreadLine,
    "get /api/threads/{thread_id}/checkpoints": list[CheckpointInfo],
    "get /api/threads/{thread_id}/messages": list[MessageLine],
    "post /api/threads/{thread_id}/messages/{message_id}/regenerate": RunOutcome,
    "post /api/threads/{thread_id}/messages/{message_id}/edit": RunOutcome,
    "get /api/threads/{thread_id}/state": StateAt,
    "get /api/threads/{thread_id}/diff": Changes,
    "get /api/threads/{thread_id}/blame": ThreadBlame,
    "get /api/threads/{thread_id}/why": ThreadWhy,
    "get /api/threads/{thread_id}/cost": ThreadCost,
    "patch /api/threads/{thread_id}/state": ThreadHead,
    "post /api/threads/{thread_id}/rewind": ThreadHead,
    "post /api/threads/{thread_id}/fork": Forked,
    "delete /api/threads/{thread_id}": Deleted,
}
"""Method and path → `data` of the answer."""
