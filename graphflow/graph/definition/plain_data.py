"""Converts data from Python callers to plain JSON data, with an error for each part that JSON cannot hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.errors import Issue
from graphflow.excerpts import excerpt_of
from graphflow.graph.definition.json_pointer import escape

MAX_NESTING = 100


def plain_data(value: Any) -> tuple[Any, list[Issue]]:
    """A copy of dicts, lists, text, numbers, booleans and null; what is not JSON becomes null, with an error."""
    issues: list[Issue] = []
    return _plain(value, "", 0, issues), issues


def without_schema(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data without its `$schema`, which is for editors: it is no part of an agent, nor of its version."""
    if not isinstance(data.get("$schema"), str):
        return data
    return {key: value for key, value in data.items() if key != "$schema"}


def _plain(value: Any, pointer: str, depth: int, issues: list[Issue]) -> Any:
    # Before `int`, of which `True` is an instance; a subclass of `int`, such as an `IntEnum`, becomes its number
    # below.
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, pointer, issues)
    if isinstance(value, int):
        return _whole(int(value), pointer, issues)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        issues.append(
            Issue(pointer=pointer, message=f"{value} is not a JSON number", hint="leave it out, or write null")
        )
        return None
    if depth >= MAX_NESTING:
        issues.append(Issue(pointer=pointer, message=f"nested deeper than {MAX_NESTING} levels", hint="flatten it"))
        return None
    if isinstance(value, Mapping):
        return _object(value, pointer, depth, issues)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item, f"{pointer}/{index}", depth + 1, issues) for index, item in enumerate(value)]
    issues.append(
        Issue(pointer=pointer, message=f"a {type(value).__name__} is not a JSON value: {excerpt_of(value, 60)}")
    )
    return None


def _object(value: Mapping[Any, Any], pointer: str, depth: int, issues: list[Issue]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            issues.append(Issue(pointer=pointer, message=f"a key is text, not {excerpt_of(key, 60)}"))
            continue
        name = _text(key, pointer, issues)
        out[name] = _plain(item, f"{pointer}/{escape(name)}", depth + 1, issues)
    return out


def _whole(value: int, pointer: str, issues: list[Issue]) -> int:
    """A whole number of at most 64 bits: no store and no other language keeps larger ones."""
    if -(2**63) <= value < 2**64:
        return value
    issues.append(Issue(pointer=pointer, message="a whole number beyond 64 bits", hint="write it as text"))
    return 0


def _text(value: str, pointer: str, issues: list[Issue]) -> str:
    """Plain text; half a surrogate pair can't be stored or sent, so it is an error."""
    # A subclass of `str` becomes plain text, whatever its own `__str__` shows.
    text = str.__str__(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        issues.append(Issue(pointer=pointer, message=f"text with half of a surrogate pair: {excerpt_of(text, 60)}"))
        return text.encode("utf-8", "replace").decode()
    return text
