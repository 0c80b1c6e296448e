"""Interleaved rounds: one worker process per system, one run of each in turn, in an order that rotates.

A shared machine drifts; interleaving lets the drift hit every system alike, and medians leave outliers out.
"""

from __future__ import annotations

import json
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workloads import Workload

HERE = Path(__file__).resolve().parent
ANSWER_S = 600.0
BUDGET_S = 8.0
"""A system that has used so much time on one workload stops once it has the least number of rounds."""

Figures = dict[str, Any]


class Databases(Protocol):
    """Where the rows with PostgreSQL get their databases from."""

    psql: str

    def take(self) -> str:
        """The URL of a new, empty database."""


@dataclass(frozen=True)
class Where:
    """Where workers keep what they store."""

    scratch: Path
    databases: Databases | None = None

    def url(self, workload: Workload) -> str:
        return self.databases.take() if self.databases and workload.store == "postgres" else ""


class Worker:
    """A system's process for one workload; `note` says why it gives no figures."""

    def __init__(
        self,
        system: str,
        python: str,
        workload: Workload,
        place: Where,
        phase: str = "",
        before: Worker | None = None,
        home: Path = HERE,
    ):
        name, _, variant = system.partition(":")
        self.system, self.note = system, ""
        self.rounds: list[Figures] = []
        self.spent = 0.0
        self.folder = before.folder if before else Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place.scratch))
        self.url = before.url if before else place.url(workload)
        command = [
            python, str(home / "worker.py"), "--system", name, "--variant", variant, "--case", workload.case, "--params",
            json.dumps(workload.params), "--folder", str(self.folder), "--phase", phase, "--repeat", str(workload.repeat),
            "--store", workload.store, "--url", self.url, "--psql", place.databases.psql if place.databases else "",
        ]  # fmt: skip
        self._stderr = (self.folder / "stderr.log").open("a+", encoding="utf-8")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )

    def hear(self) -> Figures:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
        line = self._process.stdout.readline() if ready else ""
        words: Figures = json.loads(line) if line else {"error": "no answer" if not ready else "the worker ended"}
        if words.get("unsupported"):
            self.note = "–"
        elif "error" in words:
            self.note = words["error"]
        return words

    def run(self) -> Figures | None:
        start = time.perf_counter()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.note = "the worker ended"
            return None
        figures = self.hear()
        self.spent += time.perf_counter() - start
        return None if self.note else figures

    def close(self, *, keep: bool = False) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._stderr.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def measure(
    workload: Workload, pythons: Mapping[str, str], place: Where, most_rounds: int | None
) -> dict[str, Figures]:
    """Medians by system of one workload; a system without figures has a `note`."""
    rounds = min(workload.rounds, most_rounds or workload.rounds)
    if workload.group == "cold":
        return _cold(workload, pythons, place, rounds)
    workers = [Worker(system, python, workload, place) for system, python in pythons.items()]
    for worker in workers:
        worker.hear()
    live = [worker for worker in workers if not worker.note]
    for number in range(workload.warmups + rounds):
        turn = number % len(live) if live else 0
        for worker in live[turn:] + live[:turn]:
            if worker.note or _enough(worker, workload):
                continue
            figures = worker.run()
            if figures is not None and number >= workload.warmups:
                worker.rounds.append(figures)
    for worker in workers:
        worker.close()
    return {worker.system: medians(worker.rounds, worker.note) for worker in workers}


def _enough(worker: Worker, workload: Workload) -> bool:
    """Whether a slow system has run often enough: the least number of rounds, or once where even that is too long."""
    rounds = len(worker.rounds)
    return (rounds >= workload.least and worker.spent > BUDGET_S) or (rounds >= 1 and worker.spent > 3 * BUDGET_S)


def _cold(workload: Workload, pythons: Mapping[str, str], place: Where, rounds: int) -> dict[str, Figures]:
    """Pause in one process, answer in the next; the second is timed from its start to its result."""
    kept: dict[str, list[Figures]] = {system: [] for system in pythons}
    notes = dict.fromkeys(pythons, "")
    for _ in range(rounds):
        for system, python in pythons.items():
            if notes[system]:
                continue
            first = Worker(system, python, workload, place, "pause")
            first.hear()
            if not first.note:
                first.run()
            first.close(keep=True)
            if not first.note:
                start = time.perf_counter()
                second = Worker(system, python, workload, place, "resume", first)
                second.hear()
                figures = None if second.note else second.run()
                wall = time.perf_counter() - start
                second.close(keep=True)
                if figures is not None:
                    kept[system].append({**figures, "wall": wall})
                notes[system] = second.note
            else:
                notes[system] = first.note
            shutil.rmtree(first.folder, ignore_errors=True)
    return {system: medians(kept[system], notes[system]) for system in pythons}


def medians(rounds: list[Figures], note: str) -> Figures:
    if not rounds:
        return {"note": note or "no figures"}
    out: Figures = {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}
    return {
        **out,
        "rounds": len(rounds),
        "grown_most_mib": max(r.get("grown_mib", 0.0) for r in rounds),
        "wall_min": min(r["wall"] for r in rounds),
        "wall_max": max(r["wall"] for r in rounds),
        "cpu_min": min(r["cpu"] for r in rounds),
        "cpu_max": max(r["cpu"] for r in rounds),
    }


def versions(system: str, python: str, scratch: Path) -> dict[str, str]:
    """The distributions that a system's figures come from."""
    worker = Worker(system, python, Workload("versions", "versions", "", "", ()), Where(scratch))
    words = worker.hear()
    worker.close()
    if worker.note:
        print(f"{system}: {worker.note}", file=sys.stderr)
    return dict(words.get("versions", {}))
