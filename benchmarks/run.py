"""The figures of docs/internals/performance.md: graphflow beside its peers and two yardsticks, interleaved on this machine.

    make bench                                                   everything, about twenty minutes
    make bench ARGS="--group engine,sqlite"                      some groups
    make bench ARGS="--only loop_* --system graphflow*,burr"     some workloads, some systems
    make bench ARGS="--name published --docs"                    … into results/published.json and docs/internals/performance.md
    make bench ARGS="--list"                                     what there is

Prints Markdown tables and writes all figures as JSON to benchmarks/results/NAME.json; figures of an earlier run of that name
stay where this one has none. The peers' environments are made under .bench/ on first use.
"""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import fnmatch
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environments
import footprint
import pages
import report
from measure import Where, measure, versions
from workloads import WORKLOADS, Workload, tiny

sys.path.insert(0, str(environments.ROOT))

RESULTS = environments.ROOT / "benchmarks" / "results"
PAGE = environments.ROOT / "docs" / "internals" / "performance.md"
EXTRA = (
    Workload("import", "", "import of the graph API with the SQLite store, in fresh interpreters", "import", tuple(footprint.STATEMENTS), rounds=11),
    Workload("install", "", "what pip installs for it", "install", ("graphflow", *footprint.REQUIRED)),
    Workload("model_client", "", "a model's stream over HTTP, CPU of the client per chunk (model_client.py)", "model_client", ("graphflow", "openai_agents")),
    Workload("crowd", "", "5,000 threads of one SQLite store, each streams 100 tokens to a reader of its own (crowd.py)", "crowd", ("graphflow",)),
)  # fmt: skip
"""What is measured in its own way."""


def machine() -> dict[str, Any]:
    """What the figures depend on; no names."""
    model, memory = "", 0
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, StopIteration, ValueError):
        pass
    git = ["git", "-C", str(environments.ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "cpu": model or platform.machine(),
        "memory_gib": memory / 2**30,
        "python": platform.python_version(),
        "system": platform.system() + " " + platform.release().partition("-")[0],
        "sqlite": sqlite3.sqlite_version,
        "postgres": "no PostgreSQL",
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown",
    }


def fits(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))


