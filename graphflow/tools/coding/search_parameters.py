"""Parameters that the searching tools share."""

from __future__ import annotations

import re
from typing import Any

from graphflow.excerpts import excerpt_of
from graphflow.tools.search.patterns import NoPattern, compiled_glob, expanded
from graphflow.tools.workspace import FileRefused

FOLDER: dict[str, Any] = {
    "type": "string",
    "description": "The folder to search, relative to the workspace, taken literally; default: all of it",
}
HIDDEN: dict[str, Any] = {"type": "boolean", "description": "Also names that begin with a dot; default false"}
IGNORED: dict[str, Any] = {
    "type": "boolean",
    "description": "Also what .gitignore hides, and folders such as node_modules; default false",
}


def file_pattern(name: str, pattern: str) -> re.Pattern[str]:
    """A glob pattern that stays below the folder where it begins.

    Args:
        name: of the argument.
        pattern: as it was given.

    Raises:
        FileRefused: `INVALID_PARAM` for one that is none, `ACCESS_DENIED` for one that leads out.
    """
    try:
        alternatives = expanded(pattern)
        if not pattern.strip() or "\0" in pattern:
            raise NoPattern("a pattern is a text that is not blank and has no NUL")
        pattern.encode()
        if any(_leads_out(each) for each in alternatives):
            rule = "a pattern begins in the folder that is searched, and has no `..`"
            raise FileRefused("ACCESS_DENIED", f"{name} {excerpt_of(pattern)} leads outside: {rule}")
        return compiled_glob(pattern)
    except (NoPattern, UnicodeEncodeError) as error:
        rule = "it holds half a character" if isinstance(error, UnicodeEncodeError) else str(error)
        raise FileRefused("INVALID_PARAM", f"{name} {excerpt_of(pattern)} is not a pattern: {rule}") from None


def _leads_out(pattern: str) -> bool:
    return pattern.startswith("/") or ".." in pattern.split("/")


def normalized(pattern: str) -> str:
    """Without what changes nothing: `./` at the beginning."""
    while pattern.startswith("./"):
        pattern = pattern[2:].lstrip("/")
    return pattern


def counted(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def on_one_line(name: str) -> str:
    """A name in a list of names, one in each line."""
    return name.replace("\n", "\\n").replace("\r", "\\r")
