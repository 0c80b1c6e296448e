"""One open model per provider and name, shared by every run of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphflow.models.fallback_names import split_name

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel

Opener = Callable[[str | None, str | None], "ChatModel"]
"""`(provider key, model) → model`; None leaves the choice to the environment."""


class ModelPool:
    """Opens each model on first use and keeps its connections; calling the pool gives a model with its fallbacks.

    Args:
        open_model: makes a model; called once per provider and name.
    """

    def __init__(self, open_model: Opener) -> None:
        self._open = open_model
        self._models: dict[tuple[str | None, str | None], ChatModel] = {}
        self._alone: dict[tuple[str | None, str | None], ChatModel] = {}
        """Without fallbacks: as one model of a fallback it is asked itself, and not its own fallbacks."""

    def __call__(self, provider_key: str | None = None, model: str | None = None) -> ChatModel:
        key = (provider_key, model)
        found = self._models.get(key)
        if found is None:
            # Imported with the first model: most commands open none.
            from graphflow.models.fallback import FallbackModel

            alone = self.alone(provider_key, model)
            # A model of a user may have no capabilities.
            names = getattr(getattr(alone, "capabilities", None), "fallback", ())
            found = self._models[key] = FallbackModel(alone, lambda name: self.alone(*split_name(name)), names)
        return found

    def alone(self, provider_key: str | None, model: str | None) -> ChatModel:
        """The model itself."""
        key = (provider_key, model)
        found = self._alone.get(key)
        if found is None:
            found = self._alone[key] = self._open(provider_key, model)
        return found

    async def aclose(self) -> None:
        """Closes every model that was opened."""
        # Emptied before the first await: a model asked for meanwhile is opened anew, not handed out closed.
        models, self._alone, self._models = list(self._alone.values()), {}, {}
        for model in models:
            await model.aclose()
