"""What a model call costs: the price table of the settings, and tokens times price.

Prices are what the operator wrote (`[prices."PROVIDER/MODEL"]`); none is built in, for a price that is out of date is
worse than none. A price that is not known is None, never 0 (spec 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.models.deltas import Usage
from graphflow.models.profiles import PROFILES

PICO_USD = 10**12
"""Money is counted in whole 10⁻¹² USD: a price per million tokens with up to six decimals is a whole number per token."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens."""

    prompt: float
    completion: float
    cached: float | None = None
    """Of the prompt's tokens that came from the provider's cache; default: the price of the others."""
    reasoning: float | None = None
    """Of the tokens that were reasoning; default: the price of the other tokens that the model wrote."""

    def cost_usd(self, usage: Usage) -> float:
        """The cost of a call with this usage."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        reasoning = min(usage.reasoning_tokens, usage.completion_tokens)
        return (
            _pico(usage.prompt_tokens - cached, self.prompt)
            + _pico(cached, self.prompt if self.cached is None else self.cached)
            + _pico(usage.completion_tokens - reasoning, self.completion)
            + _pico(reasoning, self.completion if self.reasoning is None else self.reasoning)
        ) / PICO_USD


def _pico(tokens: int, price: float) -> int:
    # Rounded per part, in whole units: a sum must not depend on the order of its terms.
    return round(tokens * price * 1_000_000)


class Prices:
    """The prices that are known.

    Args:
        table: `PROVIDER/MODEL` → fields of `Price`; `PROVIDER/*` is for each other model of that provider. A provider
            may go by its alias.
    """

    def __init__(self, table: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._prices = {_canonical(name): msgspec.convert(dict(row), Price) for name, row in (table or {}).items()}

    def find(self, provider: str, model: str) -> Price | None:
        """The price of a provider's model; None when nobody wrote it down."""
        found = self._prices.get(f"{provider}/{model}")
        return self._prices.get(f"{provider}/*") if found is None else found

    def cost_usd(self, provider: str, model: str, usage: Usage | None) -> float | None:
        """The cost of a call; None when the price or the tokens are not known."""
        price = self.find(provider, model)
        return None if price is None or usage is None else price.cost_usd(usage)


def _canonical(name: str) -> str:
    provider, _, model = name.partition("/")
    provider = provider.strip().lower()
    # One spelling per provider, so that a price under `qwen/...` is found for `bailian`.
    key = next((key for key, profile in PROFILES.items() if provider in profile.aliases), provider)
    return f"{key}/{model}"
