"""One open model per provider and name, shared by every run of an application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from graphflow.models.fallback_names import split_name

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel

Opener = Callable[[str | None, str | None], "ChatModel"]
"""`(provider key, model) → model`; None leaves the choice to the environment."""
FallbackOpener = Callable[[str, str | None, str | None], "ChatModel"]
"""`(provider of the first, provider key, model) → model`."""


class ModelPool:
    """Opens each model on first use and keeps its connections; calling the pool gives a model with its fallbacks.

    Args:
        open_model: makes a model; called once per provider and name.
        open_fallback: makes one that is asked in the place of another; default: as any.
    """

    def __init__(self, open_model: Opener, open_fallback: FallbackOpener | None = None) -> None:
        self._open = open_model
        self._open_fallback = open_fallback or (lambda first, provider, model: open_model(provider, model))
        self._models: dict[tuple[str | None, str | None], ChatModel] = {}
        self._alone: dict[tuple[str | None, ...], ChatModel] = {}
        """Without fallbacks: as one model of a fallback it is asked itself, and not its own fallbacks. Where it stands in for
        another provider, that one's key comes first."""

    def __call__(self, provider_key: str | None = None, model: str | None = None) -> ChatModel:
        key = (provider_key, model)
        found = self._models.get(key)
        if found is None:
            # Imported with the first model: most commands open none.
            from graphflow.models.fallback import FallbackModel

            alone = self._kept((None, *key), lambda: self._open(*key))
            # A model of a user may have no capabilities.
            names = getattr(getattr(alone, "capabilities", None), "fallback", ())
            found = self._models[key] = FallbackModel(alone, partial(self._fallback, alone.provider), names)
        return found

    def _fallback(self, first: str, name: str) -> ChatModel:
        key = split_name(name)
        return self._kept((first, *key), lambda: self._open_fallback(first, *key))

    def _kept(self, key: tuple[str | None, ...], make: Callable[[], ChatModel]) -> ChatModel:
        found = self._alone.get(key)
        if found is None:
            found = self._alone[key] = make()
        return found

    async def aclose(self) -> None:
        """Closes every model that was opened."""
        # Emptied before the first await: a model asked for meanwhile is opened anew, not handed out closed.
        models, self._alone, self._models = list(self._alone.values()), {}, {}
        for model in models:
            await model.aclose()
