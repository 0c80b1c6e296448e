"""Which paths a command may name: those below its roots, after every symlink is resolved."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path

from graphflow.tools.builtin.command_line import WILDCARDS, Word

MAX_MATCHES = 1_000


class PathRefused(ValueError):
    """A path outside the allowed folders, or a pattern without a match."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Roots:
    """The working directory and further folders, all resolved."""

    working: Path
    further: tuple[Path, ...] = ()

    @property
    def all(self) -> tuple[Path, ...]:
        return (self.working, *self.further)

    def resolve(self, name: str) -> Path:
        """The real path of a name, links resolved.

        Raises:
            PathRefused: it lies outside of every root.
        """
        try:
            # Links are resolved before the check; the command gets the resolved path, so a link can't lead it elsewhere.
            real = Path(os.path.realpath(self.working / name))
        except (OSError, ValueError) as error:
            raise PathRefused("INVALID_PARAM", f"{name!r} is not a path: {error}") from None
        if any(real == root or root in real.parents for root in self.all):
            return real
        raise PathRefused("ACCESS_DENIED", f"path not allowed: {name!r} leads outside of the allowed folders")

    def expand(self, word: Word) -> list[str]:
        """The paths that a word names: itself, or what its pattern matches, each inside the roots.

        Raises:
            PathRefused: a name leads outside, the folder part has a wildcard, or nothing matches.
        """
        if not word.wild:
            return [self._given(word.text)]
        folder, _, pattern = word.text.rpartition("/")
        # A pattern in the folder part would list folders before they were checked.
        if WILDCARDS & set(folder):
            raise PathRefused(
                "INVALID_PARAM", f"{word.text!r}: a wildcard may stand in the file's name only, not in its folder"
            )
        base = "/" if word.text.startswith("/") and not folder else folder or "."
        names = self._matches(self.resolve(base), pattern)
        if not names:
            raise PathRefused("NOT_FOUND", f"nothing matches {word.text!r}")
        if len(names) > MAX_MATCHES:
            raise PathRefused("INVALID_PARAM", f"{word.text!r} matches {len(names)} names; the limit is {MAX_MATCHES}")
        return [self._given(os.path.join(folder, name) if folder else name) for name in names]  # noqa: PTH118 - as written

    def _given(self, name: str) -> str:
        """The path for the command line: resolved, and relative if it lies in the working directory."""
        real = self.resolve(name)
        return str(real.relative_to(self.working)) if real.is_relative_to(self.working) else str(real)

    @staticmethod
    def _matches(folder: Path, pattern: str) -> list[str]:
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names, not paths
        except OSError:
            return []
        # As in a shell: a wildcard does not match hidden files unless the pattern begins with a dot.
        hidden = pattern.startswith(".")
        return sorted(
            name for name in names if (hidden or not name.startswith(".")) and fnmatch.fnmatchcase(name, pattern)
        )
