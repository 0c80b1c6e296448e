"""Values on the command line: `k=v`, JSON in place, `@file`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from graphflow.cli.command import stop
from graphflow.cli.terminal import exit_codes as exits


def json_or_text(text: str) -> Any:
    """The JSON value that the text is, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def json_value(given: str, option: str) -> Any:
    """JSON in place, from `@FILE`, or from stdin as `@-`; a plain file name is taken too."""
    if given.startswith("@"):
        return _decoded(_content(given[1:], option), option, given)
    if given.endswith(".json") and Path(given).is_file():
        return _decoded(_content(given, option), option, given)
    return _decoded(given, option, given)


def json_object(given: str, option: str) -> dict[str, Any]:
    value = json_value(given, option)
    if not isinstance(value, dict):
        stop(exits.USAGE, f"{option} takes a JSON object, not {given!r}")
    return value


def pairs(given: Iterable[str], option: str) -> dict[str, Any]:
    """`k=v` entries (a value that is JSON is that value) and `@FILE` entries, the later winning."""
    out: dict[str, Any] = {}
    for entry in given:
        key, equals, value = entry.partition("=")
        if entry.startswith("@"):
            out |= json_object(entry, option)
        elif not equals or not key:
            stop(exits.USAGE, f"{option} takes KEY=VALUE or @FILE, not {entry!r}")
        else:
            out[key] = json_or_text(value)
    return out


def message_text(given: str | None) -> str | None:
    """The message, or all of stdin for `-`."""
    try:
        text = sys.stdin.read().strip() if given == "-" else given
        if text is not None:
            text.encode()  # bytes that are no UTF-8 come as half characters, which nothing can store
    except UnicodeError:
        stop(exits.USAGE, "the message is no UTF-8 text", hint="`iconv -t UTF-8` makes it one")
    return text


def _content(name: str, option: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        stop(exits.USAGE, f"{option}: {name!r} can't be read: {getattr(error, 'strerror', None) or error}")


def _decoded(text: str, option: str, given: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        stop(exits.USAGE, f"{option}: {given!r} is no JSON: {error}")
