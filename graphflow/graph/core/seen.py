"""What conditions saw of values that no state keeps: the output or answer of the node that they stand behind.

The record keeps them in short, so that `why` can tell them later (spec 2.5); what a condition reads of the state, of
visits and of limits is in the machine anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

from graphflow.graph.core.plan import PlanNode

MOST = 200
"""Characters that are kept of a text."""


def passing_refs(node: PlanNode) -> tuple[tuple[str, ...], ...]:
    """The paths of a node's conditions that begin with `out` or `answer`."""
    found = [ref for route in node.routes if route.when is not None for ref in route.when.refs]
    return tuple(dict.fromkeys(ref for ref in found if ref[0] in ("out", "answer")))


def seen(refs: Iterable[tuple[str, ...]], roots: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path → its value in short, for those that are there."""
    out: dict[str, Any] = {}
    for root, *names in refs:
        try:
            value = roots[root]
            for name in names:
                value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        except (KeyError, AttributeError):
            continue
        out[".".join((root, *names))] = short(value)
    return out


def short(value: Any) -> Any:
    """A scalar as it is, a long text cut, anything larger by its size."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= MOST else f"{value[:MOST]}…"
    if isinstance(value, Mapping):
        return f"object of {len(value)}"
    return f"list of {len(value)}" if isinstance(value, Sized) else type(value).__name__
