"""The command line's entry. Every group is its own file; what a command needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from graphflow.cli.command import Verbosity
from graphflow.cli.command import root as app

# Importing a command adds it.
from graphflow.cli.commands import (  # isort: skip
    run, chat, serve, agents, threads, runs, inbox, rules, usage, models, graph, validate, agent_cases, schema, new, scripted_model, doctor, commands,  # noqa: F401
)  # fmt: skip
from graphflow.cli.terminal.console import make_streams_usable

__all__ = ["app", "main"]

COMMANDS = (
    "run",
    "chat",
    "serve",
    "why",
    "replay",
    "usage",
    "validate",
    "test",
    "schema",
    "new",
    "scripted-model",
    "doctor",
    "commands",
)
GROUPS = ("agents", "threads", "runs", "inbox", "rules", "models", "graph")
# The order of `graphflow --help` is this one, whichever module of a command was imported first.
app.registered_commands.sort(key=lambda made: COMMANDS.index(made.name or ""))
app.registered_groups.sort(key=lambda made: GROUPS.index(made.typer_instance.info.name if made.typer_instance else ""))


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


def main() -> None:
    """The console script."""
    make_streams_usable()
    app(prog_name="graphflow")
