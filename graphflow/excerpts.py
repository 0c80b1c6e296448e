"""Values in the texts of errors: short, and without secrets."""

from __future__ import annotations

from typing import Any


def excerpt_of(value: Any, characters: int = 80) -> str:
    """At most this many characters of the value's `repr`, masked before the cut: no secret is shown in half."""
    # Loaded when something is wrong: its patterns would slow down every import of graphflow.
    from graphflow.masking import excerpt

    return excerpt(repr(value), characters)
