"""Texts for clients and models: without absolute paths and addresses of the machine that runs them.

Logs keep them whole, and so do graphflow's own errors up to the server; who reads an answer of the server, or a message of
a thread, can do nothing with them but learn how the machine is set up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ADDRESS = "(address)"
_ROOTS = frozenset(
    "Library Users Volumes bin boot dev etc home lib media mnt opt private proc root run sbin srv sys tmp usr var".split()
)
"""Folders in the root of common systems; with those of this machine's own."""
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>()\[\]{},;]+", re.IGNORECASE)
_WINDOWS_PATH = re.compile(r"(?:\b[A-Za-z]:[\\/]|(?<![\w\\])\\\\)[^\s'\"<>|:*?]*")


def _paths(roots: str) -> re.Pattern[str]:
    """Paths below one of `roots`; in quotes a path may have spaces."""
    begin = rf"/+(?:{roots})/"
    return re.compile(
        rf"(?<=')({begin}[^'\n]*)(?=')|(?<=\")({begin}[^\"\n]*)(?=\")|(?<![\w.~/-]){begin}[^\s'\"<>:,;()\[\]{{}}]*"
    )


@cache
def _known_paths() -> re.Pattern[str]:
    """Only what begins with a folder of a root is a path: JSON pointers and routes look the same."""
    try:
        mine = {path.name for path in Path("/").iterdir()}
    except OSError:
        mine = set()
    return _paths("|".join(re.escape(name) for name in sorted(_ROOTS | mine)))


_ANY_PATH = _paths(r"[^\s'\"<>:,;()\[\]{}/]+")


def public_text(text: str) -> str:
    """The text with the last part of each path, and `(address)` for each URL."""
    return _public(text, any_path=False)


def _public(text: str, *, any_path: bool) -> str:
    if "/" not in text and "\\" not in text:
        return text
    text = _URL.sub(ADDRESS, text)
    for path in (_ANY_PATH if any_path else _known_paths(), _WINDOWS_PATH):
        text = path.sub(lambda match: _last_part(match[0]), text)
    return text


def _last_part(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def public_error_text(error: BaseException, text: str) -> str:
    """`text` of somebody else's exception; those of the file system name paths, wherever these begin."""
    if not isinstance(error, OSError):
        return public_text(text)
    for name in (error.filename, error.filename2):
        if isinstance(name, str) and name.startswith("/"):
            text = text.replace(repr(name), repr(_last_part(name)))
    return _public(text, any_path=True)


def public_value(value: Any) -> Any:
    """The same for each text of an error's facts."""
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, Mapping):
        return {key: public_value(item) for key, item in value.items()}
    return [public_value(item) for item in value] if isinstance(value, list | tuple) else value
