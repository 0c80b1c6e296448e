"""The public API is typed: what users write is checked, and what is wrong is found before it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
USES = ("tests/typing/right_uses.py", "tests/typing/wrong_uses.py")
EXPECTED = re.compile(r"# expect: ([a-z-]+)$")
CHECKED = re.compile(r"^Found \d+ errors in \d+ files? \(checked (?P<files>\d+) source files\)$", re.MULTILINE)
FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")


@pytest.fixture(scope="module")
def found() -> dict[str, dict[int, str]]:
    """File → line → code of mypy's errors, for examples and uses in one run (its cache is that of `make lint`)."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "examples", *USES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    # The summary is mypy's own last line: without it nothing was checked, and "no errors" would say nothing.
    assert (summary := CHECKED.search(done.stdout)) is not None, done.stdout[-500:] + done.stderr[-500:]
    assert int(summary["files"]) >= len(USES) + len(list((ROOT / "examples").glob("*.py")))
    out: dict[str, dict[int, str]] = {}
    for line in done.stdout.splitlines():
        if match := FOUND.match(line):
            out.setdefault(match["file"], {})[int(match["line"])] = match["code"]
    return out


def test_every_example_is_strictly_typed(found: dict[str, dict[int, str]]) -> None:
    assert {file: errors for file, errors in found.items() if file.startswith("examples")} == {}


def test_right_uses_are_accepted(found: dict[str, dict[int, str]]) -> None:
    assert found.get("tests/typing/right_uses.py", {}) == {}


def test_each_wrong_use_is_refused_where_it_stands_and_nothing_else(found: dict[str, dict[int, str]]) -> None:
    lines = (HERE / "wrong_uses.py").read_text(encoding="utf-8").splitlines()
    expected = {number: match[1] for number, line in enumerate(lines, 1) if (match := EXPECTED.search(line))}
    assert found.get("tests/typing/wrong_uses.py", {}) == expected
