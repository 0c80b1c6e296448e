"""What users read is plain English: no page, message or help text uses a banned phrase.

The reference pages are generated from the command tree, OpenAPI, settings, error codes and public docstrings, so searching the
pages searches these texts too.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

LIST = ROOT / "docs" / "contributing" / "banned-phrases.txt"
_LINES = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
BANNED = {line.partition(" -> ")[0]: line.partition(" -> ")[2] for line in _LINES}
"""Pattern → what to write instead."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTES_THEM = ROOT / "docs" / "contributing" / "style.md"
"""The page of bad and good."""


def prose(text: str) -> str:
    """The text without code, with as many lines."""
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->", "", text)


def found_in(text: str) -> list[str]:
    return [
        f"line {number}: {m[0]!r}, write: {better}"
        for number, line in enumerate(prose(text).splitlines(), 1)
        for pattern, better in BANNED.items()
        if (m := re.search(pattern, line, re.IGNORECASE))
    ]


@pytest.mark.parametrize(
    "path",
    [p for p in PAGES if p != QUOTES_THEM],
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_no_page_uses_a_banned_phrase(path):
    assert found_in(path.read_text(encoding="utf-8")) == []


def messages_of(path: Path) -> str:
    """The texts of a module that users may see: its strings without docstrings, a line each at their place."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]
    return "\n".join(" ".join(text.split()) for text in texts)


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in (ROOT / "graphflow").rglob("*.py")}), ids=lambda p: p.name
)
def test_no_message_uses_a_banned_phrase(folder):
    found = {path.name: found_in(messages_of(path)) for path in folder.glob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_banned_phrase_is_found_and_code_is_left_out():
    assert found_in("fine\n\nWhat becomes of a call") == [
        "line 3: 'What becomes of', write: " + BANNED["what becomes of"]
    ]
    assert found_in("`the house` and\n```text\nthe house\n```\n") == []


def test_the_style_page_has_its_ten_pairs():
    table = QUOTES_THEM.read_text(encoding="utf-8").partition("## Ten pairs\n")[2].partition("\n## ")[0]
    pairs = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(pairs) >= 10
    assert all(len(pair) == 2 for pair in pairs)
