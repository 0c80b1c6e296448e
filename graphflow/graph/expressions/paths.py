"""Reading a path by reference: no conversion, no copy, the very object that the scope holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from graphflow.graph.expressions.ast import Index, Path, PathStep

Read = Callable[[Mapping[str, Any]], Any]


class Missing(Exception):
    """A path has no value; the text names what exists instead."""


def reader(path: Path, nested: Callable[[Index], Read]) -> Read:
    """What reads the path from a scope.

    Args:
        path: the path to read; with a test (`has`, `size`), the result is that of the test.
        nested: compiles an index that is an expression.
    """
    if path.test == "has":
        return _presence(path, nested)
    read = _plain(path, nested)
    if path.test == "size":
        return lambda scope: _size(read(scope), path)
    return read


def show_path(variable: str, steps: tuple[PathStep, ...]) -> str:
    """The path as written, more or less."""
    out = variable
    for step in steps:
        if isinstance(step, Index):
            out += f"[{step.text}]"
        elif isinstance(step, int):
            out += f"[{step}]"
        else:
            out += f".{step}" if step.isidentifier() else f"[{step!r}]"
    return out


def _plain(path: Path, nested: Callable[[Index], Read]) -> Read:
    variable, steps = path.variable, path.steps
    if variable == "usage" and len(steps) == 1:
        figure = steps[0]
        # A counter that nothing has used yet is 0 and not missing.
        return lambda scope: scope["usage"].get(figure, 0)
    if variable == "state" and len(steps) == 1 and isinstance(steps[0], str):
        return _state_key(steps[0])
    if any(isinstance(step, Index) for step in steps):
        return _indexed(path, nested)
    return lambda scope: _walk(_variable(scope, variable), variable, steps)


def _state_key(key: str) -> Read:
    def read(scope: Mapping[str, Any]) -> Any:
        try:
            return scope["state"][key]
        except KeyError:
            raise Missing(f"the state has no key {key!r} here") from None

    return read


def _indexed(path: Path, nested: Callable[[Index], Read]) -> Read:
    parts = [nested(step) if isinstance(step, Index) else step for step in path.steps]

    def read(scope: Mapping[str, Any]) -> Any:
        steps = tuple(part(scope) if callable(part) else part for part in parts)
        return _walk(_variable(scope, path.variable), path.variable, steps)

    return read


def _variable(scope: Mapping[str, Any], variable: str) -> Any:
    try:
        return scope[variable]
    except KeyError:
        raise Missing(f"there is no {variable!r} here") from None


def _walk(value: Any, variable: str, steps: tuple[Any, ...]) -> Any:
    for depth, step in enumerate(steps):
        try:
            value = value[step] if isinstance(value, dict) else _field(value, step)
        except (KeyError, LookupError, TypeError):
            raise Missing(_explain(value, show_path(variable, steps[:depth]), step)) from None
    return value


def _field(value: Any, step: Any) -> Any:
    """One step on anything but a dict; raises `LookupError` when it leads nowhere."""
    if isinstance(value, Mapping):
        return value[step]
    if isinstance(step, int) and not isinstance(step, bool):
        if isinstance(value, Sequence) and not isinstance(value, str | bytes) and 0 <= step < len(value):
            return value[step]
        raise LookupError
    if isinstance(step, str) and _has_fields(value):
        # Public fields only: a document must not reach methods or the insides of Python objects.
        for name in (step, _snake(step)):
            if not name.startswith("_") and name in _field_names(type(value)):
                return getattr(value, name)
    raise LookupError


def _has_fields(value: Any) -> bool:
    return hasattr(type(value), "__struct_fields__") or hasattr(type(value), "__dataclass_fields__")


def _field_names(kind: type) -> Any:
    """Fields of a struct or dataclass; a tagged struct also answers to its tag (`role`)."""
    fields = getattr(kind, "__struct_fields__", None)
    if fields is None:
        return getattr(kind, "__dataclass_fields__", ())
    tag = kind.__struct_config__.tag_field  # type: ignore[attr-defined]
    return (*fields, tag) if tag and hasattr(kind, tag) else fields


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _explain(value: Any, shown: str, step: Any) -> str:
    if value is None:
        return f"{shown} is null, so it has no {step!r}"
    if isinstance(value, Mapping):
        what = f"; a key is text: string({step!r})" if isinstance(step, int | float) and str(step) in value else ""
        return f"{shown} has no {_step(step)}; it has {_listed(map(str, value))}{what}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if isinstance(step, int):
            return f"{shown} has {len(value)} items, so there is no [{step}]"
        if isinstance(step, float):
            return f"{shown} is a list, and its items have whole numbers, not {step!r}: write int(…) around the index"
        return f"{shown} is a list, so it has no {_step(step)}; take an item: {shown}[0]"
    if _has_fields(value):
        return f"{shown} has no {step!r}; it has {_listed(map(_camel, _field_names(type(value))))}"
    return f"{shown} is {type(value).__name__}, so it has no {step!r}"


def _step(step: Any) -> str:
    return str(step).lower() if isinstance(step, bool) else repr(step)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _listed(names: Any) -> str:
    listed = sorted(names)
    return ", ".join(listed[:12]) + (", …" if len(listed) > 12 else "") if listed else "nothing"


def _presence(path: Path, nested: Callable[[Index], Read]) -> Read:
    parent = _plain(Path(path.variable, path.steps[:-1], path.start, path.end), nested)
    last = path.steps[-1]

    def read(scope: Mapping[str, Any]) -> bool:
        # As in CEL, a missing parent is an error and not a false: `has(out.a.b)` asks about `b` alone.
        value = parent(scope)
        if isinstance(value, Mapping):
            return last in value
        try:
            _field(value, last)
        except LookupError:
            if value is None or not _has_fields(value):
                raise Missing(_explain(value, show_path(path.variable, path.steps[:-1]), last)) from None
            return False
        return True

    return read


def _size(value: Any, path: Path) -> int:
    if isinstance(value, str | bytes | Mapping | Sequence | AbstractSet):
        return len(value)
    kind = "null" if value is None else type(value).__name__
    raise Missing(f"size({show_path(path.variable, path.steps)}) needs a list, a map or text, not {kind}")
