"""Output to the terminal: results on stdout, all else on stderr; tables without a library."""

from __future__ import annotations

import datetime as dt
import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from graphflow.json_data import encode_json
from graphflow.text_width import longest_word, units, visible, wrap

if TYPE_CHECKING:
    from rich.console import Console

GAP = "  "
"""Between two columns of a table."""
BAR, LEAST_BAR = 24, 4
"""Cells of the longest bar, in a table with room and in one without."""


def make_streams_usable() -> None:
    """Output that was closed (`>&-`) goes nowhere, and a character that the terminal's encoding lacks goes out as its escape:
    neither is a reason to lose a run's result.
    """
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def put(text: str = "") -> None:
    """Prints data to stdout as it is; to a terminal without what could change what is shown there."""
    _write(visible(text) if _is_tty(sys.stdout) else text)


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str = "", *, indent: str = "  ") -> None:
    """Prints lines of the result to stdout. On a terminal they are wrapped at words, and `indent` begins what follows."""
    _write(fitted(text, sys.stdout, indent))


def note(text: str, *, indent: str = "  ", whole: bool = False) -> None:
    """Prints lines for the person to stderr, wrapped as `say` does; `whole` is a command to copy, which is never cut."""
    try:
        sys.stderr.write((_copyable(text) if whole else fitted(text, sys.stderr, indent)) + "\n")
        sys.stderr.flush()
    # Losing a message is no reason to fail the command.
    except BrokenPipeError:
        pass


def fitted(text: str, stream: TextIO, indent: str = "") -> str:
    """The text as the stream shows it: wrapped at words where it is a terminal."""
    shown = visible(text)
    return "\n".join(wrap(shown, columns(), indent)) if _is_tty(stream) else shown


_SHELL_WORD = re.compile(r"(?:'[^']*'|\\'|[^\s'])+")


def _copyable(command: str) -> str:
    """A command as the terminal shows it: what does not fit goes on in a further line, and still runs when it is pasted."""
    shown = visible(command)
    if not _is_tty(sys.stderr) or units(shown) <= columns():
        return shown
    lead = shown[: len(shown) - len(shown.lstrip())]
    lines, line = [], lead
    for word in _SHELL_WORD.findall(shown):
        if line.strip() and units(line) + units(word) + 3 > columns():  # a blank before it and ` \\` behind it
            lines.append(f"{line} \\")
            # An id leaves no room for an indent on a narrow terminal.
            line = f"{lead}  " if len(lead) + units(word) + 4 <= columns() else ""
        line += word if line.endswith(" ") or not line else f" {word}"
    return "\n".join([*lines, line])


def columns() -> int:
    """Width of the terminal."""
    return shutil.get_terminal_size().columns


def stop(code: int, text: str, *, hint: str | None = None) -> NoReturn:
    """Ends the command: an error text on stderr, and what to do next."""
    note(f"graphflow: {text}")
    if hint:
        note(f"next: {hint}")
    raise typer.Exit(code)


def say_json(value: Any) -> None:
    """Prints one indented JSON value; structs and frozen values too."""
    import msgspec

    put(msgspec.json.format(encode_json(value), indent=2).decode())


def one_line_json(value: Any) -> str:
    return encode_json(value).decode()


def interactive() -> bool:
    """Whether a person can be asked: stdin and stdout are a terminal."""
    return _is_tty(sys.stdin) and _is_tty(sys.stdout)


def shown_on_terminal() -> bool:
    """Whether stdout is a terminal, which has a width."""
    return _is_tty(sys.stdout)


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


@dataclass(frozen=True)
class Bar:
    """A cell that shows a share of the longest bar; of a narrow table its column shrinks first."""

    share: float | None
    """From 0 to 1; None shows nothing."""

    def text(self, width: int) -> str:
        if not self.share:
            return "" if self.share is None else "▏"
        return "█" * max(1, round(width * self.share))


def say_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Prints aligned columns; nothing is ever cut. `right` lists columns of numbers.

    On a pipe a row is one line, for other programs. On a terminal that is too narrow bars shrink, then the widest
    columns are wrapped between words, and where even that is too wide each row becomes a block with a line for each column.
    """
    # A line break in a title would end its row, and an escape in it could rewrite what the terminal shows.
    cells = [[cell if isinstance(cell, Bar) else " ".join(visible(str(cell)).split()) for cell in row] for row in rows]
    table = list(zip(head, *cells, strict=True))
    widths: list[int] | None = [max(BAR if isinstance(cell, Bar) else units(cell) for cell in each) for each in table]
    if _is_tty(sys.stdout):
        widths = _narrowed(table, widths or [])
    if widths is None:
        _say_blocks(head, cells)
        return
    for number, row in enumerate([head, *cells]):
        pieces = [
            [cell.text(width)] if isinstance(cell, Bar) else wrap(cell, max(1, width))
            for cell, width in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*pieces, fillvalue=""):
            spaces = [" " * (width - units(part)) for part, width in zip(parts, widths, strict=True)]
            line = GAP.join(
                space + part if index in right else part + space
                for index, (part, space) in enumerate(zip(parts, spaces, strict=True))
            ).rstrip()
            _write(line if number else dim(line))


def _narrowed(table: Sequence[Sequence[object]], widths: list[int]) -> list[int] | None:
    """Widths that fit the terminal and break no word; None if there are none."""
    bars = [any(isinstance(cell, Bar) for cell in column) for column in table]
    least = [
        LEAST_BAR if bar else max(longest_word(str(cell)) for cell in column)
        for column, bar in zip(table, bars, strict=True)
    ]
    widths, spare = widths[:], columns() - sum(widths) - len(GAP) * (len(widths) - 1)
    for wanted in (True, False):
        while spare < 0:
            wide = [i for i, bar in enumerate(bars) if bar is wanted and widths[i] > least[i]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
            spare += 1
    return None if spare < 0 else widths


def _say_blocks(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Each row as lines `column  value`, with an empty line between two."""
    wide = max(map(units, head))
    for number, row in enumerate(rows):
        if number:
            _write("")
        for name, cell in zip(head, row, strict=True):
            # A column without a name is a mark or a bar, which says nothing outside its table.
            if name and cell != "":
                _say_field(name, str(cell), wide)


def _say_field(name: str, cell: str, wide: int) -> None:
    room = columns() - wide - len(GAP)
    if longest_word(cell) > room:  # an id on a narrow terminal: below its name it is whole
        _write(dim(name))
        name, wide, room = "", 0, columns() - len(GAP)
    for line in wrap(cell, max(1, room)):
        _write(f"{dim(name + ' ' * (wide - units(name)))}{GAP}{line}")
        name = ""


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
