"""Glob patterns: what they fit, and that no pattern takes long."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.tools.search.patterns import (
    MAX_ALTERNATIVES,
    NoPattern,
    compiled_glob,
    compiled_name,
    expanded,
    name_of_glob,
)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "x/a.py", False), ("**/*.py", "a.py", True), ("a/**/b", "a/b", True), ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/xb", False), ("a/**", "a", False), ("a/**", "a/b/c", True), ("*a*b*", "xaybz", True),
        ("*a*b", "xbya", False), ("[]]x", "]x", True), ("[!]]x", "ax", True), ("a{b,c{d,e}}f", "acef", True),
        ("a{b}f", "a{b}f", True), ("?", "/", False), ("[a/]", "/", False), ("*a", "x\na", True), ("[[:alpha:]]", "q", True),
        ("[a-c-]", "-", True), ("**/a/**/b/**", "x/a/q/b/z", True), ("**/**/a", "a", True), ("a*a", "a", False),
        ("\\*", "*", True), ("\\*", "a", False), ("[\\]]", "]", True), ("[z-a]", "b", False), ("[!z-a]", "b", True),
        ("a**b", "axb", True), ("a**b", "a/b", False), ("[é-ü]", "ö", True), ("a,b", "a,b", True), ("{a,}b", "b", True),
    ],
)  # fmt: skip
def test_a_pattern_fits_what_a_shell_says(pattern: str, path: str, fits: bool):
    assert bool(compiled_glob(pattern).fullmatch(path)) == fits


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=12))
def test_stars_fit_what_the_standard_library_says(pattern: str, name: str):
    assert bool(compiled_name(pattern).fullmatch(name)) == bool(re.fullmatch(fnmatch.translate(pattern), name))


@given(
    st.lists(st.sampled_from(["a", "b", "**", "*", "a*"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=7),
)
def test_folders_fit_what_trying_every_way_says(pattern: list[str], path: list[str]):
    assert bool(compiled_glob("/".join(pattern)).fullmatch("/".join(path))) == _fits(pattern, path)


def _fits(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    first, *rest = pattern
    if first == "**":
        if not rest:
            return bool(path)
        return any(_fits(rest, path[at:]) for at in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], first) and _fits(rest, path[1:])


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("*a" * 100 + "b", "a" * 250 + "c"), ("**/a/" * 100 + "b", "a/" * 2_000 + "c"),
     ("**/" + "*a" * 100 + "/**/x", ("a" * 250 + "/") * 15), ("{a,b}" * 9 + "*a*a*a*a*a*a*b", "a" * 255)],
)  # fmt: skip
def test_a_pattern_of_many_stars_ends(pattern: str, path: str):
    """A matcher that tries every way would take longer than the suite may."""
    assert compiled_glob(pattern).fullmatch(path) is None


def test_braces_stand_for_a_bounded_number_of_patterns():
    assert expanded("{a,b}{c,d{e,f}}") == ["ac", "ade", "adf", "bc", "bde", "bdf"]
    assert len(expanded("{a,b}" * 9)) == 512
    assert expanded("{" * 900) == ["{" * 900]
    with pytest.raises(NoPattern, match=f"{MAX_ALTERNATIVES:,}"):
        expanded("{a,b}" * 10)
    with pytest.raises(NoPattern, match="1,001 characters"):
        expanded("a" * 1_001)


@pytest.mark.parametrize("pattern", ["[", "[a", "[!", "a\\", "[a\\", "[[:none:]]", "[[:alpha:]"])
def test_what_does_not_end_is_no_pattern(pattern: str):
    with pytest.raises(NoPattern):
        compiled_glob(pattern)


@pytest.mark.parametrize(
    "pattern", ["**/*.py", "**/a", "**/[ab]*", "**/**", "**/", "*.py", "a/**/b", "**/{a,b}", "**/a/b"]
)
def test_a_pattern_of_names_alone_fits_the_same_files(pattern: str):
    name = name_of_glob(pattern)
    for path in ("a", "b.py", "x/a", "x/y/b.py", "a/b", "a/x/b"):
        fits = bool(compiled_glob(pattern).fullmatch(path))
        assert name is None or fits == bool(name.fullmatch(path.rpartition("/")[2])), path
    assert (name is not None) == (pattern in ("**/*.py", "**/a", "**/[ab]*", "**/"))
