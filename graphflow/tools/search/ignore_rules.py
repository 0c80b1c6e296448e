"""What `.gitignore` files below a root hide, as git reads them; https://git-scm.com/docs/gitignore.

Only files inside the root count, also where there is no repository: `.gitignore` of each folder, and `.git/info/exclude`
of each one that has it. A person's global excludes are not read. Git compares bytes, so paths are compared as Latin-1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from graphflow.tools.search.patterns import NoPattern, compiled_name, path_expression

MAX_BYTES = 256 * 1024
"""Of one file with rules; the rest of a longer one is not read."""
MAX_LINE = 4_096
GITIGNORE, EXCLUDE = ".gitignore", ".git/info/exclude"

ReadRules = Callable[[str, int], bytes | None]
"""`(path below the root, most bytes) → content`; None where there is no such regular file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IgnoreRule:
    """One line."""

    matches: Callable[[str], re.Match[str] | None]
    ignores: bool
    """False for a line with `!`."""
    folders_only: bool
    name_only: bool
    """Whether it is about a name in any folder, and not about a path from the folder of the rules."""


@lru_cache(maxsize=256)
def parsed_rules(content: bytes) -> tuple[IgnoreRule, ...]:
    """The rules of a file, last line first, as the last one that matches decides; a line that git can't use is left out."""
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    rules = (_rule(line.removesuffix("\r")) for line in reversed(lines))
    return tuple(rule for rule in rules if rule is not None)


def _rule(line: str) -> IgnoreRule | None:
    if line.startswith("#") or len(line) > MAX_LINE:
        return None
    text = _trimmed(line)
    ignores = not text.startswith("!")
    text = text if ignores else text[1:]
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    if not text:
        return None
    name_only = "/" not in text
    try:
        pattern = compiled_name(text) if name_only else _compiled_path(text.removeprefix("/"))
    except NoPattern:
        return None
    return IgnoreRule(matches=pattern.fullmatch, ignores=ignores, folders_only=folders_only, name_only=name_only)


def _compiled_path(text: str) -> re.Pattern[str]:
    """As git matches a path: it compares what stands before the first special character, and then forgets it, so that the
    `**` of `a**/b` stands for folders too.
    """
    literal = re.match(r"[^*?\[\\]*", text)
    assert literal is not None
    rest = text[literal.end() :]
    expression = ".*" if rest == "**" else path_expression(rest)
    return re.compile(re.escape(literal[0]) + expression, re.DOTALL)


def _trimmed(line: str) -> str:
    """Without the blanks at the end, but for one that is escaped."""
    end = len(line)
    while end and line[end - 1] == " ":
        before = line[: end - 1]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            break
        end -= 1
    return line[:end]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Level:
    """The rules of one folder."""

    prefix: int
    """Length of the folder's path with its slash."""
    rules: tuple[IgnoreRule, ...]


class IgnoreRules:
    """The ignore rules of one root.

    Args:
        read: reads a file of rules.
    """

    def __init__(self, read: ReadRules) -> None:
        self._read = read
        self._levels: dict[str, tuple[tuple[_Level, ...], tuple[_Level, ...]]] = {}

    def hides(self, folder: str, name: str, *, is_folder: bool) -> bool:
        """Whether an entry of a folder is ignored; what is in an ignored folder is not asked about here.

        Args:
            folder: relative to the root, empty for the root itself.
            name: of the entry.
            is_folder: whether it is one.
        """
        ignoring, excluding = self._of(folder)
        if not ignoring and not excluding:
            return False
        plain = _latin(name)
        path = f"{_latin(folder)}/{plain}" if folder else plain
        for level in (*ignoring, *excluding):
            below = path[level.prefix :]
            for rule in level.rules:
                if (is_folder or not rule.folders_only) and rule.matches(plain if rule.name_only else below):
                    return rule.ignores
        return False

    def has_none(self, folder: str) -> None:
        """Says that a folder has no rules of its own, so that nobody looks for them."""
        self._levels.setdefault(folder, self._above(folder))

    def _of(self, folder: str) -> tuple[tuple[_Level, ...], tuple[_Level, ...]]:
        """`.gitignore` files and excludes from this folder up to the root: those of the deepest folder decide first."""
        known = self._levels.get(folder)
        if known is None:
            above = self._above(folder)
            known = self._with(folder, GITIGNORE, above[0]), self._with(folder, EXCLUDE, above[1])
            self._levels[folder] = known
        return known

    def _above(self, folder: str) -> tuple[tuple[_Level, ...], tuple[_Level, ...]]:
        return self._of(folder.rpartition("/")[0]) if folder else ((), ())

    def _with(self, folder: str, name: str, above: tuple[_Level, ...]) -> tuple[_Level, ...]:
        prefix = f"{folder}/" if folder else ""
        content = self._read(prefix + name, MAX_BYTES)
        rules = parsed_rules(content) if content else ()
        return (_Level(prefix=len(_latin(prefix)), rules=rules), *above) if rules else above


def _latin(text: str) -> str:
    return text if text.isascii() else os.fsencode(text).decode("latin-1")
