"""Modules that docstrings, comments and pages name exist: a move that leaves a name behind misleads whoever follows it."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:[\w-]+/)*\w+\.py)`")
FOLDERS = ("graphflow", "tests", "benchmarks", "examples", "docs", "graphs")
MODULES = ["/" + path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
TEXTS = sorted(
    path
    for pattern in ("graphflow/**/*.py", "benchmarks/**/*.py", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # it tells of the past
)


def texts_of(path: Path) -> Iterator[str]:
    """The prose of a file: all of a page, docstrings and comments of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    if not NAMED.search(text):  # to take a module apart takes long, and most name none
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.string


def unknown(path: Path) -> list[str]:
    named = [name for text in texts_of(path) for name in NAMED.findall(text)]
    return sorted({name for name in named if not any(module.endswith(f"/{name}") for module in MODULES)})


def test_there_are_texts_that_name_modules() -> None:
    assert sum(bool(NAMED.search(text)) for path in TEXTS for text in texts_of(path)) > 50


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in TEXTS}))
def test_every_module_that_a_text_names_exists(folder: str) -> None:
    paths = [path for path in TEXTS if path.relative_to(ROOT).parts[0] == folder]
    assert {path.relative_to(ROOT).as_posix(): found for path in paths if (found := unknown(path))} == {}
