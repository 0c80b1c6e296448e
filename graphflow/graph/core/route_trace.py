"""Moves: the record of a tick that leads several nodes to their next one.

A tick that ends a branch may complete its join, and with it the node that opened it, and so on upwards; frames that
end on the way are gone after it. The record then keeps a short form of each node's route and writes for `why` and
`blame` (spec 2.5). For a single move the patch holds all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import msgspec

from graphflow.graph.core.channels import Update
from graphflow.graph.core.machine import Frame
from graphflow.graph.core.patches import items_of
from graphflow.graph.core.plan import PlanNode
from graphflow.graph.definition.old_words import renewed_code

Writes = dict[str, Any]
"""Key → how many entries a log got, in a branch how many items; or the list of what was written, in short; or of a
`merge` map its changed entries."""


class Move(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One step of a frame from a node to its next."""

    frame: int
    path: str
    node: str
    visit: int
    to: str
    """The node that came next; `fail` when the failure went to the frame above."""
    by: int | str | None = None
    """The index of the route; None if no condition was evaluated; else `error`, `budget`, `expired`, `failed`, or what
    the join did with a failed branch: `collect`, `skip`."""
    writes: Writes = msgspec.field(default_factory=dict)
    joined: Writes = msgspec.field(default_factory=dict)
    """What the branches of the node wrote."""
    seen: dict[str, Any] = msgspec.field(default_factory=dict)
    """What its conditions read."""
    error: tuple[str, str] | None = None
    """Code and message of the failure that led there."""


class PendingMove(msgspec.Struct, frozen=True):
    """A move before it is encoded: only when a tick makes several are they stored."""

    frame: Frame
    to: str
    by: int | str | None = None
    own: Any = None
    """What the node wrote (`unit_of_work.Written`)."""
    joined: Any = None
    seen: dict[str, Any] | None = None
    error: Mapping[str, Any] | None = None


def looked_at(node: PlanNode, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path → short form of its value, for all that the node's conditions read."""
    return seen(dict.fromkeys(ref for route in node.routes if route.when is not None for ref in route.when.refs), scope)


def moves_of(made: Iterable[PendingMove]) -> list[list[Any]]:
    """The moves as a record's facts keep them."""
    return [msgspec.to_builtins(_move(each)) for each in made]


def read_moves(facts: Mapping[str, Any] | None) -> list[Move]:
    """The moves that a record holds; empty if its tick made fewer than two."""
    return [_renewed(msgspec.convert(row, Move)) for row in (facts or {}).get("moves", ())]


def _renewed(move: Move) -> Move:
    if move.error is None:
        return move
    return msgspec.structs.replace(move, error=(renewed_code(move.error[0]), move.error[1]))


def _move(made: PendingMove) -> Move:
    frame, error = made.frame, made.error
    told = None if error is None else (str(error.get("code")), short(str(error.get("message"))))
    return Move(
        frame.number,
        frame.path,
        frame.node,
        frame.visit,
        made.to,
        made.by,
        _in_short(made.own, frame),
        _in_short(made.joined, frame),
        made.seen or {},
        told,
    )


def _in_short(written: Any, frame: Frame) -> Writes:
    if written is None:
        return {}
    update: Update = written.update
    raw: Mapping[str, Sequence[Any]] = written.raw or {}
    out: Writes = {key: [short(v) for v in raw.get(key, (value,))] for key, value in update.sets.items()}
    for key, entries in update.logs.items():
        out[key] = len(entries) if frame.branch is None else len(items_of(entries))
    return out | {key: {k: short(v) for k, v in changed.items()} for key, changed in update.merges.items()}


# --- what conditions read of values that no state keeps: the output or answer of their own node

MOST = 200
"""Characters that a record keeps of a text."""


def passing_refs(node: PlanNode) -> tuple[tuple[str, ...], ...]:
    """The paths of a node's conditions that begin with `out` or `answer`."""
    found = [ref for route in node.routes if route.when is not None for ref in route.when.refs]
    return tuple(dict.fromkeys(ref for ref in found if ref[0] in ("out", "answer")))


def seen(refs: Iterable[tuple[str, ...]], roots: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path → short form of its value; missing paths are left out."""
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
