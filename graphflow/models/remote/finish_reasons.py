"""Providers' finish reasons mapped onto our four words."""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.models.deltas import FinishReason

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "finish_reason_unspecified": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "language": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "image_safety": "content_filter",
    "image_prohibited_content": "content_filter",
    "image_recitation": "content_filter",
    "model_armor": "content_filter",
    "jailbreak": "content_filter",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
}

_BROKEN = frozenset({
    "error", "network_error", "insufficient_system_resource", "abort", "aborted",
    # Gemini, under its own API and under OpenAI's: the model went wrong, and the next try may go right.
    "malformed_function_call", "malformed_response", "unexpected_tool_call", "too_many_tool_calls", "missing_thought_signature",
    "image_other", "no_image",
})  # fmt: skip
"""Words for "the turn broke off on the provider's side": an error, not an end."""


def _words(raw: str) -> Iterator[str]:
    """The words of a reason: Gemini under the OpenAI protocol says `function_call_filter: MALFORMED_FUNCTION_CALL`."""
    return (word.strip() for word in raw.lower().split(":"))


def is_known(raw: str) -> bool:
    return any(word in _REASONS for word in _words(raw))


def is_broken(raw: str) -> bool:
    return any(word in _BROKEN for word in _words(raw))


def finish_reason(raw: str | None, *, has_calls: bool, refused: bool = False) -> FinishReason:
    """The reason behind a provider's word; an unknown word, or none, counts as an ordinary end.

    The calls decide whether a turn ended in calls: providers send `stop` with calls and
    `tool_calls` without.
    """
    reason: FinishReason = next((_REASONS[word] for word in _words(raw or "") if word in _REASONS), "stop")
    # A refusal in a field of its own ends with a plain `stop`; a cut or filtered turn keeps its stronger reason.
    if refused and reason == "stop":
        return "content_filter"
    if reason in ("stop", "tool_calls"):
        return "tool_calls" if has_calls else "stop"
    return reason