def script(name: str, *options: str) -> Any:
    """What a program of its own prints: JSON."""
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *options]
    environment = {**os.environ, "PYTHONPATH": str(environments.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{name}.py failed: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def compile_sources() -> None:
    """What pip does for the peers when it installs them: nobody compiles modules while he is measured."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for folder in (footprint.PACKAGE, Path(__file__).parent):
        compileall.compile_dir(folder, quiet=2)


class Databases:
    """A PostgreSQL of this run, made when the first worker asks: default configuration, every commit durable."""

    def __init__(self, parent: str | None, settings: Mapping[str, str] | None = None) -> None:
        from tests.postgres_server import PostgresServer

        self._server = PostgresServer(settings or {}, parent=parent)
        self._server.start()
        self.psql = self._server.program("psql")
        self.version = "PostgreSQL " + self._server.run("SHOW server_version")
        self._taken = 0

    def take(self) -> str:
        self._taken += 1
        self._server.run(f"CREATE DATABASE bench{self._taken}")
        return self._server.url(f"bench{self._taken}")

    def close(self) -> None:
        self._server.close()


class Run:
    """One call of this program: what it measures, and where the figures go."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.given = dict(item.split("=", 1) for item in options.python)
        self.name = options.name or dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
        self.file = RESULTS / f"{self.name}.json"
        self.figures: dict[str, Any] = {"versions": {}, "workloads": {}}
        if self.file.is_file():
            self.figures = json.loads(self.file.read_text(encoding="utf-8"))
        self.figures["machine"] = {
            **machine(),
            **{k: v for k, v in self.figures.get("machine", {}).items() if k == "postgres"},
        }

    def chosen(self) -> list[Workload]:
        every = [*WORKLOADS, *EXTRA]
        some = [w for w in every if fits(w.name, self.options.only) and fits(w.group, self.options.group)]
        return [tiny(workload) for workload in some] if self.options.tiny else some

    def systems(self, all_of: Iterable[str]) -> dict[str, str]:
        chosen = [s for s in all_of if fits(s, self.options.system)]
        return {system: environments.python_of(system, self.given) for system in chosen}

    def all(self) -> None:
        chosen = self.chosen()
        if not chosen:
            raise SystemExit(f"no workload fits --only {self.options.only} --group {self.options.group}; see --list")
        with tempfile.TemporaryDirectory(prefix="graphflow-bench-", dir=self.options.folder) as scratch:
            self.versions(chosen, Path(scratch))
            with self.databases(chosen) as databases:
                for workload in chosen:
                    self.one(workload, Where(Path(scratch), databases))
        results = {workload.name: self.figures["workloads"][workload.name] for workload in chosen}
        print(report.everything(results))

    def versions(self, chosen: list[Workload], scratch: Path) -> None:
        names = dict.fromkeys(system.partition(":")[0] for workload in chosen for system in workload.systems)
        for name, python in self.systems(names).items():
            self.figures["versions"] |= versions(name, python, scratch)

    @contextmanager
    def databases(self, chosen: list[Workload]) -> Iterator[Databases | None]:
        if not any(workload.store == "postgres" for workload in chosen):
            yield None
            return
        databases = Databases(self.options.folder)
        self.figures["machine"]["postgres"] = databases.version
        try:
            yield databases
        finally:
            databases.close()

    def one(self, workload: Workload, place: Where) -> None:
        load, start = os.getloadavg()[0], time.perf_counter()
        try:
            figures = self.measured(workload, place)
        except (OSError, RuntimeError, ValueError) as error:  # the others are still worth having
            figures = {"graphflow": {"note": f"{type(error).__name__}: {error}"}}
        for system, found in figures.items():
            if found.get("note", "–") != "–":
                print(f"{workload.name}: {system}: {found['note']}", file=sys.stderr)
        self.figures["workloads"][workload.name] = {
            "group": workload.group, "about": workload.about, "steps": workload.steps, "params": workload.params,
            "load": load, "systems": figures,
        }  # fmt: skip
        print(f"{workload.name}: {time.perf_counter() - start:.1f} s, load {load:.1f}", file=sys.stderr, flush=True)
        self.keep()

    def measured(self, workload: Workload, place: Where) -> dict[str, dict[str, Any]]:
        systems = self.systems(workload.systems)
        rounds = min(workload.rounds, self.options.rounds or workload.rounds)
        if workload.name == "import":
            return footprint.imports(systems, rounds)
        if workload.name == "install":
            return footprint.installations(systems)
        if workload.name == "model_client":
            return self.model_client(systems, rounds)
        if workload.name == "crowd":
            return self.crowd()
        return measure(workload, systems, place, self.options.rounds)

    def model_client(self, systems: dict[str, str], rounds: int) -> dict[str, dict[str, float]]:
        options = ["--json", "--rounds", str(rounds)]
        if "openai_agents" in systems:
            options += ["--sdk-python", systems["openai_agents"]]
        figures: dict[str, dict[str, float]] = script("model_client", *options, *["--chunks", "50"] * self.options.tiny)
        return figures

    def crowd(self) -> dict[str, dict[str, Any]]:
        said = script("crowd", "--pause", "0.2", *["--threads", "20", "--tokens", "5"] * self.options.tiny)
        figures = {key: value for key, value in said.items() if isinstance(value, int | float)}
        return {"graphflow": {**figures, "behind_at_half": said["fastest_at_half"] - said["slowest_at_half"]}}

    def keep(self) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="workloads: names or patterns with *, by commas")
    parser.add_argument("--group", default="*", help="groups of workloads, in the same way")
    parser.add_argument("--system", default="*", help="systems in the same way, e.g. graphflow*,burr")
    parser.add_argument("--rounds", type=int, help="at most so many rounds")
    parser.add_argument(
        "--python", action="append", default=[], metavar="SYSTEM=PATH", help="an interpreter that has it"
    )
    parser.add_argument("--folder", help="where the databases lie: a folder on the disk to measure")
    parser.add_argument("--name", help="of the file in benchmarks/results/; default: the time")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/internals/performance.md, too")
    parser.add_argument(
        "--tables", action="store_true", help="measure nothing; with --name and --docs: only write the tables"
    )
    parser.add_argument("--tiny", action="store_true", help="everything in small, once: to see that it runs")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for workload in (*WORKLOADS, *EXTRA):
            print(f"{workload.group:12s} {workload.name:26s} {workload.about}")
        return
    run = Run(options)
    if not options.tables:
        compile_sources()
        run.all()
    elif not run.file.is_file():
        raise SystemExit(f"no {run.file}; measure first, or give another --name")
    print(pages.summary(run.figures))
    if options.docs:
        pages.write(PAGE, json.loads(run.file.read_text(encoding="utf-8")))
    print(f"benchmarks/results/{run.file.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
