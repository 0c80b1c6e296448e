"""The keys that one attempt of a node gives its recorded operations (E5)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from graphflow.arguments import checked
from graphflow.errors import NodeFailed

F = TypeVar("F", bound=Callable[..., Any])


class OperationKeys:
    """Names operations so that an attempt that is entered again, and runs the same code, names them alike."""

    __slots__ = ("_begun", "_counts", "_used", "calls")

    def __init__(self) -> None:
        self._begun: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self.calls: set[str] = set()
        """Ids of the calls of models in this attempt."""

    def use(self, node: str, kind: str, name: str | None) -> str:
        """The key of an operation.

        Raises:
            NodeFailed: it was used in this attempt.
        """
        key = self.ordinal(kind) if name is None else name
        if key in self._used:
            raise NodeFailed(f"node {node!r} used the key {key!r} twice in one attempt; give each operation its own")
        self._used.add(key)
        return key

    def ordinal(self, kind: str) -> str:
        """The key of the next operation of this kind that is given none: the n-th of a kind is the same operation."""
        return f"{kind}:{self._count(kind)}"

    def of_call(self, call_id: str) -> str:
        """The key of a tool call: its id, and a number when calls before it had the same one."""
        count = self._count(f"call {call_id}")
        return call_id if count == 1 else f"{call_id}#{count}"

    def _count(self, what: str) -> int:
        self._counts[what] = count = self._counts.get(what, 0) + 1
        return count

    def begin(self, name: str, call: Coroutine[Any, Any, Any]) -> None:
        """Keeps a call until it runs: one that is never awaited does nothing, and nobody would be told."""
        if len(self._begun) >= MOST_BEGUN:
            self._begun = [(known, other) for known, other in self._begun if _is_unbegun(other)]
        self._begun.append((name, call))

    def refuse_unawaited(self, node: str) -> None:
        """Raises `NodeFailed` if a call of this attempt was never awaited; the node is about to end."""
        unbegun = [(name, call) for name, call in self._begun if _is_unbegun(call)]
        for _, call in unbegun:
            call.close()
        if unbegun:
            name = unbegun[0][0]
            raise NodeFailed(
                f"node {node!r} calls ctx.{name}(…) without `await`, so it does nothing; write `await ctx.{name}(…)`",
                code="validation",
            )


MOST_BEGUN = 16
"""Calls that are kept before those that have begun are forgotten."""


def _is_unbegun(call: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(call) == inspect.CORO_CREATED


def must_await(shows: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """As `checked`, for a coroutine method of a node run that must be awaited before the node ends."""

    def decorate(method: F) -> F:
        call = checked(shows=shows)(method) if shows is not None else checked(method)

        @functools.wraps(call)
        def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            begun = call(self, *args, **kwargs)
            self.keys.begin(method.__name__, begun)
            return begun

        return begin  # type: ignore[return-value] # the same call

    return decorate
