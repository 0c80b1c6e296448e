"""Strict JSON with the position of every value, and three-quoted prompts (spec 1.1).

`parse_source` reads a text into plain data; `Source.place(pointer)` then gives line and column of
any value, so that an error found much later still names its place. It is JSON with one addition: the
value of a key whose name contains `systemPrompt` may stand between three quotation marks, with real
line breaks and no escapes.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphflow.authored_files import MAX_BYTES, read_authored
from graphflow.errors import DefinitionError, Issue
from graphflow.graph.definition.json_scanner import Scanned, scan


class Source:
    """A parsed text: its data, and the place of every value and key."""

    __slots__ = ("_keys", "_lines", "_values", "data", "errors", "file", "text")

    def __init__(self, text: str, scanned: Scanned, *, file: str | None, errors: Sequence[Issue] = ()) -> None:
        self.text = text
        self.data: Any = scanned.data
        """Plain dicts, lists, str, int, float, bool, None."""
        self.file = file
        self.errors = tuple(errors)
        """Errors of the text that left readable data, only with `strict=False`."""
        self._values, self._keys = scanned.values, scanned.keys
        self._lines = _line_starts(text)

    def place(self, pointer: str) -> tuple[int, int] | None:
        """Line and column (1-based) of the value at a JSON pointer, or of the nearest one around it."""
        # A pointer may name a key that is missing; the nearest value around it is where to add it.
        while (at := self._values.get(pointer)) is None:
            if not pointer:
                return None
            pointer = pointer.rpartition("/")[0]
        return self.position(at)

    def key_place(self, pointer: str) -> tuple[int, int] | None:
        """Line and column (1-based) of the key of the value at a JSON pointer; without a key, of the value."""
        at = self._keys.get(pointer)
        return self.place(pointer) if at is None else self.position(at)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column (1-based) of an offset in the text."""
        line = bisect.bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def locate(self, issue: Issue) -> Issue:
        """The error with file, line and column; one that has a line is returned as it is.

        An error about a key that should not be there points at the key, any other at the value.
        """
        if issue.line is not None:
            return issue
        found = self.key_place(issue.pointer) if _about_key(issue) else self.place(issue.pointer)
        line, column = found or (None, None)
        return replace(issue, file=issue.file or self.file, line=line, column=column)


def parse_source(text: str, *, file: str | None = None, strict: bool = True) -> Source:
    """The source behind a text.

    Args:
        text: the whole file; a byte order mark is skipped.
        file: its name, for errors.
        strict: raise for any error. `False` raises only when there is no readable data and leaves the
            rest (a key given twice, a trailing comma) in `Source.errors`, to be reported with what
            else is wrong.

    Raises:
        DefinitionError: with every error of kind `syntax`.
    """
    scanned = scan(text)
    bare = Source(text, scanned, file=file)
    issues = tuple(_syntax_issue(bare, found) for found in scanned.errors)
    if issues and (strict or scanned.unreadable):
        raise DefinitionError(issues)
    return Source(text, scanned, file=file, errors=issues)


def read_source(path: str | Path, *, strict: bool = True, max_bytes: int = MAX_BYTES) -> Source:
    """The source behind a file.

    Raises:
        DefinitionError: the file can't be read, is not UTF-8, or is not JSON.
    """
    # Bytes and not text: the place of the first byte that is not UTF-8 is part of the error.
    name = str(path)
    try:
        content = read_authored(path, max_bytes)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise DefinitionError(
            [Issue(pointer="", message=f"can't be read: {reason}", file=name, kind="syntax")]
        ) from error
    return parse_source(decode_utf8(content, file=name), file=name, strict=strict)


def decode_utf8(content: bytes, *, file: str | None = None) -> str:
    """The text of a file.

    Raises:
        DefinitionError: at the first byte that is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        issue = Issue(
            pointer="",
            message=f"byte {content[error.start]:#04x} is not UTF-8",
            hint="save the file as UTF-8",
            file=file,
            line=line,
            column=column,
            kind="syntax",
        )
        raise DefinitionError([issue]) from error


def _syntax_issue(source: Source, found: tuple[int, str, str, str | None]) -> Issue:
    at, pointer, message, hint = found
    line, column = source.position(at)
    return Issue(pointer=pointer, message=message, hint=hint, file=source.file, line=line, column=column, kind="syntax")


def _about_key(issue: Issue) -> bool:
    # By the text, because an `Issue` does not say whether it means the key or the value; both phrases are ours.
    return issue.message.startswith("unknown key ") or " can't name a " in issue.message


def _line_starts(text: str) -> list[int]:
    starts, at = [0], text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts
