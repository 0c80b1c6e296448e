"""From a record's usage to a line of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.checkpoints.rows import Spent

DAY_MS = 86_400_000
PICO_USD = 10**12
FIGURES = {
    "modelCalls": "model_calls",
    "toolCalls": "tool_calls",
    "promptTokens": "prompt_tokens",
    "completionTokens": "completion_tokens",
    "reasoningTokens": "reasoning_tokens",
    "cachedTokens": "cached_tokens",
    "activeMs": "active_ms",
}
"""Figure of a usage → field of `Spent`."""


def spent_by(usage: Mapping[str, Any], at: int, facts: Mapping[str, Any] | None, agent_key: str | None) -> Spent:
    """The line of what one record has added to its run's usage.

    Args:
        at: epoch ms, whose day (UTC) it counts for.
        facts: the record's; `model` names who was called.
    """
    figures = {field: usage.get(name, 0) for name, field in FIGURES.items()}
    model = (facts or {}).get("model")
    return Spent(
        day=at // DAY_MS,
        agent_key=agent_key or "",
        model="/".join(model) if model else "",
        # Integers add up exactly; sums of floats depend on their order.
        cost=round(usage.get("costUsd", 0) * PICO_USD),
        uncounted=usage.get("uncountedCalls", 0) + usage.get("cutOffCalls", 0),
        unpriced=usage.get("unpricedCalls", 0),
        **figures,
    )
