"""The figures of docs/performance.md: graphflow beside LangGraph, Burr and two yardsticks, interleaved on this machine.

    make bench                                    everything, about a quarter of an hour
    make bench ARGS="--only loop_* --rounds 3"    some workloads
    make bench ARGS="--list"                     what there is

Prints Markdown tables and writes them, with all figures as JSON, to benchmarks/results/. The peers' environments are made
under .bench/ on first use.
"""

from __future__ import annotations

import argparse
import datetime as dt
import fnmatch
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import environments
import footprint
import report
from measure import measure, versions
from workloads import WORKLOADS, Workload

RESULTS = environments.ROOT / "benchmarks" / "results"
EXTRA = {
    "import": "import of the graph API with the SQLite store, in fresh interpreters",
    "model_client": "CPU per chunk of a model's stream (model_client.py)",
    "stores": "the stores by themselves (stores.py)",
}
TITLES = {
    "engine": "The engine, no store", "store": "With SQLite, a checkpoint per step", "growth": "Growth of one thread",
    "stream": "Streaming", "pause": "Pause and resume, SQLite", "cold": "Cold resume in a new process, SQLite",
    "import": "Import", "model_client": "Model client", "stores": "Stores",
}  # fmt: skip


def machine() -> dict[str, Any]:
    """What the figures depend on; no names."""
    model = ""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "cpu": model or platform.machine(),
        "python": platform.python_version(),
        "system": platform.system() + " " + platform.release().partition("-")[0],
        "sqlite": sqlite3.sqlite_version,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def fits(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))


class Run:
    """One call of this program: what it measures, and where the figures go."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.given = dict(item.split("=", 1) for item in options.python)
        self.figures: dict[str, Any] = {"machine": machine(), "versions": {}, "workloads": {}}
        self.text: list[str] = []

    def wants(self, name: str) -> bool:
        return fits(name, self.options.only)

    def systems(self, all_of: Iterable[str]) -> dict[str, str]:
        chosen = [s for s in all_of if fits(s, self.options.system)]
        return {system: environments.python_of(system, self.given) for system in chosen}

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.text.append(text)

    def all(self) -> None:
        chosen = [w for w in WORKLOADS if self.wants(w.name)]
        self.say(self.head(chosen))
        with tempfile.TemporaryDirectory(prefix="graphflow-bench-", dir=self.options.folder) as scratch:
            self.workloads(chosen, Path(scratch))
        if self.wants("import"):
            self.imports()
        for name in ("model_client", "stores"):
            if self.wants(name):
                self.script(name)
        self.keep()

    def head(self, chosen: list[Workload]) -> str:
        names = dict.fromkeys(system.partition(":")[0] for w in chosen for system in w.systems)
        with tempfile.TemporaryDirectory() as scratch:
            for name, python in self.systems(names).items():
                self.figures["versions"] |= versions(name, python, Path(scratch))
        facts = self.figures["machine"]
        packages = ", ".join(f"{name} {version}" for name, version in self.figures["versions"].items())
        return (
            f"{facts['date']}, {facts['cores']} cores ({facts['cpu']}), Python {facts['python']}, SQLite {facts['sqlite']}, "
            f"{facts['system']}, load {facts['load']:.1f}. {packages}.\n"
        )

    def workloads(self, chosen: list[Workload], scratch: Path) -> None:
        for group in dict.fromkeys(w.group for w in chosen):
            results: list[tuple[Workload, Mapping[str, Any]]] = []
            for workload in (w for w in chosen if w.group == group):
                print(f"… {workload.name}", file=sys.stderr, flush=True)
                medians = measure(workload, self.systems(workload.systems), scratch, self.options.rounds)
                results.append((workload, medians))
                self.figures["workloads"][workload.name] = {"steps": workload.steps, "systems": medians}
                for system, figures in medians.items():
                    if "wall" not in figures and figures["note"] != "–":
                        print(f"{workload.name}: {system}: {figures['note']}", file=sys.stderr)
            self.say(f"## {TITLES[group]}\n\n{report.tables(group, results)}")

    def imports(self) -> None:
        figures = footprint.measure(self.systems(footprint.STATEMENTS))
        self.figures["import"] = figures
        self.say(f"## {TITLES['import']}\n\n{report.imports(figures)}")

    def script(self, name: str) -> None:
        """A benchmark with a program of its own: its output goes into the report as it is."""
        path = Path(__file__).with_name(f"{name}.py")
        if not path.is_file():
            return
        command = [sys.executable, str(path)]
        if name == "model_client":
            command += ["--sdk-python", environments.python_of("openai", self.given)]
        environment = {**os.environ, "PYTHONPATH": str(environments.ROOT)}
        out = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        text = out.stdout.strip() or out.stderr.strip()[-2000:]
        self.figures[name] = text.splitlines()
        self.say(f"## {TITLES[name]}\n\n```\n{text}\n```\n")

    def keep(self) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        stem = self.options.name or dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
        (RESULTS / f"{stem}.json").write_text(json.dumps(self.figures, indent=1), encoding="utf-8")
        (RESULTS / f"{stem}.md").write_text("\n".join(self.text), encoding="utf-8")
        print(f"Written: benchmarks/results/{stem}.md and .json", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="workloads: names or patterns with *, by commas")
    parser.add_argument("--system", default="*", help="systems in the same way, e.g. graphflow*,burr")
    parser.add_argument("--rounds", type=int, help="at most so many rounds")
    parser.add_argument(
        "--python", action="append", default=[], metavar="SYSTEM=PATH", help="an interpreter that has it"
    )
    parser.add_argument("--folder", help="where the databases lie: a folder on the disk to measure")
    parser.add_argument("--name", help="of the files in benchmarks/results/")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for workload in WORKLOADS:
            print(f"{workload.group:8s} {workload.name:22s} {workload.about}")
        for name, about in EXTRA.items():
            print(f"{'–':8s} {name:22s} {about}")
        return
    Run(options).all()


if __name__ == "__main__":
    main()
