"""What every route answers, as types: the OpenAPI page is made of them, and a test holds the answers to it (spec 3).

They describe; nothing is built from them, so an answer costs no validation. A field with a default of None is left out
when there is nothing to say; one that may be null has no default.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from graphflow.runtime.history.provenance import Blame
from graphflow.runtime.history.thread_states import CheckpointInfo
from graphflow.runtime.history.why import Why
from graphflow.runtime.result import RunStatus
from graphflow.runtime.thread_status import ThreadStatus
from graphflow.service.runs.submit import Submitted
from graphflow.tools.running.standing_rules import StandingRule

Values = dict[str, Any]


class AnswerData(BaseModel):
    """Base of all: wire names are camelCase, and the docstring under a field is its description."""

    model_config = ConfigDict(alias_generator=to_camel, use_attribute_docstrings=True)


class RunFailure(AnswerData):
    """Why a run, a node or a task failed."""

    code: str
    """Of the list in docs/reference/errors.md."""
    message: str
    retryable: bool = False
    node: str | None = None
    detail: Values | None = None


class InterruptRef(AnswerData):
    """An open interrupt, in short."""

    interrupt_id: str
    kind: str
    node: str


class OpenQuestion(InterruptRef):
    """An open interrupt: what a client needs to ask a person."""

    run_id: str
    payload: Any
    """What to show: the message of an `ask`, the call of an approval."""
    schema_: Values
    """JSON Schema of the answer."""
    opened_at: int
    path: str | None = None
    tool_id: str | None = None
    tool_name: str | None = None
    arguments: Any = None
    owner: str | None = None
    role: str | None = None
    expires_at: int | None = None
    reissue_of: str | None = None

    model_config = ConfigDict(alias_generator=lambda name: to_camel(name.rstrip("_")))


class InboxLine(OpenQuestion):
    """An open interrupt with its thread."""

    thread_id: str
    agent_key: str | None = None


class UploadFacts(AnswerData):
    """A file that a chat keeps."""

    type: str
    name: str
    size_bytes: int
    mime_type: str
    sha256: str


class UploadReference(UploadFacts):
    """The same with its id, which `references` of a query name."""

    id: str


class UsageFigures(AnswerData):
    """What was used; figures that are 0 may be left out, a null is not known."""

    model_config = ConfigDict(extra="allow")

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    active_ms: int | None = None
    cost_usd: float | None = None


class DefinitionIssue(AnswerData):
    """An error in a file."""

    file: str | None
    line: int | None
    column: int | None
    pointer: str
    message: str


class AgentWarning(AnswerData):
    """What is allowed and likely a mistake."""

    model_config = ConfigDict(extra="allow")

    pointer: str
    message: str
    severity: str
    hint: str | None = None


class AgentLine(AnswerData):
    """An agent, in short."""

    key: str
    name: str
    icon: Any
    description: str | None
    mode: str | None
    model: str | None
    tools: list[str]
    version: str | None
    invalid: DefinitionIssue | None = None
    """The first error of a rejected file; an older version may stay active."""


class GraphNode(AnswerData):
    name: str
    kind: str
    form: str


class GraphEdge(AnswerData):
    source: str
    target: str
    kind: str
    condition: str | None = None


class AgentGraph(AnswerData):
    start: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    mermaid: str


class AgentDetail(AgentLine):
    """An agent in full."""

    provider_key: str | None
    keywords: list[str]
    instructions: str | None
    warnings: list[AgentWarning]
    graph: AgentGraph
    document: Values
    """The agent file."""


class ToolLine(AnswerData):
    """A tool."""

    name: str
    kind: str
    description: str
    parameters: Values
    """JSON Schema of its arguments."""
    effects: str | None
    idempotent: bool | None
    prompt: str | None = None
    after_call_hint: str | None = None
    tool_type: str | None = None
    viewport_key: str | None = None
    hold_ms: int | None = None
    payload: Any = None
    invalid: DefinitionIssue | None = None


class ToolResultInFull(AnswerData):
    """The result of a call."""

    tool_id: str
    tool_name: str | None
    result: Any
    cut: bool
    """Whether the model received only a part of it."""


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
    """The arguments with which the call ran."""
    interrupt_id: str | None = None
    rule_id: str | None = None
    tool_id: str | None = None
    tool_name: str | None = None
    reason: str | None = None


class ChatHistory(AnswerData):
    """A chat: its name and its history as events."""

    chat_id: str
    chat_name: str
    raw_messages: list[Values] | None
    """In OpenAI form; null unless they are asked for."""
    events: list[Values]
    references: list[Any]
    """Of all queries, each id once."""


class ChatLine(AnswerData):
    """A chat, in short."""

    chat_id: str
    chat_name: str
    agent_key: str | None
    created_at: int
    updated_at: int
    status: ThreadStatus
    driven: bool
    """Whether a live process drives it."""
    waiting: InboxLine | None
    """The first open interrupt."""


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


class Uploaded(AnswerData):
    """An upload that was kept."""

    request_id: str
    chat_id: str
    upload: UploadReference


class ThreadSummary(AnswerData):
    """A thread at its head."""

    thread_id: str
    title: str
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
    """Open subgraphs and branches by path."""


class Changes(AnswerData):
    """What differs between two checkpoints."""

    from_: str
    to: str
    changes: dict[str, list[Values]]
    """State key → JSON Patch."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"))


