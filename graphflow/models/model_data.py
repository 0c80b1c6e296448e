"""What is known of models: windows, abilities, prices and ends of life, each fact with its day and its page.

`model_data.json` beside this file comes with the version; a file of the same form (`graphflow models refresh FILE`) adds
rows and replaces those it has. The same file has the providers, see `profiles`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from graphflow.authored_files import read_authored
from graphflow.errors import DefinitionError, Issue
from graphflow.models.prices import Price

BUILT_IN = Path(__file__).with_name("model_data.json")
OLD_DAYS = 90
"""Facts that were checked longer ago are reported as old."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model of one provider; `None` is unknown."""

    context_window: int | None = None
    """Tokens of prompt and answer together."""
    max_output_tokens: int | None = None
    input: tuple[Literal["text", "image", "audio", "video", "file"], ...] = ("text",)
    tools: bool = True
    schema: Literal["json_schema", "json_object", "prompt"] | None = None
    """See `Capabilities.structured`."""
    reasoning: bool | None = None
    price: Price | None = None
    end_of_life: date | None = None
    """From this day on requests fail, or are answered by another model."""
    replacement: str | None = None
    """What its provider recommends instead."""
    checked: date
    """The day on which the facts were looked up."""
    source: str
    """The page that says so."""

    def is_retired(self, today: date) -> bool:
        return self.end_of_life is not None and self.end_of_life <= today


class ModelData(msgspec.Struct, frozen=True, kw_only=True):
    """Facts by `PROVIDER/MODEL`, and the day of the whole."""

    updated: date
    models: dict[str, ModelFacts]

    def find(self, provider: str, model: str) -> ModelFacts | None:
        return self.models.get(f"{provider}/{model}")

    def age_days(self, today: date) -> int:
        return (today - self.updated).days


def model_data(refreshed: Path | None = None) -> ModelData:
    """The facts of this version with those of a refreshed file, if it exists.

    Raises:
        DefinitionError: the refreshed file can't be read or has errors.
    """
    built_in = _built_in()
    if refreshed is None or not refreshed.is_file():
        return built_in
    more = read_model_data(refreshed)
    # A file of an older date than this version must not bring back what was true before it.
    if more.updated < built_in.updated:
        more = msgspec.structs.replace(more, models={**more.models, **built_in.models}, updated=built_in.updated)
    return ModelData(updated=more.updated, models={**built_in.models, **more.models})


def listed_prices(refreshed: Path | None = None) -> Callable[[str, str], Price | None]:
    """The list price of a provider's model; the facts are read with the first question."""

    @functools.cache
    def data() -> ModelData:
        return model_data(refreshed)

    def price(provider: str, model: str) -> Price | None:
        facts = data().find(provider, model)
        return None if facts is None else facts.price

    return price


def read_model_data(path: Path) -> ModelData:
    """The facts in a file.

    Raises:
        DefinitionError: it can't be read, or is not of the form of `model_data.json`; the error names the row.
    """
    try:
        data = msgspec.json.decode(read_authored(path), type=ModelData)
    except OSError as error:
        unread = f"can't be read: {error.strerror or error}"
        raise DefinitionError([Issue(pointer="", message=unread, hint="check the path", file=str(path))]) from error
    except (ValueError, RecursionError) as error:
        form = "give a file of the form that `graphflow models list --json` prints"
        refused = f"is no model data: {error}"
        raise DefinitionError([Issue(pointer="", message=refused, hint=form, file=str(path))]) from error
    issues = [
        Issue(pointer=f"/models/{name}", message="must be named PROVIDER/MODEL", file=str(path))
        for name in data.models
        if not all(name.partition("/")[::2])
    ]
    issues += [
        Issue(pointer=f"/models/{name}/price", message=wrong, file=str(path))
        for name, facts in data.models.items()
        if facts.price is not None and (wrong := facts.price.misfit())
    ]
    if issues:
        raise DefinitionError(issues)
    return data


@functools.cache
def _built_in() -> ModelData:
    return msgspec.json.decode(BUILT_IN.read_bytes(), type=ModelData)


def lifetime_text(name: str, facts: ModelFacts, today: date) -> str | None:
    """What to say of a model that is retired or soon will be; None of others."""
    if facts.end_of_life is None:
        return None
    instead = f"; use {facts.replacement!r}" if facts.replacement else ""
    if facts.is_retired(today):
        return f"model {name!r} was retired on {facts.end_of_life}{instead} ({facts.source})"
    if (facts.end_of_life - today).days <= OLD_DAYS:
        return f"model {name!r} will be retired on {facts.end_of_life}{instead} ({facts.source})"
    return None


def as_rows(models: Mapping[str, ModelFacts]) -> dict[str, object]:
    """The facts as the file has them."""
    rows: dict[str, object] = msgspec.to_builtins(models)
    return rows
