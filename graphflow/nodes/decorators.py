"""How a Python module offers its functions to documents: `@function` for `fn:NAME`, `@node` for `node:NAME` (spec 2.1, rule 9)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, overload

from graphflow.arguments import checked
from graphflow.graph.node_functions import check_node_function

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__graphflow_offer__"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


class Registration(NamedTuple):
    """The registration of a function for documents."""

    word: Literal["fn", "node"]
    name: str


@overload
def function(offered: F, /) -> F: ...
@overload
def function(*, name: str) -> Callable[[F], F]: ...
@checked
def function(offered: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Offers a function to documents, which call it as `"use": "fn:NAME"` with its arguments, or as `"x-reducer": "fn:NAME"`.

    It is registered if `[tools] modules` of `graphflow.toml` names its module, and can still be called directly.

    Args:
        name: default: the function's name.

    Raises:
        ValueError: no document could name it.
    """
    return _registering("fn", offered, name)


@overload
def node(offered: F, /) -> F: ...
@overload
def node(*, name: str) -> Callable[[F], F]: ...
@checked
def node(offered: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Offers a node function, `f(state, ctx)` or `f(state)`, to documents, which run it as `"use": "node:NAME"`.

    See `function` for its arguments and for where it is registered.
    """
    return _registering("node", offered, name)


def registration_of(value: object) -> Registration | None:
    """The registration of a value, or None."""
    # Objects with `__getattr__` (mocks, proxies) answer any name, so the type is checked as well.
    offer = getattr(value, _MARK, None) if callable(value) else None
    return offer if isinstance(offer, Registration) else None


def _registering(word: Literal["fn", "node"], offered: F | None, name: str | None) -> F | Callable[[F], F]:
    def mark(function: F) -> F:
        named = function.__name__ if name is None else name
        if _NAME.fullmatch(named) is None:
            raise ValueError(
                f"{named!r} can't be named as {word}:NAME: letters, digits, _ and -, a letter or _ first; give name="
            )
        if word == "node":
            check_node_function(named, function)
        # A mark and no global table: importing a module must not register anything by itself.
        setattr(function, _MARK, Registration(word, named))
        return function

    return mark if offered is None else mark(offered)
