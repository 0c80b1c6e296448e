"""No test passes because something is not there: a missing tool fails in CI, and an empty list of cases anywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.needs import need, required

TESTS = Path(__file__).parent
SKIPS = re.compile(r"pytest\.(skip|importorskip|xfail)\(|mark\.(skip|skipif|xfail)\b|unittest\.skip")


def test_what_is_missing_and_nothing_else_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    need("/usr/bin/curl", "curl")
    with pytest.raises(AssertionError, match="needs curl"):
        need(None, "curl")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="needs curl"):
        need(None, "curl")


def test_what_is_required_by_name_fails_wherever_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    named = required("node, bwrap,rg")
    for name in ("bubblewrap", "node, and the packages that `make test-web` installs", "rg"):
        with pytest.raises(AssertionError, match="GRAPHFLOW_REQUIRE names"):
            need(None, name, named=named)
    with pytest.raises(pytest.skip.Exception, match="needs curl"):
        need(None, "curl", named=named)


def test_no_test_skips_in_another_way() -> None:
    files = [path for path in TESTS.rglob("*.py") if path.name not in ("needs.py", "test_needs.py")]
    assert len(files) > 100
    assert [str(path) for path in files if SKIPS.search(path.read_text(encoding="utf-8"))] == []


def test_an_empty_list_of_cases_is_an_error(pytestconfig: pytest.Config) -> None:
    """Cases come from files and registries too; by default pytest skips a test that has none."""
    assert pytestconfig.getini("empty_parameter_set_mark") == "fail_at_collect"
