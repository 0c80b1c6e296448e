"""Output to the terminal: results on stdout, all else on stderr; tables without a library."""

from __future__ import annotations

import datetime as dt
import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from graphflow.json_data import encode_json

if TYPE_CHECKING:
    from rich.console import Console

GAP = "  "
"""Between two columns of a table."""
NARROWEST = 20
"""Columns of a terminal that a wrapped column needs to be readable."""


def make_streams_usable() -> None:
    """Output that was closed (`>&-`) goes nowhere, and a character that the terminal's encoding lacks goes out as its escape:
    neither is a reason to lose a run's result.
    """
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def say(text: str = "") -> None:
    """Prints a line of the result to stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Prints a line for the person to stderr."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    # Losing a message is no reason to fail the command.
    except BrokenPipeError:
        pass


def stop(code: int, text: str, *, hint: str | None = None) -> NoReturn:
    """Ends the command: an error text on stderr, and what to do next."""
    note(f"graphflow: {text}")
    if hint:
        note(f"next: {hint}")
    raise typer.Exit(code)


def say_json(value: Any) -> None:
    """Prints one indented JSON value; structs and frozen values too."""
    import msgspec

    say(msgspec.json.format(encode_json(value), indent=2).decode())


def one_line_json(value: Any) -> str:
    return encode_json(value).decode()


def interactive() -> bool:
    """Whether a person can be asked: stdin and stdout are a terminal."""
    return _is_tty(sys.stdin) and _is_tty(sys.stdout)


def shown_live() -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    return _is_tty(sys.stdout) and os.environ.get("TERM") != "dumb"


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def coloured(stream: TextIO | None = None) -> bool:
    """Colour only on a terminal, and not where https://no-color.org asks for none."""
    return not os.environ.get("NO_COLOR") and _is_tty(stream or sys.stdout)


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if coloured() else text


def rich_console() -> Console:
    """Rich's console on stdout; a closed pipe ends the command as it does everywhere else."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(highlight=False, soft_wrap=False)


def say_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Prints aligned columns; nothing is ever cut. `right` lists columns of numbers.

    On a pipe a row is one line, for other programs. On a terminal that is too narrow the widest column is wrapped, and
    where even that leaves too little room each row becomes a block with a line for each column.
    """
    # Wide characters take two columns, which `len` does not see.
    from graphflow.graph.drawing.layout import units

    # A line break in a title would end its row, and an escape in it could rewrite what the terminal shows.
    cells = [["".join(c if c.isprintable() else " " for c in str(cell)) for cell in row] for row in rows]
    widths = [max(map(units, column)) for column in zip(head, *cells, strict=True)]
    if _is_tty(sys.stdout):
        spare = shutil.get_terminal_size().columns - sum(widths) - len(GAP) * (len(widths) - 1)
        if spare < 0:
            widest = widths.index(max(widths))
            widths[widest] += spare
            if widths[widest] < NARROWEST:
                _say_blocks(head, cells)
                return

    def line(row: Sequence[str]) -> str:
        padded = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - units(cell))
            padded.append(space + cell if index in right else cell + space)
        return GAP.join(padded).rstrip()

    say(dim(line(head)))
    for row in cells:
        pieces = [
            _wrapped(cell, width) if units(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)
        ]
        for each in zip_longest(*pieces, fillvalue=""):
            say(line(each))


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken at spaces where it has some."""
    from rich.text import Text  # only here: it takes longer to load than most tables to print

    return [line.plain.rstrip() for line in Text(text).wrap(rich_console(), width)]


def _say_blocks(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Each row as lines `column  value`, with an empty line between two."""
    wide = max(map(len, head))
    for number, row in enumerate(rows):
        if number:
            say()
        for name, cell in zip(head, row, strict=True):
            # A column without a name is a mark or a bar, which says nothing outside its table.
            if name and cell:
                say(f"{dim(name.ljust(wide))}{GAP}{cell}")


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def local_time(ms: int) -> str:
    """Epoch milliseconds as local time to the second."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def tokens_of(usage: Mapping[str, Any] | None) -> int:
    """Tokens of a usage, prompt and completion."""
    return sum((usage or {}).get(key) or 0 for key in ("promptTokens", "completionTokens"))


def cost_text(cost_usd: float | None, known_usd: float = 0.0) -> str:
    """`0.0123`, or `unknown` with the part that is known: an unknown cost is not 0."""
    if cost_usd is not None:
        return f"{cost_usd:.6f}".rstrip("0").rstrip(".")
    return f"unknown (≥ {cost_text(known_usd)})" if known_usd else "unknown"


def shortened(text: str, limit: int) -> str:
    """The text on one line, cut at `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def close_quietly() -> None:
    """After a closed pipe: drops buffered output, so that the interpreter's exit is silent too."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # stdout is not a file of the system: a test's buffer
