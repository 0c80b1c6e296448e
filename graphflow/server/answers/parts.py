"""Parts that answers of several areas share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

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
