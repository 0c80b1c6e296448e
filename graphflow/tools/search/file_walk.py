"""The files below a folder that a search looks at: not hidden, not ignored, in an order that is the same each time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from graphflow.tools.search.ignore_rules import GITIGNORE, IgnoreRules
from graphflow.tools.workspace import Workspace
from graphflow.tools.workspace.walking import Walk

REPOSITORIES = frozenset({".git", ".hg", ".svn"})
DEPENDENCIES = frozenset({"node_modules", "__pycache__", "venv"})
IGNORED_FOLDERS = REPOSITORIES | DEPENDENCIES
"""Folders that are ignored also where no file says so."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Which files a search looks at."""

    pattern: re.Pattern[str] | None = None
    """Of the path relative to the start; None: every file."""
    name: re.Pattern[str] | None = None
    """The same as the pattern for one that is about names only: it saves making the paths."""
    hidden: bool = False
    """Also names that begin with a dot."""
    ignored: bool = False
    """Also what ignore rules hide."""


def files_below(walk: Walk, rules: IgnoreRules, looked: Looked) -> Iterator[str]:
    """The paths of the files, relative to the root: those of a folder by name, then those of its folders by name.

    Args:
        walk: where; its limits end the iteration.
        rules: of the same root.
        looked: which files.
    """
    left = [walk.start]
    skip = len(walk.start) + 1 if walk.start else 0
    fits = looked.pattern.fullmatch if looked.pattern else None
    while left and not walk.is_over:
        folder = left.pop()
        listing = walk.listing(folder)
        if listing is None:
            continue
        if GITIGNORE not in listing.files and ".git" not in listing.folders:
            rules.has_none(folder)
        prefix = f"{folder}/" if folder else ""
        below = prefix[skip:]
        # The pattern first: it leaves few to sort and to compare with the rules.
        names = listing.files
        if looked.name is not None:
            names = list(filter(looked.name.fullmatch, names))
        elif fits is not None:
            names = [each for each in names if fits(below + each)]
        for name in sorted(names):
            if not _is_left_out(rules, looked, folder, name, is_folder=False):
                yield prefix + name
        left += [
            prefix + name
            for name in sorted(listing.folders, reverse=True)
            if not _is_left_out(rules, looked, folder, name, is_folder=True)
        ]


def is_looked_at(path: str, walk: Walk, rules: IgnoreRules, looked: Looked) -> bool:
    """Whether `files_below` would give this path of a file; for what another program has found."""
    below = path.removeprefix(f"{walk.start}/" if walk.start else "")
    if looked.pattern is not None and not looked.pattern.fullmatch(below):
        return False
    *folders, name = below.split("/")
    above = walk.start
    for each in folders:
        if _is_left_out(rules, looked, above, each, is_folder=True):
            return False
        above = f"{above}/{each}" if above else each
    return not _is_left_out(rules, looked, above, name, is_folder=False)


def _is_left_out(rules: IgnoreRules, looked: Looked, folder: str, name: str, *, is_folder: bool) -> bool:
    if not looked.hidden and name.startswith("."):
        return True
    if looked.ignored:
        return False
    return (is_folder and name in IGNORED_FOLDERS) or rules.hides(folder, name, is_folder=is_folder)


def shown_prefix(walk: Walk, workspace: Workspace) -> str:
    """What stands before a path in results: nothing in the workspace itself, the root's own path in a further folder."""
    return "" if walk.root.given == workspace.root else f"{walk.root.real}/"
