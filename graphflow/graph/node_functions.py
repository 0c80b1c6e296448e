"""What a node function is: a function of the state, and of the context if it takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from graphflow.errors import ArgumentRefused
from graphflow.excerpts import excerpt_of

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether the second parameter is the context: one without a default, or named `ctx`."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in _POSITIONAL]
    return len(parameters) > 1 and (parameters[1].default is inspect.Parameter.empty or parameters[1].name == "ctx")


def check_node_function(name: str, function: Any) -> None:
    """Refuses what could not run as a node.

    Raises:
        ArgumentRefused: a class, a generator, or a function with other parameters than `(state)` or `(state, ctx)`.
    """
    if isinstance(function, type) or not callable(function):
        raise _refused(name, f"is {excerpt_of(function)}, no function")
    called = (function, type(function).__call__)  # or an object that is called
    if any(map(inspect.isgeneratorfunction, called)) or any(map(inspect.isasyncgenfunction, called)):
        raise _refused(name, "has a `yield` in it; return the update, and stream with ctx.content(…)")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions in C nobody knows it
        return
    first = [p for p in parameters if p.kind in _POSITIONAL]
    needed = [p.name for p in first[2:] if p.default is p.empty]
    needed += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not first and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise _refused(name, "takes no state")
    if needed:
        raise _refused(name, f"needs {', '.join(map(repr, needed))}, which nobody gives it")


def _refused(name: str, why: str) -> ArgumentRefused:
    return ArgumentRefused(f"the node function {name!r} {why}; a node is f(state) or f(state, ctx)")