class SpentFigures(AnswerData):
    """A sum of the ledger."""

    model_calls: int
    tool_calls: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int
    active_ms: int
    cost_usd: float | None
    """null: not known in full; `knownCostUsd` is the part that is."""
    known_cost_usd: float
    uncounted_calls: int
    unpriced_calls: int


class SpentLine(SpentFigures):
    """A line of the ledger, with what it is grouped by."""

    day: str | None = None
    agent_key: str | None = None
    model: str | None = None


class UsageReport(AnswerData):
    """What was used over all threads."""

    total: SpentFigures
    lines: list[SpentLine]


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


class Deleted(AnswerData):
    """A thread that is gone."""

    thread_id: str
    deleted: Literal[True]


class Removed(AnswerData):
    """A rule that is gone."""

    id: str
    removed: Literal[True]


class Health(AnswerData):
    """The process answers."""

    status: Literal["ok"]


class Readiness(AnswerData):
    """The server takes requests."""

    status: Literal["ready"]
    agents: int
    runs: int
    """Live runs of this process."""


class ThreadBlame(Blame, frozen=True, kw_only=True):
    """What wrote a value of a thread."""

    thread_id: str


class ThreadWhy(Why, frozen=True, kw_only=True):
    """Why a checkpoint of a thread has the next node that it has."""

    thread_id: str


ANSWERS: dict[str, Any] = {
    "get /api/agents": list[AgentLine],
    "get /api/agent": AgentDetail,
    "get /api/tools": list[ToolLine],
    "get /api/tool": ToolLine,
    "get /api/tool/result": ToolResultInFull,
    "get /api/viewport": Any,
    "get /api/rules": list[StandingRule],
    "post /api/rules": StandingRule,
    "delete /api/rules/{rule_id}": Removed,
    "get /api/threads/{thread_id}/decisions": list[DecisionLine],
    "get /api/chat": ChatHistory,
    "get /api/chats": list[ChatLine],
    "post /api/upload": Uploaded,
    "post /api/query": RunOutcome,
    "post /api/submit": Submitted,
    "get /api/threads/{thread_id}": ThreadSummary,
    "get /api/threads/{thread_id}/checkpoints": list[CheckpointInfo],
    "get /api/threads/{thread_id}/state": StateAt,
    "get /api/threads/{thread_id}/diff": Changes,
    "get /api/threads/{thread_id}/blame": ThreadBlame,
    "get /api/threads/{thread_id}/why": ThreadWhy,
    "get /api/threads/{thread_id}/cost": ThreadCost,
    "patch /api/threads/{thread_id}/state": ThreadHead,
    "post /api/threads/{thread_id}/rewind": ThreadHead,
    "post /api/threads/{thread_id}/fork": Forked,
    "post /api/threads/{thread_id}/resume": RunOutcome,
    "post /api/threads/{thread_id}/cancel": Cancelled,
    "post /api/threads/{thread_id}/signal": SignalSent,
    "get /api/threads/{thread_id}/queue": list[QueuedLine],
    "delete /api/threads/{thread_id}/queue/{run_id}": Withdrawn,
    "delete /api/threads/{thread_id}": Deleted,
    "get /api/inbox": list[InboxLine],
    "get /api/usage": UsageReport,
    "get /api/health": Health,
    "get /api/ready": Readiness,
}
"""Method and path → `data` of the answer; of what is streamed or JSON, the JSON."""
