"""docs/how-to/models.md keeps its word: the providers are those of the table, and every quirk has its test."""

from __future__ import annotations

import re

from graphflow.models.profiles import PROFILES
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
QUIRKS = {"T": 12, "U": 7, "C": 9, "R": 5, "A": 12}
"""Rows of each letter."""


def rows(heading: str) -> list[list[str]]:
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip("` |") for cell in line] for line in lines[2:]]


def test_the_table_of_providers_is_that_of_the_profiles() -> None:
    shown = {row[0]: row for row in rows("Providers")}
    assert shown.keys() == PROFILES.keys()
    for key, profile in PROFILES.items():
        line = " | ".join(shown[key])
        for said in (profile.base_url, profile.model, *profile.aliases, *profile.api_key_env):
            assert said in line, f"{key}: {said}"


def test_every_quirk_has_its_row_and_its_tests() -> None:
    told: set[str] = set()
    for cells in rows("What the client survives"):
        for first, last in re.findall(r"([A-Z]\d+)(?:–([A-Z]\d+))?", cells[0]):
            numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
            told |= {f"{first[0]}{number}" for number in numbers}
    assert told == {f"{letter}{n}" for letter, count in QUIRKS.items() for n in range(1, count + 1)}
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "models").glob("test_quirks_*.py"))
    assert not [quirk for quirk in told if f"def test_{quirk.lower()}_" not in tests]
