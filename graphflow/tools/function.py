"""The body of a tool made from a Python function: sync or async, plain or streaming its progress."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from typing import Any

from graphflow.tools.context import ToolContext
from graphflow.tools.run_in_thread import owner_of, run_in_thread
from graphflow.tools.signature import Signature, context_parameter

_END = object()
_Execute = Callable[[Callable[..., Any], Mapping[str, Any], ToolContext], Awaitable[Any]]
"""How a function of one sort is run: `(function, arguments, context) → its result`."""


class FunctionBody:
    """Runs a function with checked arguments: sync ones in a thread, generators step by step."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self.function = function
        self.signature = signature
        self._context = context_parameter(function)
        self._execute = _execute_of(function)

    @property
    def parameters(self) -> dict[str, Any]:
        return self.signature.parameters

    def prepare(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self.signature.prepare(arguments)

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """What the function returns; of a generator its return value, else its last yield."""
        given = dict(arguments)
        if self._context is not None:
            given[self._context] = ctx
        return await self._execute(self.function, given, ctx)


def _execute_of(function: Callable[..., Any]) -> _Execute:
    if inspect.isasyncgenfunction(function):
        return _drain
    if inspect.isgeneratorfunction(function):
        return _drain_in_thread
    return _await if inspect.iscoroutinefunction(function) else _run_in_thread


async def _await(function: Callable[..., Any], given: Mapping[str, Any], ctx: ToolContext) -> Any:
    return await function(**given)


async def _run_in_thread(function: Callable[..., Any], given: Mapping[str, Any], ctx: ToolContext) -> Any:
    value = await run_in_thread(owner_of(ctx.starter, ctx.thread_id), function, **given)
    # A sync function may still return an awaitable, a lambda around a coroutine function for one.
    return await value if inspect.isawaitable(value) else value


async def _drain(function: Callable[..., Any], given: Mapping[str, Any], ctx: ToolContext) -> Any:
    """Sends each yield as progress; the last one is the result."""
    steps: AsyncGenerator[Any, None] = function(**given)
    last: Any = None
    try:
        async for last in steps:
            await ctx.progress(last)
    finally:
        # Closed here, so that its cleanup runs in this task and not whenever it is collected.
        await steps.aclose()
    return last


async def _drain_in_thread(function: Callable[..., Any], given: Mapping[str, Any], ctx: ToolContext) -> Any:
    owner = owner_of(ctx.starter, ctx.thread_id)
    steps: Generator[Any, None, Any] = function(**given)
    last: Any = None
    returned: list[Any] = []
    try:
        # A step at a time: progress is sent from the event loop, between the steps.
        while (step := await run_in_thread(owner, _step, steps, returned)) is not _END:
            last = step
            await ctx.progress(step)
    finally:
        with contextlib.suppress(ValueError):  # cancelled in the middle of a step: the thread still runs it
            steps.close()
    return last if returned[0] is None else returned[0]


def _step(steps: Generator[Any, None, Any], returned: list[Any]) -> Any:
    """The next yield, or `_END` with the return value put aside: `StopIteration` can't cross a thread's future."""
    try:
        return next(steps)
    except StopIteration as end:
        returned.append(end.value)
        return _END
