"""A Python function that a settings file names: `MODULE:NAME`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphflow.excerpts import excerpt_of
from graphflow.suggestions import meant


@dataclass(frozen=True)
class FunctionReference:
    """`MODULE:NAME`, and the folder of the file that has it, in which the module may lie."""

    text: str
    folder: Path | None = None

    def __str__(self) -> str:
        return excerpt_of(self.text, 80)

    def load(self) -> Callable[..., Any]:
        """The function; its module is imported.

        Raises:
            ValueError: there is none; the text says what is wrong with which part.
        """
        module_name, colon, name = self.text.partition(":")
        if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
            raise ValueError(f"{self} names no function; write MODULE:NAME")
        try:
            with importable(self.folder):
                module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            raise ValueError(f"module {module_name!r} can't be imported: {type(error).__name__}: {error}") from error
        found = getattr(module, name, None)
        if not callable(found):
            functions = [known for known, value in vars(module).items() if callable(value)]
            hint = meant(name, functions)
            what = "has no" if found is None else "has another thing under"
            raise ValueError(f"module {module_name!r} {what} {name!r}{f'; {hint}' if hint else ''}")
        return found  # type: ignore[no-any-return] # whatever is callable


@contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """`folder` on `sys.path`, so that modules beside a settings file are found; only while the block runs."""
    if folder is None:
        yield
        return
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    # Files may be newer than the import system's cache of the folder.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        # By value, the first one: a module may have put entries of its own before it.
        sys.path.remove(entry)
