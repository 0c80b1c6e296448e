"""Raw value → value of the setting's type; a refusal's text is the rule ("a whole number from 0 to 9")."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from graphflow.settings.table import Setting
from graphflow.suggestions import meant

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_LARGEST = 2**53
"""Whole numbers from here on are not exact in JSON and overflow what timers and stores take."""


def converted(row: Setting, raw: Any, base: Path) -> Any:
    """The value of the setting's type; raises `ValueError` whose text is the rule ("a number from 0 to 9")."""
    kind = next(k for k in get_args(row.kind) if k is not type(None)) if type(None) in get_args(row.kind) else row.kind
    if get_origin(kind) is Literal:
        return _choice(raw, get_args(kind))
    if kind is bool:
        return _boolean(raw)
    if kind in (int, float):
        return _number(raw, row, kind)
    # Joined to the folder of the files: a path in them must not depend on where the command is started.
    if kind is Path:
        return base / _path(_text(raw, "a path"))
    if get_origin(kind) is tuple:
        return _secrets(raw) if row.secret else _words(raw)
    return _text(raw, "a text")


def _refuse(rule: str) -> NoReturn:
    raise ValueError(rule)


def _choice(raw: Any, allowed: tuple[str, ...]) -> str:
    match = next((word for word in allowed if isinstance(raw, str) and word.lower() == raw.strip().lower()), None)
    return match or _refuse(
        "one of " + ", ".join(allowed) + (did_you_mean(raw, allowed) if isinstance(raw, str) else "")
    )


def _boolean(raw: Any) -> bool:
    value = raw if isinstance(raw, bool) else _BOOLEANS.get(raw.strip().lower()) if isinstance(raw, str) else None
    return _refuse("true or false") if value is None else value


def _number(raw: Any, row: Setting, kind: Any) -> float:
    bounds = f" from {row.least:g}" if row.least is not None else ""
    bounds += f" to {row.most:g}" if row.most is not None else " up" if bounds else ""
    rule = f"a {'whole ' if kind is int else ''}number{bounds}" + (f" ({row.unit})" if row.unit else "")
    # `bool` is an int to Python, and a float would be cut to an int in silence.
    if isinstance(raw, bool) or not isinstance(raw, int | float | str) or (kind is int and isinstance(raw, float)):
        _refuse(rule)
    try:
        value: float = kind(raw)
        # NaN is neither below nor above a bound. An integer that no float can hold is refused too: milliseconds are
        # divided, and stores keep 64 bits.
        wrong = math.isnan(value) or (kind is int and abs(value) >= _LARGEST)
    except (ValueError, OverflowError):
        _refuse(rule)
    low = row.least is not None and value < row.least
    high = row.most is not None and value > row.most
    return _refuse(rule) if wrong or low or high else value


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        _refuse("a path; its ~ names no home folder")


def _text(raw: Any, rule: str) -> str:
    return str(raw) if isinstance(raw, str | os.PathLike) and "\0" not in str(raw) else _refuse(rule)


def _words(raw: Any) -> tuple[str, ...]:
    """A list, or in the environment words between commas."""
    if isinstance(raw, str):
        return tuple(word for word in (part.strip() for part in raw.split(",")) if word)
    if isinstance(raw, list | tuple) and all(isinstance(word, str) for word in raw):
        return tuple(raw)
    return _refuse("a list of texts (in the environment: with commas between)")


def _secrets(raw: Any) -> tuple[str, ...]:
    """Like `_words`, but an empty one is an error: what an unset variable leaves must not turn protection off."""
    if not all(word.strip() for word in (raw.split(",") if isinstance(raw, str) else _words(raw))):
        _refuse("a list of secrets, none of them empty or blank")
    return _words(raw)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when nothing is close."""
    hint = meant(word, known)
    return "" if hint is None else f"; {hint}"


def as_text(value: Any) -> str:
    """The value as it would stand in the environment: `converted` reads it back."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
