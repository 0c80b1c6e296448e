"""docs/internals/rules.md has an entry for each rule and section that code and tests refer to."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "internals" / "rules.md").read_text(encoding="utf-8")
ENTRIES = set(re.findall(r"^### (E?[\d.]+): ", PAGE, re.MULTILINE))
ITEMS = set(re.findall(r"^(\d+)\. ", PAGE.partition("### 2.1: ")[2].partition("\n### ")[0], re.MULTILINE))
SOURCES = sorted(path for name in ("graphflow", "tests") for path in (ROOT / name).rglob("*.py"))


def references(text: str) -> set[str]:
    """Each rule (`E8`), section (`3.3`) and rule of section 2.1 (`rule 7`) that a source names."""
    found = set(re.findall(r"\bE\d{1,2}\b", text))
    for inside, bare in re.findall(r"\(([^()]*\bspec \d[^()]*)\)|\bspec (\d[\d.]*\d|\d+)", text):
        for numbers in re.findall(r"\brules? (\d+(?:(?:, | and )\d+)*)", inside):
            found |= {f"rule {number}" for number in re.findall(r"\d+", numbers)}
        rest = re.sub(r"\brules? \d+(?:(?:, | and )\d+)*", "", inside or bare)
        found |= set(re.findall(r"(?<![\w.])\d{1,2}(?:\.\d+)?(?![\w.])", rest))
    return found


def test_every_reference_has_its_entry():
    known = ENTRIES | {f"rule {number}" for number in ITEMS}
    assert len(SOURCES) > 500
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in references(path.read_text(encoding="utf-8")) - known
    }
    assert missing == set()


def test_the_engine_has_its_twenty_four_rules():
    assert {entry for entry in ENTRIES if entry.startswith("E")} == {f"E{number}" for number in range(1, 25)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(E8)", {"E8"}),
        ("(E5, E10)", {"E5", "E10"}),
        ("(spec 3.3)", {"3.3"}),
        ("(spec 3.3, 5.1)", {"3.3", "5.1"}),
        ("(spec 2.1 rules 4 and 8, E9)", {"2.1", "rule 4", "rule 8", "E9"}),
        ("by spec 7 only", {"7"}),
        ("`E501` and `2.1`", set()),
    ],
)
def test_references_are_read(text: str, found: set[str]):
    assert references(text) == found
