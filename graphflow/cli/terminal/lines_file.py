"""Writes and reads an exported thread as a file of JSON Lines."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import one_line_json, stop
from graphflow.private_files import FILE_MODE


async def write_lines(path: Path, lines: AsyncIterator[Any]) -> None:
    """Writes the whole file or none of it."""
    # Renamed into place at the end: a reader never sees half a thread, and a failure keeps the old file.
    # A thread holds what people said: like the store, only the owner may read it, whatever the umask is. The name can't be
    # guessed, and nothing is opened that is there already, so no link in a shared folder leads the text elsewhere.
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as out:
            async for line in lines:
                out.write(one_line_json(line) + "\n")
        part.replace(path)
    except OSError as error:
        stop(exits.FAILED, f"{str(path)!r} cannot be written: {error.strerror}")
    finally:
        part.unlink(missing_ok=True)


async def read_lines(file: str) -> AsyncIterator[dict[str, Any]]:
    """The lines of an exported thread; `-` reads stdin."""
    import msgspec

    from graphflow.checkpoints.export import FORMAT

    hint = "import reads what `graphflow threads export` wrote"
    lines = _content(file).removesuffix("\n").split("\n")  # splitlines() would also cut at breaks inside a text
    if lines == [""]:
        stop(exits.USAGE, f"{file} is empty", hint=hint)
    for number, line in enumerate(lines, 1):
        try:
            value = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            stop(exits.USAGE, f"{file}:{number}: not valid JSON: {error}", hint=hint)
        except RecursionError:
            stop(exits.USAGE, f"{file}:{number}: not valid JSON: it is nested too deeply", hint=hint)
        if number == 1 and not (isinstance(value, dict) and value.get("kind") == FORMAT):
            stop(exits.USAGE, f"{file}:1: not an exported thread", hint=hint)
        yield value


def _content(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return stop(exits.USAGE, f"{file!r} cannot be read: {getattr(error, 'strerror', None) or error}")
