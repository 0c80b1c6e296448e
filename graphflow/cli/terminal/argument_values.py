"""Values that a person types: `k=v`, inline JSON, `@file`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from graphflow.cli.terminal import exit_codes as exits
from graphflow.cli.terminal.console import one_line_json, stop
from graphflow.excerpts import excerpt_of


def json_or_text(text: str) -> Any:
    """The JSON value that the text is, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def json_value(given: str, option: str) -> Any:
    """Inline JSON, or JSON from `@FILE`, from stdin (`@-`), or from a plain `.json` file name."""
    if given.startswith("@"):
        return _decoded(_content(given[1:], option), option, given)
    # JSON never ends like this, so the `@` may be left out.
    if given.endswith(".json") and Path(given).is_file():
        return _decoded(_content(given, option), option, given)
    return _decoded(given, option, given)


def json_object(given: str, option: str) -> dict[str, Any]:
    value = json_value(given, option)
    if not isinstance(value, dict):
        stop(exits.USAGE, f"{option} takes a JSON object, not {given!r}", hint=_form(option))
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


def text_pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """`k=v` entries whose values stay text."""
    out: dict[str, str] = {}
    for entry in given:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            stop(exits.USAGE, f"{option} takes KEY=VALUE, not {entry!r}")
        out[key] = value
    return out


def budget_of(given: Iterable[str] | None, timeout_s: float | None = None) -> dict[str, Any]:
    """The limits of `--budget` as a request gives them; `--timeout` becomes `timeoutMs`."""
    limits = pairs(given or (), "--budget")
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            stop(exits.USAGE, f"--budget {name} takes a number, not {one_line_json(value)}")
    if timeout_s is not None:
        limits["timeoutMs"] = max(1, round(timeout_s * 1000))
    return limits


def effect_choices(given: str | None) -> str | dict[str, str] | None:
    """`--effects`: one word for all, or `ID=WORD,…,*=WORD`."""
    # A word is checked where the choices are known: they depend on the effects.
    if given is None or "=" not in given:
        return given
    choices = [part.partition("=") for part in given.split(",")]
    return {name.strip(): word.strip() for name, _, word in choices}


def message_text(given: str | None) -> str | None:
    """The message, or all of stdin for `-`."""
    try:
        text = sys.stdin.read().strip() if given == "-" else given
        if text is not None:
            text.encode()  # invalid UTF-8 arrives as lone surrogates, which no store can hold
    except UnicodeError:
        stop(exits.USAGE, "the message is not UTF-8 text", hint="convert it with `iconv -t UTF-8`")
    return text


def _content(name: str, option: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        stop(exits.USAGE, f"{option}: {name!r} cannot be read: {getattr(error, 'strerror', None) or error}")


def _decoded(text: str, option: str, given: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        stop(exits.USAGE, f"{option}: {excerpt_of(given)} is not valid JSON: {error}", hint=_form(option))


def _form(option: str) -> str:
    return f"""{option} '{{"NAME": VALUE}}' in single quotes, or {option} @FILE"""
