"""One chunk of an OpenAI-compatible stream as typed data.

Two ways in: `decode_chunk` reads well-formed chunks in C; anything that does not fit the types (numbers as
text, objects instead of text, broken UTF-8, half surrogate pairs) goes through `lenient_chunk`, which
keeps what can be used.
"""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.json_data import whole_characters


class FunctionPart(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None
    """Text as a rule; an object from some providers."""


class CallPart(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPart | None = None
    extra_content: Any = None
    """What the provider wants back with the call (Gemini's thought signature)."""


class DeltaPart(msgspec.Struct, gc=False):
    content: Any = None
    """Text, or a list of parts."""
    reasoning_content: str | None = None
    reasoning: Any = None
    reasoning_details: list[Any] | None = None
    extra_content: Any = None
    tool_calls: list[CallPart] | None = None
    refusal: str | None = None
    function_call: FunctionPart | None = None
    """The form of calls before `tool_calls`."""


class ChunkChoice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: DeltaPart | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """Here instead of at the top at Moonshot."""


class Chunk(msgspec.Struct, gc=False):
    choices: list[ChunkChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    message: Any = None
    """Not part of a chunk: without `choices` it is the text of an error."""
    x_groq: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
"""Raises `msgspec.DecodeError` (no JSON), `msgspec.ValidationError` (other types), `UnicodeDecodeError`."""


def lenient_chunk(raw: dict[str, Any]) -> Chunk:
    """The chunk in `raw`, without the fields whose type can't be used.

    Texts that go on in the next chunk may end in half a surrogate pair (see `ChunkHalvesJoiner`); all others are whole.
    """
    choices = raw.get("choices")
    return Chunk(
        choices=[_choice(c) for c in choices if isinstance(c, dict)] if isinstance(choices, list) else None,
        usage=_dict(raw.get("usage")),
        error=whole_characters(raw.get("error")),
        message=whole_characters(raw.get("message")),
        x_groq=raw.get("x_groq"),
    )


def whole_turn_chunk(raw: dict[str, Any]) -> Chunk:
    """The chunk that says in one delta what a body that was not streamed says in `message`."""
    choices = raw.get("choices")
    if not isinstance(choices, list):
        return lenient_chunk(raw)
    turned = [{**c, "delta": c.get("delta") or c.get("message")} if isinstance(c, dict) else c for c in choices]
    return lenient_chunk({**raw, "choices": turned})


def _choice(raw: dict[str, Any]) -> ChunkChoice:
    delta = _dict(raw.get("delta"))
    return ChunkChoice(
        index=_int(raw.get("index")),
        delta=None if delta is None else _delta(delta),
        finish_reason=_whole_text(raw.get("finish_reason")),
        usage=_dict(raw.get("usage")),
    )


def _delta(raw: dict[str, Any]) -> DeltaPart:
    calls, details = raw.get("tool_calls"), raw.get("reasoning_details")
    # A single call without its list is still a call.
    if isinstance(calls, dict):
        calls = [calls]
    return DeltaPart(
        content=_streamed(raw.get("content")),
        reasoning_content=_text(raw.get("reasoning_content")),
        reasoning=_streamed(raw.get("reasoning")),
        reasoning_details=whole_characters(details) if isinstance(details, list) else None,
        extra_content=whole_characters(raw.get("extra_content")),
        tool_calls=[_call(c) for c in calls if isinstance(c, dict)] if isinstance(calls, list) else None,
        refusal=_whole_text(raw.get("refusal")),
        function_call=_function(raw.get("function_call")),
    )


def _call(raw: dict[str, Any]) -> CallPart:
    identity = raw.get("id")
    return CallPart(
        index=_int(raw.get("index")),
        # Some providers send numbers as ids; they go back to them as text.
        id=str(identity) if isinstance(identity, int) else _whole_text(identity),
        function=_function(raw.get("function")),
        extra_content=whole_characters(raw.get("extra_content")),
    )


def _function(raw: Any) -> FunctionPart | None:
    if not isinstance(raw, dict):
        return None
    return FunctionPart(name=_whole_text(raw.get("name")), arguments=_streamed(raw.get("arguments")))


def _dict(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole_text(value: Any) -> str | None:
    return whole_characters(value) if isinstance(value, str) else None


def _streamed(value: Any) -> Any:
    """A text as it is, for it may go on in the next chunk; anything else is whole."""
    return value if isinstance(value, str) else whole_characters(value)


def _int(value: Any) -> int | None:
    try:
        # `True` is an `int` to Python, and no index.
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: `1e999`, which JSON's text allows
        return None
