"""What JSON has no form for, as something that it has: the hook of every encoder that writes for people and clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: Any) -> Any:
    """A list for any sequence (an append channel's view), a dict for any mapping, else its text."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) else str(value)
