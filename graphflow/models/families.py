"""What families of OpenAI's models take of a request: efforts, sampling and stop words, from `model_data.json`.

They are the same wherever the models are served by OpenAI's own interfaces, whatever the key of the provider is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphflow.models.model_data import BUILT_IN
from graphflow.models.options import EFFORTS, Effort


class ModelFamily(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models of one behaviour."""

    models: str
    """Pattern, searched in the model's name without regard to case; the first row that fits counts."""
    efforts: tuple[Effort, ...] = ()
    """Efforts that they take; empty: they do not reason, and refuse the field."""
    checked: str
    source: str

    @property
    def reasons(self) -> bool:
        """Models that reason refuse sampling (unless the effort is `none`) and stop words."""
        return bool(self.efforts)


class _Families(msgspec.Struct):
    """The part of the model data that is about families."""

    families: tuple[ModelFamily, ...]


@functools.cache
def _families() -> tuple[ModelFamily, ...]:
    return msgspec.json.decode(BUILT_IN.read_bytes(), type=_Families).families


@functools.cache
def family_of(model: str) -> ModelFamily | None:
    """The family of a model of OpenAI; None of a model that no row is about."""
    return next((row for row in _families() if re.search(row.models, model, re.IGNORECASE)), None)


def nearest_effort(asked: Effort, taken: Sequence[Effort]) -> Effort:
    """The effort itself if it is taken, else the next higher one, else the highest."""
    known = [effort for effort in EFFORTS if effort in taken]
    return next((effort for effort in known if EFFORTS.index(effort) >= EFFORTS.index(asked)), known[-1])


def fit_effort(body: dict[str, Any], name: str, model: str, notice: Callable[..., None]) -> None:
    """Makes the effort in a request one that a model of OpenAI takes, or takes it out; `notice` is told of either."""
    effort, family = body.get(name), family_of(model)
    if effort not in EFFORTS or family is None or effort in family.efforts:
        return
    if family.reasons:
        body[name] = nearest_effort(effort, family.efforts)
        notice("model.option_changed", option="reasoning_effort", asked=effort, sent=body[name])
    else:
        del body[name]
        notice("model.option_ignored", option="reasoning_effort", why="the model does not reason")
