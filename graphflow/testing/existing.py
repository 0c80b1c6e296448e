"""What a conformance suite expects a store to have."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def existing(value: T | None) -> T:
    """The value; fails the test if the store returned None instead."""
    assert value is not None, "the store returned None for something that was stored"
    return value
