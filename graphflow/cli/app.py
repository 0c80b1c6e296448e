"""The command line's entry. Every group is its own file; what a command needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import Verbosity
from graphflow.cli.commands import (
    agents,
    chat,
    doctor,
    graph,
    inbox,
    new,
    rules,
    run,
    schema,
    scripted_model,
    serve,
    threads,
    usage,
    validate,
)
from graphflow.cli.terminal.console import make_streams_usable

app = typer.Typer(
    name="graphflow",
    help="Agents as graphs: run, inspect, stop, answer, rewind, fork.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"graphflow {version('graphflow')}")
        raise typer.Exit


@app.callback()
def _every_command(
    verbose: Annotated[bool, typer.Option("--verbose", help="Log to stderr, with tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    Verbosity.verbose = verbose


for part in (
    run,
    chat,
    serve,
    agents,
    threads,
    inbox,
    rules,
    usage,
    graph,
    validate,
    schema,
    new,
    scripted_model,
    doctor,
):
    part.register(app)


def main() -> None:
    """The console script."""
    make_streams_usable()
    app(prog_name="graphflow")
