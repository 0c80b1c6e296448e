"""The types of the Python builder's arguments: what a type checker holds callers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
