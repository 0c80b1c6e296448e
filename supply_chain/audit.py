"""`make audit`: known vulnerabilities of what is installed beside graphflow, by pip-audit.

A package that nobody could be asked about is not a good one: the outcome names it, and the exit code is not 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

VULNERABLE, NO_DATA = 1, 2
SERVICES = ("pypi", "osv")
"""Who is asked, the next one where one can't be reached. See https://github.com/pypa/pip-audit."""
OURS = "graphflow"


class Answer(NamedTuple):
    """What pip-audit wrote."""

    stdout: str
    stderr: str


Ask = Callable[[str], Answer]
"""Asks one service."""


def ask_about(folder: Path) -> Ask:
    """Asks about the packages that are installed in this folder."""

    def ask(service: str) -> Answer:
        words = [
            "--path",
            str(folder),
            "--vulnerability-service",
            service,
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ]
        argv = [sys.executable, "-m", "pip_audit", *words, "--timeout", "15"]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
        return Answer(ended.stdout, ended.stderr)

    return ask


def audit(ask: Ask, services: Sequence[str] = SERVICES) -> tuple[int, list[str]]:
    """The exit code and the lines to show."""
    failed = []
    for service in services:
        answer = ask(service)
        found = _packages(answer.stdout)
        if found is not None and any("skip_reason" not in each for each in found):
            return _outcome(service, found)
        if found is not None:
            failed.append(f"{service}: it has no data on any of the {len(found)} packages")
            continue
        last = (answer.stderr.strip().splitlines() or ["no answer"])[-1]
        failed.append(f"{service}: {last[:200]}")
    return NO_DATA, ["No vulnerability data can be reached from here; NOTHING was audited.", *failed]


def _packages(text: str) -> list[dict[str, Any]] | None:
    try:
        found: list[dict[str, Any]] = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None
    return [each for each in found if each["name"] != OURS]


def _outcome(service: str, packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    skipped = [each for each in packages if "skip_reason" in each]
    asked = [each for each in packages if "skip_reason" not in each]
    vulnerable = [each for each in asked if each["vulns"]]
    lines = [
        f"{service}: {len(asked)} of {len(packages)} packages audited, {len(vulnerable)} with known vulnerabilities."
    ]
    for each in vulnerable:
        for found in each["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version"
            lines.append(f"  {each['name']} {each['version']}: {found['id']}, fixed in {fixed}")
    if skipped:
        names = ", ".join(each["name"] for each in skipped)
        lines.append(f"  NOT audited, since {service} has no data on them: {names}")
    return (VULNERABLE if vulnerable else NO_DATA if skipped else 0), lines


def main(folder: str) -> None:
    code, lines = audit(ask_about(Path(folder)))
    sys.stdout.write("\n".join([*lines, ""]))
    raise SystemExit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
