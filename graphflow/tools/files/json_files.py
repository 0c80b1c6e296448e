"""Strict reading of JSON that people write (tool files, viewports), with the place of each error."""

from __future__ import annotations

import json
from typing import Any

from graphflow.errors import Issue


def read_json(content: bytes | str, file: str) -> tuple[Any, Issue | None]:
    """The data of a file, or the error that prevents reading it.

    Args:
        content: the file's bytes, or why they can't be read.
        file: its path, for the error.
    """
    if isinstance(content, str):
        return None, Issue(file=file, pointer="", message=f"the file can't be read: {content}", kind="syntax")
    try:
        # The standard library's reader: it gives line and column, and hooks for equal keys. `utf-8-sig` takes the byte
        # order mark that editors on Windows write.
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_number), None
    except json.JSONDecodeError as error:
        message, line, column = f"not valid JSON: {error.msg}", error.lineno, error.colno
        return None, Issue(file=file, pointer="", message=message, line=line, column=column, kind="syntax")
    except (ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a key twice
        return None, Issue(file=file, pointer="", message=f"the file can't be read: {error}", kind="syntax")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python keeps the last of two equal keys and says nothing; a person would search for the lost one.
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return found


def _no_number(word: str) -> Any:
    # Python's reader takes `NaN` and `Infinity`, which no other JSON reader does.
    raise ValueError(f"{word} is not a JSON number")
