"""Writes the tables of docs/internals/performance.md from a results file: all that stands between its markers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import report


def head(figures: Mapping[str, Any]) -> str:
    """What the figures depend on."""
    facts = figures["machine"]
    loads = [entry["load"] for entry in figures["workloads"].values() if entry.get("load") is not None]
    load = f"{min(loads):.1f} to {max(loads):.1f}" if loads else "unknown"
    packages = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    rows = [
        ["date", facts["date"]],
        ["machine", f"{facts['cores']} cores ({facts['cpu']}), {facts['memory_gib']:.0f} GiB"],
        ["software", f"Python {facts['python']}, SQLite {facts['sqlite']}, {facts['postgres']}, {facts['system']}; default asyncio loop"],
        ["graphflow", f"commit {facts['commit']}"],
        ["load average before each workload", load],
        ["versions", packages],
    ]  # fmt: skip
    return report.table(["", ""], rows, 2)


def summary(figures: Mapping[str, Any]) -> str:
    """How many goals are met, and which are not."""
    verdicts = report.verdicts(figures["workloads"])
    met = sum(verdict.met is True for verdict in verdicts)
    missed = [verdict for verdict in verdicts if verdict.met is False]
    unknown = sum(verdict.ratio is None for verdict in verdicts)
    names = ", ".join(dict.fromkeys(verdict.goal.row for verdict in missed)) or "none"
    text = f"{met} of {met + len(missed)} goals are met; missed: {names}."
    return text + (f" Not measured: {unknown}.\n" if unknown else "\n")


def written(text: str, figures: Mapping[str, Any]) -> str:
    """The page with its tables made anew.

    Raises:
        ValueError: a pair of markers is missing.
    """
    parts = {
        "head": head(figures), "summary": summary(figures), "goals": report.goal_tables(figures["workloads"]),
        "tables": report.everything(figures["workloads"]),
    }  # fmt: skip
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"the page has no <!-- bench:{name} --> … <!-- /bench:{name} -->")
        text = pattern.sub(lambda found, part=part: f"{found[1]}\n{part}\n{found[2]}", text)
    return text


def write(page: Path, figures: Mapping[str, Any]) -> None:
    page.write_text(written(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
