"""Names of models in a fallback: `PROVIDER/MODEL`, or `PROVIDER` for its default model; `PROVIDER:MODEL` reads as the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from graphflow.errors import Issue
from graphflow.excerpts import excerpt_of
from graphflow.suggestions import choose

_NAME = re.compile(r"([^/:\s]+)(?:[/:](\S.*))?")


def split_name(name: str) -> tuple[str, str | None]:
    """`(provider key, model)` of a name.

    Raises:
        ValueError: it is none.
    """
    found = _NAME.fullmatch(name.strip())
    if found is None or found[1].lower() == "auto":
        raise ValueError(
            f"fallback: {excerpt_of(name)} names no model; write PROVIDER/MODEL, or PROVIDER for its default model"
        )
    return found[1].lower(), found[2]


def names_of(value: Any) -> tuple[str, ...]:
    """The names of a list, checked by themselves.

    Raises:
        ValueError: it is no list of names, or has one twice.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"fallback is {excerpt_of(value)}; it is a list of models, each PROVIDER/MODEL")
    split = [split_name(name) for name in value]
    for position, name in enumerate(split):
        if name in split[:position]:
            raise ValueError(f"fallback has {value[position]!r} twice; each model is asked once")
    return tuple(value)


def wrong_names(
    names: Sequence[str], provider: str | None, model: str | None, known: Collection[str] | None
) -> Iterator[tuple[int, str, str]]:
    """`(position, error, hint)` of each name that can't be asked.

    Args:
        provider: of the model that they stand in for; `None` if that is not known.
        model: its name; `None` is the provider's default.
        known: the keys of all providers; `None` skips that check.
    """
    for position, name in enumerate(names):
        key, other = split_name(name)
        if known is not None and key not in known:
            yield position, f"no provider is named {key!r}", choose(key, known)
        elif provider is not None and key == provider.lower() and other == model:
            yield position, f"{name!r} is the model itself; it would only fail again", "name another model or provider"


def fallback_issues(
    options: Mapping[str, Any], provider: Any, model: Any, known: Collection[str] | None, pointer: str
) -> Iterator[Issue]:
    """Errors in the names of the `fallback` of an `options` block, which is right by itself.

    Args:
        provider, model: as written beside it.
        pointer: of the block.
    """
    written = options.get("fallback")
    # The shape, and what an expression gives, are checked elsewhere.
    if not isinstance(written, list | tuple) or not all(isinstance(name, str) for name in written):
        return
    key, name = (value if isinstance(value, str) and "${" not in value else None for value in (provider, model))
    for position, wrong, hint in wrong_names(written, key, name, known):
        yield Issue(pointer=f"{pointer}/fallback/{position}", message=wrong, hint=hint, kind="reference")
