"""One event of a Responses stream as typed data.

Two ways in: `decode_event` reads well-formed events in C; anything that does not fit the types goes through
`lenient_event`, which keeps what can be used. Fields that no reader needs (`sequence_number`, `logprobs`,
`obfuscation`) are skipped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.json_data import whole_characters


class ResponseEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    """Of a text or a refusal, and of reasoning that is shown in full."""
    summary_index: int | None = None
    item_id: str | None = None
    item: dict[str, Any] | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: Any = None
    """Text as a rule; an object from some gateways."""
    annotation: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    error: Any = None
    code: Any = None
    message: Any = None


decode_event = msgspec.json.Decoder(ResponseEvent).decode
"""Raises `msgspec.DecodeError` (no JSON), `msgspec.ValidationError` (other types), `UnicodeDecodeError`."""


def lenient_event(raw: dict[str, Any]) -> ResponseEvent:
    """The event in `raw`, without the fields whose type can't be used; only `delta` may have half characters."""
    known: dict[str, Any] = {}
    for name in ("output_index", "content_index", "summary_index"):
        value = raw.get(name)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:9])
        if isinstance(value, int) and not isinstance(value, bool):
            known[name] = value
    for name in ("type", "item_id", "text", "refusal"):
        if isinstance(raw.get(name), str):
            known[name] = whole_characters(raw[name])
    for name in ("item", "annotation", "response"):
        if isinstance(raw.get(name), dict):
            known[name] = whole_characters(raw[name])
    for name in ("arguments", "error", "code", "message"):
        known[name] = whole_characters(raw.get(name))
    delta = raw.get("delta")
    # Pieces of arguments come as an object from gateways that do not stream them.
    if isinstance(delta, dict | list):
        delta = msgspec.json.encode(whole_characters(delta)).decode()
    return ResponseEvent(delta=delta if isinstance(delta, str) else None, **known)


def part_texts(value: Any, kind: str) -> list[str]:
    """The texts of the parts of this type (`output_text`, `summary_text`, `reasoning_text`)."""
    parts = value if isinstance(value, list) else []
    return [
        part["text"]
        for part in parts
        if isinstance(part, dict) and part.get("type") == kind and isinstance(part.get("text"), str)
    ]
