"""Nodes of registered Python functions: `fn:NAME` gets arguments, `node:NAME` gets state and context."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from graphflow.errors import Issue
from graphflow.graph.definition.document import GraphDefinition, NodeDefinition
from graphflow.graph.engine.node_run import NodeRun
from graphflow.graph.node_functions import takes_context
from graphflow.nodes.thread_context import ThreadContext
from graphflow.tools.run_in_thread import owner_of, run_in_thread

if TYPE_CHECKING:
    from graphflow.graph.definition.kinds import NodeFunction


class FunctionKind:
    """`use: fn:NAME`: called as `f(**with)`; out is its return value. A sync function runs in a thread."""

    name = "fn"
    effects = "none"
    with_schema: Mapping[str, Any] | None = None
    out_schema: Mapping[str, Any] | None = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        given = node.with_ if isinstance(node.with_, Mapping) else {}
        try:
            # Checked at load: a wrong argument name would otherwise fail the run that reaches this node.
            inspect.signature(self._function).bind(**dict.fromkeys(given))
        except TypeError as error:
            yield Issue(
                pointer="/with",
                message=f"{node.use!r} can't be called with {sorted(given)}: {error}",
                hint=f"its signature is {inspect.signature(self._function)}",
                kind="type",
            )

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        function = self._function
        if _is_async(function):

            async def run(arguments: Mapping[str, Any], ctx: NodeRun) -> Any:
                return await function(**arguments)

            return run

        async def run_sync(arguments: Mapping[str, Any], ctx: NodeRun) -> Any:
            return await run_in_thread(owner_of(ctx.machine.starter, ctx.thread_id), function, **arguments)

        return run_sync


class NodeKind:
    """`use: node:NAME`: called as `f(state, ctx)`; returns updates, nothing, or a `Goto`.

    A sync function runs in a thread, where the calls of its `ctx` return their results instead of something to await.
    """

    name = "node"
    effects = "none"
    with_schema: Mapping[str, Any] | None = {"type": "object", "additionalProperties": False}
    out_schema: Mapping[str, Any] | None = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def check(self, name: str, node: NodeDefinition, document: GraphDefinition) -> Iterable[Issue]:
        if node.set:
            yield Issue(
                pointer="/set",
                message="a `node:` function returns its updates itself",
                hint="remove `set`, or use fn:NAME",
                kind="shape",
            )

    def build(self, name: str, node: NodeDefinition, document: GraphDefinition) -> NodeFunction:
        function = self._function
        with_context = takes_context(function)
        if _is_async(function):
            if with_context:
                # No wrapper: the function already has the engine's signature.
                return cast("NodeFunction", function)

            async def run(state: Any, ctx: NodeRun) -> Any:
                return await function(state)

            return run

        async def run_sync(state: Any, ctx: NodeRun) -> Any:
            if not with_context:
                return await run_in_thread(owner_of(ctx.machine.starter, ctx.thread_id), function, state)
            # A thread can't await: its context blocks until the loop has answered.
            in_thread = ThreadContext(ctx)
            return await in_thread.run(function, state, in_thread)

        return run_sync


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine: an async function, or an object whose class defines `async __call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
