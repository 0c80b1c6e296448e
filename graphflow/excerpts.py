"""Values and numbers in texts: short, without secrets, in the right form."""

from __future__ import annotations

from typing import Any


def excerpt_of(value: Any, characters: int = 80) -> str:
    """At most this many characters of the value's `repr`, masked before the cut: no secret is shown in half."""
    # Loaded when something is wrong: its patterns would slow down every import of graphflow.
    from graphflow.masking import excerpt

    return excerpt(repr(value), characters)


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
