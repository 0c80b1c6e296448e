"""docs/internals/conformance.md keeps its word: every test that it names exists, and every promise has its line."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "internals" / "conformance.md").read_text(encoding="utf-8")
SUITES = {"tests/checkpoints/test_conformance.py": ROOT / "graphflow" / "testing"}
"""A file that runs a suite of the package → where the suite is."""
PROMISES = {
    "P": 17, "W": 10, "G": 10, "L": 16, "D": 5, "R": 7, "C": 8, "N": 8, "H": 8, "M": 12,
    "F": 8, "I": 9, "T": 10, "S": 3, "X": 6, "J": 5, "V": 4, "A": 8, "B": 15, "Q": 34,
}  # fmt: skip
"""Letter → how many promises of that kind there are."""


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def names_of(file: str) -> frozenset[str]:
    suite = SUITES.get(file)
    files = [ROOT / file, *(suite.rglob("*.py") if suite else ())]
    return frozenset(chain.from_iterable(map(names_in, files)))


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)
    missing = [f"{file}::{name}" for file, name in named if not (ROOT / file).exists() or name not in names_of(file)]
    assert named
    assert missing == []


def rows() -> list[tuple[str, str]]:
    """Each row's ids and what keeps its promise."""
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [(row[0], row[-1]) for row in cells if row[0] not in ("id", "---")]


def test_every_row_names_a_test_or_says_why_not():
    bare = [ids for ids, kept in rows() if "::test_" not in kept and not kept.startswith(("not here: ", "later: "))]
    assert bare == []


def test_every_promise_has_one_line():
    found: list[str] = []
    for ids, _ in rows():
        for letter, first, last in re.findall(r"([A-Z])(\d+)(?:–[A-Z](\d+))?", ids):
            found += [f"{letter}{number}" for number in range(int(first), int(last or first) + 1)]
    assert sorted(found) == sorted(f"{letter}{n + 1}" for letter, count in PROMISES.items() for n in range(count))
