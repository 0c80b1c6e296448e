"""Answers about agents and tools."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from graphflow.server.answers.parts import AnswerData, Values


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


class ToolPolicy(AnswerData):
    """What holds for a tool that the agent's nodes may call."""

    name: str
    effects: str | None
    """`none`, `read` or `write`; null: the tool is not there."""
    idempotent: bool | None
    undo: str | None
    approval: str
    """`AUTO`, `REQUIRE_APPROVAL` or `DISABLED`, from the agent or else the settings."""
    asks: bool | None
    """Whether a person is asked before it runs, unless a standing rule decides."""
    capabilities: list[str]
    """What a call needs of the agent and of who starts the run."""
    by: str
    """Who approves: `anyone`, or `other` for a person who did not ask for the run."""
    count: int
    """So many different people approve."""


class ServerLimits(AnswerData):
    """Limits of this server; null: none."""

    max_result_chars: int
    hold_ms: int
    window_runs: int
    """Runs of a chat that a model sees."""
    max_body_bytes: int
    max_body_values: int
    max_upload_bytes: int
    max_requests_per_minute: int | None
    max_runs: int | None
    max_queued: int


class RequestChoices(AnswerData):
    """What a request may choose for its run; everything else is refused."""

    models: list[str]
    options: list[str]
    variables: dict[str, Values]
    """Prompt variable to the JSON Schema of its value."""


class AgentPolicies(AnswerData):
    """What the agent's runs are held to."""

    tools: list[ToolPolicy]
    budget: Values
    """Limits of a run, unless the request has others."""
    invariants: list[str]
    interrupt_before: list[str]
    interrupt_after: list[str]
    limits: ServerLimits
    request: list[str]
    """Fields by which a request may change how it is run."""
    request_budget: list[str]
    """Limits that `budget` of a request may set."""
    per_request: RequestChoices


class AgentDetail(AgentLine):
    """An agent in full."""

    policies: AgentPolicies

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
    capabilities: list[str]
    """What a call needs of the agent and of who starts the run."""
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


AGENTS: dict[str, Any] = {
    "get /api/agents": list[AgentLine],
    "get /api/agent": AgentDetail,
    "get /api/tools": list[ToolLine],
    "get /api/tool": ToolLine,
    "get /api/tool/result": ToolResultInFull,
    "get /api/viewport": Any,
}
"""Method and path → `data` of the answer."""
