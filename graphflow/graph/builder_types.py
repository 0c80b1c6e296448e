"""The types of the Python builder's arguments: what a type checker holds callers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict

RouteTo = TypedDict("RouteTo", {"to": str, "if": str}, total=False)
"""`{"if": "state.score > 0.8", "to": "send"}`; the last of a list has no `if`."""


class ChooseOf(TypedDict):
    """`{"choose": ["a", "end"]}`: the function says which by returning `Goto` (E19)."""

    choose: Sequence[str]


class ErrorTo(TypedDict, total=False):
    """`{"on": ["timeout"], "to": "wrap_up"}`; without `on` any failure."""

    to: str
    on: Sequence[str]


class AskKeys(TypedDict, total=False):
    """The keys of a question beside its `message`; None leaves one out."""

    schema: Mapping[str, Any] | None
    """JSON Schema of the answer; without one anything is an answer."""
    show: str | None
    """An expression whose value stands beside the question."""
    owner: str | None
    role: str | None
    hold_ms: int | None
    """How long a stream waits for the answer before it ends, in milliseconds."""
    expires: str | None
    """ISO 8601 duration (`P2D`) after which nobody can answer any more."""
    on_expire: str | None
    """The node that follows then."""


class RetryPolicy(TypedDict, total=False):
    """How often and when a failed attempt is repeated; times in milliseconds."""

    max: int
    on: Sequence[str]
    backoffMs: int
    factor: float
    maxBackoffMs: int
    jitter: float


Next: TypeAlias = str | Sequence[RouteTo] | ChooseOf
Effects: TypeAlias = Literal["none", "read", "write"]
OnError: TypeAlias = Literal["fail", "collect", "skip"]
Wait: TypeAlias = Literal["all", "any"] | int


class GraphFields(TypedDict, total=False):
    """The top-level keys of a document that `Graph` takes beside its state, name and budget."""

    description: str
    input: Mapping[str, Any]
    """JSON Schema of the input; without it an object with `query`."""
    result: str
    """Expression for the run's output; without it, with `messages` in the state, the text of the last answer there, else the whole state."""
    invariants: Iterable[str]
    interrupt_before: Iterable[str]
    """Nodes before which every run stops for a person; `*` is all."""
    interrupt_after: Iterable[str]
    version: str
    """For readers; runs do not use it."""
    icon: str | Mapping[str, Any]
    provider_key: str
    """Default provider of `model` nodes; so are the next ones defaults."""
    model: str
    options: Mapping[str, Any]
    tools: Iterable[str]
    keywords: Iterable[str]
    approval: str | Mapping[str, str | Mapping[str, Any]]
    compute: str
    output: str
    tool_policy: str
    verify: str
    context: Mapping[str, Any]


class CommonKeys(TypedDict, total=False):
    """The keys that any node may have, in Python's spelling; None leaves one out."""

    with_: Any
    set: Mapping[str, str] | None
    next: Next | None
    error: Sequence[ErrorTo] | None
    retry: RetryPolicy | None
    timeout_s: float | None
    effects: Effects | None
    idempotent: bool | None
    undo: str | None
    description: str | None


class SubgraphKeys(CommonKeys, total=False):
    """The keys of a node that runs a graph."""

    stream: Literal["content"] | None


class NodeKeys(SubgraphKeys, total=False):
    """The keys of a node of any form."""

    use: str | None
    map: str | None
    parallel: Mapping[str, Any] | None
    graph: Any
    """Key of a graph, a document, or a `Graph`."""
    ask: Mapping[str, Any] | None
    timeout_ms: int | None
    as_: str | None
    do: Any
    max: int | None
    join: Mapping[str, Any] | None


@dataclass(frozen=True)
class Parts:
    """The Python behind a document's names."""

    nodes: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """`node:NAME`"""
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """`fn:NAME`"""
    reducers: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    """`"x-reducer": "fn:NAME"`"""
    states: dict[str, type] = field(default_factory=dict)
    """Key of the graph in the plan's table (`""` is the root, `/NODE` an inline graph's) → the class of its state."""
