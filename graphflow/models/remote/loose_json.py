"""JSON as providers write it, and as states hold it: what the strict codec refuses is read and written all the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from graphflow.json_data import whole_characters


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


def encode_body(body: dict[str, Any]) -> bytes:
    """A request as JSON bytes."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half a character in a text of the state: it must not end the thread for ever
        return msgspec.json.encode(whole_characters(body))
