"""Which files the words of a command name: names as they are, and patterns as what they match in the workspace."""

from __future__ import annotations

import fnmatch

from graphflow.tools.builtin.command_line import WILDCARDS, Word
from graphflow.tools.workspace import FileRefused, Workspace

MAX_MATCHES = 1_000


def expand(word: Word, workspace: Workspace) -> list[str]:
    """The paths that a word names: itself, or what its pattern matches, links resolved.

    Raises:
        FileRefused: a name leads outside or is protected, the folder part has a wildcard, or nothing matches.
    """
    if not word.wild:
        return [_given(word.text, workspace)]
    folder, _, pattern = word.text.rpartition("/")
    # A pattern in the folder part would list folders before they were checked.
    if WILDCARDS & set(folder):
        raise FileRefused(
            "INVALID_PARAM", f"{word.text!r}: a wildcard may stand in the file's name only, not in its folder"
        )
    base = "/" if word.text.startswith("/") and not folder else folder or "."
    names = _matches(base, pattern, workspace)
    if not names:
        raise FileRefused("NOT_FOUND", f"nothing matches {word.text!r}")
    if len(names) > MAX_MATCHES:
        raise FileRefused("INVALID_PARAM", f"{word.text!r} matches {len(names)} names; the limit is {MAX_MATCHES}")
    return [_given(f"{folder}/{name}" if folder else name, workspace) for name in names]


def _given(name: str, workspace: Workspace) -> str:
    """The path for the command: resolved, and relative if it is in the working directory."""
    if name == "-":  # standard input
        return name
    try:
        found = workspace.find(name)
    except FileRefused as refused:
        # The command says so itself, and goes on with its other words.
        if refused.code == "NOT_FOUND":
            return name
        raise
    if found.root.given == workspace.root:
        return "/".join(found.parts) or "."
    return str(found.path)


def _matches(folder: str, pattern: str, workspace: Workspace) -> list[str]:
    try:
        entries, _ = workspace.entries(folder)
    except FileRefused as refused:
        if refused.code == "ACCESS_DENIED":
            raise
        return []
    # As in a shell: a wildcard does not match hidden files unless the pattern begins with a dot.
    hidden = pattern.startswith(".")
    names = (entry.name for entry in entries if hidden or not entry.name.startswith("."))
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]
