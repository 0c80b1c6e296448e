"""The limits of a budget by the names that expressions and errors give them (E11)."""

from __future__ import annotations

from typing import Any

from graphflow.graph.definition.document import Budget

LIMIT_NAMES = {
    "rounds": "max_rounds",
    "steps": "max_steps",
    "modelCalls": "max_model_calls",
    "toolCalls": "max_tool_calls",
    "tokens": "max_tokens",
    "costUsd": "max_cost_usd",
    "timeoutMs": "timeout_ms",
}
"""Name in expressions (`limits.rounds`) → field of the document's budget (E11)."""


def limits_of(budget: Budget) -> dict[str, Any]:
    """The budget's figures by their names in expressions; figures without a limit are left out."""
    # Left out and not null: a condition that reads a limit which nobody has set fails, and does not compare with null.
    return {name: value for name, field in LIMIT_NAMES.items() if (value := getattr(budget, field)) is not None}
