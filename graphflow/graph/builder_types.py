"""The types of the Python builder's arguments: what a type checker holds callers to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """`"x-reduce": "fn:NAME"`"""
