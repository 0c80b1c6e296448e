"""The text of an open file in blocks of whole lines, decoded as ripgrep does: UTF-16 by its mark, all else as UTF-8."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator

MAX_LINE = 16 * 1024 * 1024
"""Characters of a line; reading ends at a longer one."""
_BLOCK = 1 << 18
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def decoded_blocks(handle: int) -> Iterator[str | None]:
    r"""The text, each block but the last one up to a `\n`; None, and nothing more, at a NUL.

    Raises:
        OSError: a damaged disk.
        OverflowError: a line is too long.
    """
    head = os.read(handle, _BLOCK)
    mark, encoding = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", "utf-8"))
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest, data = "", head[len(mark) :]
    while True:
        text = decoder.decode(data, final=not data)
        if "\0" in text:
            yield None
            return
        lines, newline, last = text.rpartition("\n")
        if newline:
            yield f"{rest}{lines}\n"
            rest = last
        else:
            rest += last
        if len(rest) > MAX_LINE:
            raise OverflowError
        if not data:
            break
        data = os.read(handle, _BLOCK)
    if rest:
        yield rest


def lines_at(handle: int, last: int) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers from 1, as far as the last one that is wanted; none of what follows a NUL."""
    number = 0
    for text in decoded_blocks(handle):
        if text is None:
            return
        if number >= last:
            return
        for line in text.removesuffix("\n").split("\n"):
            number += 1
            yield number, line


def shown_line(line: str, most: int) -> str:
    """A line as a result shows it."""
    line = line.rstrip("\r\n")
    return line if len(line) <= most else f"{line[:most]} … [the line has {len(line):,} characters]"
