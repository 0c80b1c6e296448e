"""One event of a Messages stream as typed data.

Two ways in: `decode_event` reads well-formed events in C; anything that does not fit the types goes through
`lenient_event`, which keeps what can be used.
"""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.json_data import whole_characters
from graphflow.models.remote.surrogate_pairs import HalvesJoiner


class BlockDelta(msgspec.Struct, gc=False):
    """The `delta` of a block, or of the message: which fields it has says which."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Any = None
    stop_reason: str | None = None
    stop_details: Any = None
    container: Any = None


class StreamEvent(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: BlockDelta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


decode_event = msgspec.json.Decoder(StreamEvent).decode
"""Raises `msgspec.DecodeError` (no JSON), `msgspec.ValidationError` (other types), `UnicodeDecodeError`."""

_TEXTS = ("text", "thinking", "partial_json", "signature")


def lenient_event(raw: dict[str, Any], halves: HalvesJoiner) -> StreamEvent:
    """The event in `raw`, without the fields whose type can't be used, and in whole characters."""
    index = raw.get("index")
    index = index if isinstance(index, int) and not isinstance(index, bool) else None
    delta = raw.get("delta")
    part = None
    if isinstance(delta, dict):
        texts = {name: halves.join(f"{index} {name}", t) for name in _TEXTS if isinstance(t := delta.get(name), str)}
        part = BlockDelta(
            **texts,
            citation=whole_characters(delta.get("citation")),
            stop_reason=_text(delta.get("stop_reason")),
            stop_details=whole_characters(delta.get("stop_details")),
            container=whole_characters(delta.get("container")),
        )
    return StreamEvent(
        type=_text(raw.get("type")) or "",
        index=index,
        delta=part,
        content_block=_dict(raw.get("content_block")),
        message=_dict(raw.get("message")),
        usage=_dict(raw.get("usage")),
        error=whole_characters(raw.get("error")),
    )


def _text(value: Any) -> str | None:
    return whole_characters(value) if isinstance(value, str) else None


def _dict(value: Any) -> dict[str, Any] | None:
    return whole_characters(value) if isinstance(value, dict) else None
