"""docs/security.md keeps its word: its tests exist, every requirement has its row, and what is not held says why."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_conformance_page import names_of

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ASVS = {
    "1.1": 2, "1.2": 10, "1.3": 12, "1.4": 3, "1.5": 3, "2.1": 3, "2.2": 3, "2.3": 5, "2.4": 2, "4.1": 5, "4.2": 5, "4.3": 2, "4.4": 4,
    "5.1": 1, "5.2": 6, "5.3": 3, "5.4": 3, "8.1": 4, "8.2": 4, "8.3": 3, "8.4": 2, "13.1": 4, "13.2": 6, "13.3": 4, "13.4": 7,
    "14.1": 2, "14.2": 8, "14.3": 3, "15.1": 5, "15.2": 5, "15.3": 7, "15.4": 4, "16.1": 1, "16.2": 5, "16.3": 4, "16.4": 3, "16.5": 4,
}  # fmt: skip
"""Section of ASVS 5.0.0 → how many requirements it has."""
VERDICTS = {"held", "partly", "not held", "not here"}
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
TEST_OR_PAGE = re.compile(r"`tests/[\w/]+\.py::test_\w+`|\]\([^)]+\)")


def rows(kind: str) -> list[list[str]]:
    """The cells of each row whose first cell is a point of this kind."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if re.fullmatch(kind, cells[0])]


POINTS = [*rows(r"\d+\.\d+\.\d+"), *rows(r"LLM\d\d")]


def test_every_test_that_the_page_names_exists():
    named = NAMED.findall(PAGE)
    missing = [f"{file}::{name}" for file, name in named if not (ROOT / file).exists() or name not in names_of(file)]
    assert named
    assert missing == []


def test_every_requirement_has_one_row_in_order():
    wanted = [f"{section}.{number + 1}" for section, count in ASVS.items() for number in range(count)]
    assert [row[0] for row in rows(r"\d+\.\d+\.\d+")] == wanted
    assert [row[0] for row in rows(r"LLM\d\d")] == [f"LLM{number:02}" for number in range(1, 11)]


@pytest.mark.parametrize("row", POINTS, ids=lambda row: row[0])
def test_a_point_names_its_test_or_the_reason(row: list[str]):
    assert len(row) == 4
    _, name, verdict, why = row
    assert name
    assert verdict in VERDICTS
    prose = NAMED.sub("", why).strip(" ,.")
    if verdict == "held":
        assert TEST_OR_PAGE.search(why) or prose, "what is held names a test or a page"
    if verdict in ("partly", "not held"):
        assert len(prose) > 10, "what is not held says why"
    if verdict == "not here":
        assert NAMED.search(why) or prose, "what does not apply says why"


def test_what_is_held_without_a_test_is_documentation():
    """A promise about behavior has a test; only a requirement that asks for a page may be kept by a page."""
    bare = [
        row[0] for row in POINTS if row[2] == "held" and not NAMED.search(row[3]) and not row[1].endswith("documented")
    ]
    assert bare == []


def test_every_adversary_has_a_test():
    table = PAGE.partition("## Adversaries")[2].partition("## What is not promised")[0]
    lines = [line for line in table.splitlines() if line.startswith("| a ")]
    assert len(lines) == 9
    assert [line for line in lines if not NAMED.search(line)] == []
