"""Providers' finish reasons mapped onto our four words."""

from __future__ import annotations

from graphflow.models.deltas import FinishReason

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
}

_BROKEN = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "aborted"})
"""Words for "the turn broke off on the provider's side": an error, not an end."""


def is_known(raw: str) -> bool:
    return raw.lower() in _REASONS


def is_broken(raw: str) -> bool:
    return raw.lower() in _BROKEN


def finish_reason(raw: str | None, *, has_calls: bool, refused: bool = False) -> FinishReason:
    """The reason behind a provider's word; an unknown word, or none, counts as an ordinary end.

    The calls decide whether a turn ended in calls: providers send `stop` with calls and
    `tool_calls` without.
    """
    reason = _REASONS.get((raw or "stop").lower(), "stop")
    # A refusal in a field of its own ends with a plain `stop`; a cut or filtered turn keeps its stronger reason.
    if refused and reason == "stop":
        return "content_filter"
    if reason in ("stop", "tool_calls"):
        return "tool_calls" if has_calls else "stop"
    return reason
