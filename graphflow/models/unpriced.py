"""Which of the models that a call may ask have no known price: a limit in money is refused for them at load (E11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from graphflow.errors import GraphflowError
from graphflow.models.fallback_names import split_name
from graphflow.models.prices import canonical_name

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel
    from graphflow.models.prices import Prices

OpenModel = Callable[[str | None, str | None], "ChatModel"]


def unpriced_models(
    open_model: OpenModel,
    prices: Prices,
    provider_key: str | None,
    model: str | None,
    fallback: Sequence[str] | None = None,
) -> list[str]:
    """The models that a call may ask and whose price is not known, as `PROVIDER/MODEL`.

    Args:
        open_model: opens no connection.
        fallback: the models that are asked where this one fails; None leaves them to its provider.
    """
    found: list[str] = []
    names = fallback or ()
    try:
        opened = open_model(provider_key, model)
    except GraphflowError as error:
        found += _unopened(prices, provider_key, model, error)
    else:
        found += _lacking(prices, opened.provider, opened.model)
        # A model of a user may have none.
        names = getattr(opened, "names", ()) if fallback is None else fallback
    for name in names:
        key, other = split_name(name)
        # One level deep: the fallbacks of a fallback are not asked.
        found += unpriced_models(open_model, prices, key, other, ())
    return list(dict.fromkeys(found))


def _lacking(prices: Prices, provider: str, model: str) -> list[str]:
    return [] if prices.find(provider, model) is not None else [f"{provider}/{model}"]


def _unopened(prices: Prices, provider_key: str | None, model: str | None, error: GraphflowError) -> list[str]:
    # A price does not depend on a key, which may be set later; a default model does depend on the settings.
    if provider_key and provider_key.lower() != "auto" and model:
        return _lacking(prices, *canonical_name(f"{provider_key}/{model}").split("/", 1))
    return [f"{provider_key or 'auto'}/{model or 'its default model'} ({error.message})"]
