"""One open model per provider and name, shared by every run of an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphflow.models.chat_model import ChatModel

Opener = Callable[[str | None, str | None], "ChatModel"]
"""`(provider key, model) → model`; None leaves the choice to the environment."""


class ModelPool:
    """Opens each model on first use and keeps its connections; calling the pool gives a model.

    Args:
        open_model: makes a model; called once per provider and name.
    """

    def __init__(self, open_model: Opener) -> None:
        self._open = open_model
        self._models: dict[tuple[str | None, str | None], ChatModel] = {}

    def __call__(self, provider_key: str | None = None, model: str | None = None) -> ChatModel:
        key = (provider_key, model)
        found = self._models.get(key)
        if found is None:
            found = self._models[key] = self._open(provider_key, model)
        return found

    async def aclose(self) -> None:
        """Closes every model that was opened."""
        # Emptied before the first await: a model asked for meanwhile is opened anew, not handed out closed.
        models, self._models = list(self._models.values()), {}
        for model in models:
            await model.aclose()
