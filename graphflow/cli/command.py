"""Turns functions into commands: one boundary makes every failure a message and an exit code."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import typer

from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import close_quietly, note
from graphflow.cli.terminal.help_text import CommandGroup, HelpfulCommand
from graphflow.errors import DefinitionError, GraphflowError, summed_up
from graphflow.faces import spoken

F = TypeVar("F", bound=Callable[..., Any])


class Verbosity:
    """Whether `--verbose` was given before the command."""

    verbose = False


root = typer.Typer(
    name="graphflow",
    cls=CommandGroup,
    help="Agents as graphs: run, inspect, stop, answer, rewind, fork.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""The command line; each file of `commands/` adds itself."""


def group(name: str, help: str) -> typer.Typer:
    """A new group of commands; without one of them it runs `list_by_default`'s."""
    made = typer.Typer(name=name, cls=CommandGroup, help=help, rich_markup_mode=None, pretty_exceptions_enable=False)
    root.add_typer(made)
    return made


def list_by_default(on: typer.Typer, listing: Callable[..., Any]) -> None:
    """Makes a group without a command list what it is about."""

    @on.callback(invoke_without_command=True, help=f"{on.info.help} Without a command: list.")
    def without_command(
        context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    ) -> None:
        if context.invoked_subcommand is None:
            # A callback is no command, so it has no error boundary of its own.
            guarded(listing)(as_json=as_json)


def command(on: typer.Typer, name: str | None = None) -> Callable[[F], F]:
    """Adds a function, or a coroutine function, as a command with the one error boundary around it."""

    def add(function: F) -> F:
        on.command(name, cls=HelpfulCommand)(guarded(function))
        return function

    return add


def report(error: GraphflowError, thread_id: str | None = None) -> int:
    """Prints an error to stderr with the next step; returns its exit code."""
    if isinstance(error, DefinitionError):
        for issue in summed_up(error.errors):
            note(f"{issue.severity}: {issue.render()}")
    else:
        note(f"graphflow: {spoken(error.message, 'cli')}")
        for issue in error.detail.get("errors", ())[1:]:
            note(f"  {issue.get('pointer') or '/'}: {issue.get('message')}")
    hint = exits.next_step(error.code, error.detail, thread_id)
    # A setting, an option or a file that is not there has no place to fix in a file that `validate` reads.
    if isinstance(error, DefinitionError) and not any(issue.pointer or issue.line for issue in error.errors):
        hint = None
    if hint and hint not in error.message:
        note(f"next: {hint}")
    return exits.exit_code_of(error)


def report_defect(error: Exception) -> int:
    """Prints an error that nothing expected; returns its exit code."""
    note(f"graphflow: {type(error).__name__}: {error}")
    note("next: this should not happen; `graphflow --verbose …` shows where it did")
    return exits.FAILED


def guarded(function: Callable[..., Any]) -> Callable[..., None]:
    """The function with the one error boundary around it; a coroutine function is run."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> None:
        code = exits.OK
        try:
            result = function(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = _run(result)
            code = result if isinstance(result, int) else exits.OK
            # Inside the boundary: a closed pipe fails here, and not during the interpreter's exit.
            sys.stdout.flush()
        except BrokenPipeError:
            # `graphflow … | head`: the reader has what it wanted and is gone, so a message would fail as well.
            close_quietly()
        except KeyboardInterrupt:
            note("interrupted")
            code = exits.INTERRUPTED
        except GraphflowError as error:
            code = report(error)
        # `stop` raises it with its code and has printed why; the handler below must not report it as a defect.
        except typer.Exit:
            raise
        except Exception as error:  # the command's boundary: a defect is a text and an exit code, a traceback on demand
            if Verbosity.verbose or os.environ.get("GRAPHFLOW_LOG_LEVEL") == "debug":
                raise
            code = report_defect(error)
        if code:
            raise typer.Exit(code)

    return inside


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    # Not needed by `--help`, and a third of its time.
    import asyncio

    return asyncio.run(coroutine)
