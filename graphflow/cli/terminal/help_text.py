"""Help and usage errors that fit the terminal: on a narrow one each option stands above what it does, and no word is broken."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from graphflow.cli.terminal.console import columns
from graphflow.text_width import longest_word, units, visible, wrap

COLUMN, WIDEST = 30, 80
"""Most columns of the options beside their texts, and of the whole."""
NARROW = 50
"""Below this the usual layout wraps wider than the terminal."""
_Context: Any = TyperGroup.context_class
_UsageError: Any = typer.BadParameter.__base__


class HelpText(_Context.formatter_class):  # type: ignore[misc] # typer brings click with it, under a private name
    """Lays help out in the columns that there are."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(width=max(10, min(columns(), WIDEST) - 2))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        if self.width >= NARROW:
            super().write_usage(prog, args, prefix)
        else:
            self._write(f"{prefix or 'Usage: '}{prog} {args}", indent="    ")

    def write_text(self, text: str) -> None:
        if self.width >= NARROW:
            super().write_text(text)
            return
        for number, paragraph in enumerate(text.split("\n\n")):
            self.write("\n" if number else "")
            self._write(" ".join(paragraph.replace("\b", "").split()))

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = COLUMN, col_spacing: int = 2) -> None:
        rows = list(rows)
        beside = self.width - min(max(units(term) for term, _ in rows), col_max) - col_spacing - 2
        if self.width >= NARROW and max(longest_word(text) for _, text in rows) <= beside:
            super().write_dl(rows, col_max, col_spacing)
            return
        for term, text in rows:
            self._write(term, indent="  ")
            self.indent()
            self.indent()
            self._write(text)
            self.dedent()
            self.dedent()

    def _write(self, text: str, indent: str = "") -> None:
        for line in wrap(text, self.width - self.current_indent, indent) if text else ():
            self.write(f"{' ' * self.current_indent}{line}\n")


class HelpContext(_Context):  # type: ignore[misc]
    formatter_class = HelpText


class HelpfulCommand(TyperCommand):
    context_class = HelpContext


@contextlib.contextmanager
def _fitting_errors() -> Iterator[None]:
    """Usage errors inside show themselves in the columns that there are."""
    try:
        yield
    except _UsageError as error:
        if type(error).show is _UsageError.show:  # that of a group without arguments is its help
            error.show = functools.partial(_show, error)
        raise


def _show(error: Any, file: object = None) -> None:
    parts = []
    if error.ctx is not None:
        parts = [error.ctx.get_usage()]
        if error.ctx.help_option_names:
            parts.append(f"Try '{error.ctx.command_path} {error.ctx.help_option_names[0]}' for help.\n")
    # What was typed is part of it, whatever that is.
    text = visible("\n".join([*parts, f"Error: {error.format_message()}"]))
    sys.stderr.write("\n".join(wrap(text, columns(), "  ")) + "\n")


class CommandGroup(TyperGroup):
    """A group whose help says what each command does in full."""

    context_class = HelpContext

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _fitting_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _fitting_errors():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        listed = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, found.get_short_help_str(limit=1_000)) for name, found in listed if found and not found.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
