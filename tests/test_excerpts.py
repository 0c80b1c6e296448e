"""Values in error texts are masked first and cut afterwards."""

from __future__ import annotations

import re

import pytest

from graphflow.excerpts import excerpt_of
from tests.docs.blocks import ROOT

SECRETS = [
    "postgresql://user:hunter22secret@host/db",
    "Authorization: Bearer abcdef0123456789",
    "sk-abcdefghijklmnopqrstuvwx",
    "password=hunter22secret",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("room", range(80))
def test_no_cut_shows_the_head_of_a_secret(secret: str, room: int) -> None:
    shown = excerpt_of("x " * ((80 - room) // 2) + secret, 80)
    assert len(shown) <= 80
    assert not re.search(r"hunter|abcdef|sk-a", shown)


def test_a_short_value_is_shown_whole() -> None:
    assert excerpt_of(["a", 1]) == "['a', 1]"


def test_every_value_in_an_error_goes_through_the_masked_excerpt() -> None:
    """`{value!r:.80}` cuts first: the mask that comes later does not recognize half of a secret."""
    cut = re.compile(r"![rs]:\.\d+\}|\[:\d+\]!r\}")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in sorted((ROOT / "graphflow").rglob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if cut.search(line)
    ]
    assert found == []
