"""What a model call costs: tokens times price.

The prices of the settings (`[prices."PROVIDER/MODEL"]`) win over those of the model data, which are list prices of a day.
A price that is not known is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from graphflow.models.deltas import Usage
from graphflow.models.profiles import PROFILES

PICO_USD = 10**12
"""Money is counted in whole 10⁻¹² USD: a price per million tokens with up to six decimals is a whole number per token."""


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """USD per million tokens."""

    prompt: float
    completion: float
    cached: float | None = None
    """Of the prompt's tokens that came from the provider's cache; default: the price of the others."""
    reasoning: float | None = None
    """Of the tokens that were reasoning; default: the price of the other tokens that the model wrote."""
    cache_write: float | None = None
    """Of the prompt's tokens that were written to the provider's cache; default: the price of the others."""
    above_tokens: int | None = None
    """Prompts of more tokens than this have the price `above`, for the whole call."""
    above: Price | None = None

    def cost_usd(self, usage: Usage) -> float:
        """The cost of a call with this usage."""
        if self.above is not None and self.above_tokens is not None and usage.prompt_tokens > self.above_tokens:
            return self.above.cost_usd(usage)
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        written = min(usage.cache_write_tokens, usage.prompt_tokens - cached)
        reasoning = min(usage.reasoning_tokens, usage.completion_tokens)
        return (
            _pico(usage.prompt_tokens - cached - written, self.prompt)
            + _pico(cached, self.prompt if self.cached is None else self.cached)
            + _pico(written, self.prompt if self.cache_write is None else self.cache_write)
            + _pico(usage.completion_tokens - reasoning, self.completion)
            + _pico(reasoning, self.completion if self.reasoning is None else self.reasoning)
        ) / PICO_USD

    def misfit(self) -> str | None:
        """What is wrong with the numbers, or None."""
        rates = (self.prompt, self.completion, self.cached, self.reasoning, self.cache_write)
        if not all(rate is None or 0 <= rate < math.inf for rate in rates):
            return "a price is a number from 0 up, in USD per million tokens"
        if (self.above is None) != (self.above_tokens is None):
            return "`above` and `above_tokens` stand together"
        return None if self.above is None else self.above.misfit()


def _pico(tokens: int, price: float) -> int:
    # Rounded per part, in whole units: a sum must not depend on the order of its terms.
    return round(tokens * price * 1_000_000)


class Prices:
    """The prices that are known.

    Args:
        table: `PROVIDER/MODEL` → fields of `Price`; `PROVIDER/*` is for each other model of that provider. A provider
            may go by its alias.
        listed: the price of a provider's model by the model data, asked where the table has none.
    """

    def __init__(
        self,
        table: Mapping[str, Mapping[str, Any]] | None = None,
        listed: Callable[[str, str], Price | None] = lambda provider, model: None,
    ) -> None:
        self._prices = {canonical_name(name): msgspec.convert(dict(row), Price) for name, row in (table or {}).items()}
        self._listed = listed

    def find(self, provider: str, model: str) -> Price | None:
        """The price of a provider's model; None when nobody knows it."""
        found = self._own(provider, model)
        return self._listed(provider, model) if found is None else found

    def _own(self, provider: str, model: str) -> Price | None:
        return self._prices.get(f"{provider}/{model}") or self._prices.get(f"{provider}/*")

    def cost_usd(self, provider: str, model: str, usage: Usage | None) -> float | None:
        """The cost of a call: by the table, else by the provider's own word, else by the list price; None when unknown."""
        if usage is None:
            return None
        price = self._own(provider, model)
        if price is None and usage.cost_usd is not None:
            return usage.cost_usd
        price = price or self._listed(provider, model)
        return None if price is None else price.cost_usd(usage)


def canonical_name(name: str) -> str:
    """`PROVIDER/MODEL` with the provider's key for its alias."""
    provider, _, model = name.partition("/")
    provider = provider.strip().lower()
    # One spelling per provider, so that a price under `qwen/...` is found for `bailian`.
    key = next((key for key, profile in PROFILES.items() if provider in profile.aliases), provider)
    return f"{key}/{model}"
