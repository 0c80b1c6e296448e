"""JSON as providers write it: what the strict decoder refuses is read all the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def read_json(data: bytes) -> Any:
    """Any JSON, with what the strict decoder refuses: broken UTF-8, half surrogates, NaN.

    Raises:
        ValueError: when it is no JSON at all.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Slower, and only for what the strict decoder refused: `strict=False` also takes raw control characters.
        return json.loads(data.decode("utf-8", "replace"), strict=False)
