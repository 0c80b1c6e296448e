"""A call that is not done before people have answered: what its tool asks, and what it needs to know when it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ToolQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a tool to a person."""

    message: str
    schema: dict[str, Any]
    """Of the answer."""


class InputNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returns instead of a result: it is called again with the answers."""

    questions: dict[str, ToolQuestion]
    """By keys of the tool's own."""
    memo: dict[str, Any]
    """Handed back to the tool as it is; recorded, so it outlives the process."""


class InputGiven(msgspec.Struct, frozen=True, kw_only=True):
    """The answers with which a tool goes on."""

    answers: Mapping[str, Any]
    memo: Mapping[str, Any]


FIELD = "inputNeeded"
"""Field of a result's `context` that holds it in the record of the call."""


def as_record(needed: InputNeeded) -> dict[str, Any]:
    """The plain form of it."""
    made: dict[str, Any] = msgspec.to_builtins(needed)
    return made


def from_context(context: Mapping[str, Any]) -> InputNeeded | None:
    """What a recorded result asks for, or None."""
    given = context.get(FIELD)
    return None if given is None else msgspec.convert(given, InputNeeded)
