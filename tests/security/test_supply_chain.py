"""What graphflow is made of: no dangerous function in it, an audit that never calls silence good news, a list of parts."""

from __future__ import annotations

import ast
import itertools
import json
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from supply_chain.audit import NO_DATA, VULNERABLE, Answer, audit
from tests.docs.blocks import ROOT

DANGEROUS = re.compile(
    r"^\s*(?:import|from) (?:pickle|marshal|shelve|dill|yaml|xml|lxml|jinja2|mako|smtplib|imaplib|ldap\w*|memcache|pymemcache"
    r"|csv|tarfile|zipfile|graphene|ariadne|strawberry|telnetlib|ftplib)\b|(?<![.\w])(?:eval|exec|__import__)\(",
    re.MULTILINE,
)
"""Deserializers that run code, parsers that open entities, interpreters, and protocols of which graphflow speaks none."""


def test_no_dangerous_function_is_used():
    found = {
        str(file.relative_to(ROOT)): DANGEROUS.findall(file.read_text(encoding="utf-8"))
        for file in sorted((ROOT / "graphflow").rglob("*.py"))
    }
    assert {file: uses for file, uses in found.items() if uses} == {}


def test_everything_that_is_imported_is_declared():
    """What comes only because another package needs it can go with that package's next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=; ]", line)[0].lower().replace("_", "-") for line in declared}
    packages = packages_distributions()
    missing = {}
    for file in sorted((ROOT / "graphflow").rglob("*.py")):
        for module in _imported(file) - sys.stdlib_module_names - {"graphflow", "compression"}:
            owners = {owner.lower().replace("_", "-") for owner in packages.get(module, [module])}
            if not owners & names:
                missing[module] = str(file.relative_to(ROOT))
    assert missing == {}


def _imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def answer(*packages: tuple[str, list[str] | None]) -> Answer:
    """What pip-audit writes: each package with the names of its vulnerabilities; None where it had no data."""
    listed = [
        {"name": name, "skip_reason": "not found"}
        if found is None
        else {"name": name, "version": "1.0", "vulns": [{"id": each, "fix_versions": ["1.1"]} for each in found]}
        for name, found in packages
    ]
    return Answer(json.dumps({"dependencies": [*listed, {"name": "graphflow", "skip_reason": "not found"}]}), "")


UNREACHED = Answer("", "Traceback\nConnectionError: no route to host")


def test_an_audit_that_found_nothing_is_good():
    assert audit(lambda _: answer(("a", []), ("b", []))) == (
        0,
        ["pypi: 2 of 2 packages audited, 0 with known vulnerabilities."],
    )


def test_a_vulnerability_is_named_with_what_fixes_it():
    code, lines = audit(lambda _: answer(("a", ["CVE-1"]), ("b", [])))
    assert (code, lines[1:]) == (VULNERABLE, ["  a 1.0: CVE-1, fixed in 1.1"])


@pytest.mark.parametrize("reply", [UNREACHED, answer(("a", None), ("b", None)), Answer("", ""), Answer("[]", "")])
def test_an_audit_without_data_says_that_nothing_was_audited(reply: Answer):
    asked: list[str] = []

    def ask(service: str) -> Answer:
        asked.append(service)
        return reply

    code, lines = audit(ask)
    assert (code, asked) == (NO_DATA, ["pypi", "osv"])
    assert "NOTHING was audited" in lines[0]


def test_a_package_without_data_is_named_and_is_not_good():
    code, lines = audit(lambda _: answer(("a", []), ("b", None)))
    assert code == NO_DATA
    assert lines[1].endswith("no data on them: b")


def test_the_next_service_is_asked_where_one_is_out_of_reach():
    code, lines = audit(lambda service: UNREACHED if service == "pypi" else answer(("a", [])))
    assert (code, lines[0].partition(":")[0]) == (0, "osv")


def test_the_list_of_parts_has_every_extra_and_no_time_in_it():
    """`make sbom` twice gives the same bytes."""
    target = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"install -qq '\.\[([\w,]+)\]'\n.*uninstall", target)
    assert extras is not None
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) == set(declared) - {"test", "docs", "lint"}
    assert "--output-reproducible" in target
