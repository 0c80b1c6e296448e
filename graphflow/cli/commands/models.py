"""`graphflow models`: what is known of the providers' models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphflow.cli.command import command, group, list_by_default
from graphflow.cli.options import AsJson
from graphflow.cli.startup import settings_of
from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import note, say, say_json, say_table, stop
from graphflow.excerpts import excerpt_of

if TYPE_CHECKING:
    from graphflow.models.model_data import ModelFacts

models = group("models", "What is known of models: context windows, prices, ends of life.")


@command(models, "list")
def list_models(
    provider: Annotated[str | None, typer.Option(metavar="KEY", help="Only this provider.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the known models; prices are USD per million tokens."""
    from graphflow.models.model_data import as_rows, model_data
    from graphflow.models.prices import canonical_name

    data = model_data(settings_of().llm.models_file)
    wanted = None if provider is None else canonical_name(f"{provider}/").rstrip("/")
    rows = {name: facts for name, facts in sorted(data.models.items()) if wanted in (None, name.partition("/")[0])}
    if as_json:
        say_json({"updated": data.updated.isoformat(), "models": as_rows(rows)})
        return
    if not rows:
        note(f"no model of {provider!r} is known")
        return
    head = ("model", "context", "output", "prompt", "completion", "end of life", "checked")
    say_table(head, [(name, *_cells(facts)) for name, facts in rows.items()], right=(1, 2, 3, 4))
    note(f"as of {data.updated}; prices are list prices, see `graphflow models show PROVIDER/MODEL`")


list_by_default(models, list_models)


@command(models, "show")
def show_model(
    model: Annotated[str, typer.Argument(metavar="PROVIDER/MODEL", help="As `graphflow models list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Show what is known of one model, and where from."""
    from graphflow.models.model_data import as_rows, model_data
    from graphflow.models.prices import canonical_name
    from graphflow.suggestions import choose

    data = model_data(settings_of().llm.models_file)
    found = canonical_name(model)
    facts = data.models.get(found)
    if facts is None:
        provider, _, name = found.partition("/")
        own = sorted(known for known in data.models if known.partition("/")[0] == provider)
        if own and not name:
            stop(exits.USAGE, f"{excerpt_of(model)} is a provider; name one of its models: {', '.join(own)}")
        stop(exits.USAGE, f"nothing is known of model {excerpt_of(model)}; {choose(found, own or sorted(data.models))}")
    row: Any = as_rows({found: facts})[found]
    if as_json:
        say_json({"model": found, **row})
        return
    say(found)
    for field, value in row.items():
        say(f"  {field.replace('_', ' ')}: {_value(value)}")


@command(models, "refresh")
def refresh_models(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Model data, as `graphflow models list --json` has it.")],
) -> None:
    """Check a file of newer model data and use it from now on; nothing is fetched."""
    from graphflow.models.model_data import model_data, read_model_data

    target = settings_of().llm.models_file
    given = read_model_data(file)
    before = model_data(target)
    added = len(given.models.keys() - before.models.keys())
    changed = sum(1 for name, facts in given.models.items() if before.models.get(name, facts) != facts)
    if given.updated < before.updated:
        stop(exits.USAGE, f"{file} is of {given.updated}, and {before.updated} is known already; get a newer file")
    # Whole or not at all: another process may read it now.
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_bytes(file.read_bytes())
    part.replace(target)
    say(f"{target}: {added} new, {changed} changed, as of {given.updated}")


def _cells(facts: ModelFacts) -> tuple[str, ...]:
    price = facts.price
    return (
        _tokens(facts.context_window),
        _tokens(facts.max_output_tokens),
        "-" if price is None else f"{price.prompt:g}",
        "-" if price is None else f"{price.completion:g}",
        str(facts.end_of_life or "-"),
        str(facts.checked),
    )


def _tokens(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_value(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
