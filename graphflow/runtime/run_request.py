"""`RunRequest`: one input for a graph, from the caller or the HTTP body until its run begins, queued or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from graphflow.capabilities import By, name_of, starter_of
from graphflow.events import RequestQuery
from graphflow.id_rule import check_id
from graphflow.runtime.history.effects import Choices
from graphflow.runtime.thread_about import checked_title


class BatchOptions(TypedDict, total=False):
    """The options of `batch`: those of `run` that may hold for several runs."""

    durability: Literal["async", "sync"]
    budget: Mapping[str, Any] | None
    """Limits over the document's."""
    interrupt_before: Sequence[str]
    """Nodes before which the run stops for a person; `*` is all."""
    interrupt_after: Sequence[str]
    params: Any
    """What nodes read as `ctx.params`."""
    model: str | None
    """A model that the document's `perRequest` allows, for this run."""
    options: Mapping[str, Any] | None
    """Options of model calls that it allows."""
    variables: Mapping[str, Any] | None
    """Prompt variables that it declares; expressions read `input.variables`."""
    on_waiting: Literal["reject", "cancel", "answer"]
    on_busy: Literal["reject", "enqueue", "interrupt", "rollback"]
    effects: Choices
    """Choices for a rollback over `write` effects."""
    title: str | None
    """Of a thread that has none yet: 1 to 200 printable characters."""
    hold_ms: int | None
    """How long a run that a server drives waits for answers in its process, in milliseconds."""
    by: By
    """Who asks: a `Person`, or the name of one who may do everything; None is the local person."""


class RunOptions(BatchOptions, total=False):
    """The options of `run` and `stream`."""

    run_id: str
    """Default: a new id."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that starting a run needs."""

    input: Any = None
    """A mapping, or a text as `{"query": text}`."""
    thread_id: str = ""
    """Blank: a new thread."""
    run_id: str = ""
    """Blank: a new id when the run starts."""
    agent_key: str | None = None
    """The agent whose graph runs it; None: that of the graph that is given the request."""
    durability: str = "async"
    """`async` or `sync`."""
    budget: Mapping[str, Any] | None = None
    """Limits over the document's."""
    interrupt_before: Sequence[str] = ()
    interrupt_after: Sequence[str] = ()
    params: Any = None
    model: str | None = None
    options: Mapping[str, Any] | None = None
    variables: Mapping[str, Any] | None = None
    """The three: only what the document's `perRequest` allows."""
    on_waiting: str = "reject"
    """`reject`, `cancel` or `answer`. Of a queued input only `cancel` counts: it closes questions that are open when its
    turn comes; else the input waits until they are answered."""
    on_busy: str = "reject"
    """`reject`, `enqueue`, `interrupt` or `rollback`."""
    effects: Choices = None
    """Choices for a rollback over `write` effects."""
    title: str | None = None
    """Of a thread that has none yet."""
    hold_ms: int | None = None
    """How long the process of a detached run waits for answers; None: 300,000."""
    starter: dict[str, Any] | None = None
    """Who asks, as it is stored (`capabilities.Starter`); None: the local person."""
    by: str | None = None
    """The same as records name them: a token's name, where the starter is its user."""
    query: RequestQuery | None = None
    """The event that announces it, when it came as a request."""
    holder: str | None = None
    """The owner of a caller that waits in the queue itself and drives the run (an attached one); None: the process
    that frees the thread starts it."""

    @property
    def request_id(self) -> str | None:
        return None if self.query is None else self.query.request_id


def request_of(input: Any, thread_id: str | None, options: Mapping[str, Any]) -> RunRequest:
    """The request of a Python caller, whose options are checked.

    Raises:
        GraphflowError: `invalid_input`: `run_id` is one that no new run may get, or `title` is not one.
    """
    given = dict(options)
    by: By = given.pop("by", None)
    given |= {"starter": starter_of(by), "by": name_of(by)}
    request = RunRequest(input=input, thread_id=thread_id or "", **given)
    if request.run_id:
        check_id(request.run_id, "run_id")
    if request.title is not None:
        checked_title(request.title)
    return request


__all__ = ["BatchOptions", "RunOptions", "RunRequest", "request_of"]
