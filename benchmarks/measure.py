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
from pathlib import Path
from typing import Any

from workloads import Workload

HERE = Path(__file__).resolve().parent
ANSWER_S = 600.0
BUDGET_S = 20.0
"""A system that has used so much time on one workload stops after two rounds."""

Figures = dict[str, Any]


class Worker:
    """A system's process for one workload; `note` says why it gives no figures."""

    def __init__(
        self, system: str, python: str, workload: Workload, scratch: Path, phase: str = "", folder: Path | None = None
    ):
        name, _, variant = system.partition(":")
        self.system, self.note = system, ""
        self.rounds: list[Figures] = []
        self.spent = 0.0
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch))
        command = [
            python, str(HERE / "worker.py"), "--system", name, "--variant", variant, "--case", workload.case, "--params",
            json.dumps(workload.params), "--folder", str(self.folder), "--phase", phase, "--repeat", str(workload.repeat),
        ]  # fmt: skip
        self._stderr = (self.folder / "stderr.log").open("a+", encoding="utf-8")
        self._process = subprocess.Popen(
            command + ["--store"] * workload.store,
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
    workload: Workload, pythons: Mapping[str, str], scratch: Path, most_rounds: int | None
) -> dict[str, Figures]:
    """Medians by system of one workload; a system without figures has a `note`."""
    rounds = min(workload.rounds, most_rounds or workload.rounds)
    if workload.group == "cold":
        return _cold(workload, pythons, scratch, rounds)
    workers = [Worker(system, python, workload, scratch) for system, python in pythons.items()]
    for worker in workers:
        worker.hear()
    live = [worker for worker in workers if not worker.note]
    for number in range(workload.warmups + rounds):
        turn = number % len(live) if live else 0
        for worker in live[turn:] + live[:turn]:
            if worker.note or (len(worker.rounds) >= 2 and worker.spent > BUDGET_S):
                continue
            figures = worker.run()
            if figures is not None and number >= workload.warmups:
                worker.rounds.append(figures)
    for worker in workers:
        worker.close()
    return {worker.system: medians(worker.rounds, worker.note) for worker in workers}


def _cold(workload: Workload, pythons: Mapping[str, str], scratch: Path, rounds: int) -> dict[str, Figures]:
    """Pause in one process, answer in the next; the second is timed from its start to its result."""
    kept: dict[str, list[Figures]] = {system: [] for system in pythons}
    notes = dict.fromkeys(pythons, "")
    for _ in range(rounds):
        for system, python in pythons.items():
            if notes[system]:
                continue
            first = Worker(system, python, workload, scratch, "pause")
            first.hear()
            if not first.note:
                first.run()
            first.close(keep=True)
            if not first.note:
                start = time.perf_counter()
                second = Worker(system, python, workload, scratch, "resume", first.folder)
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
        "wall_min": min(r["wall"] for r in rounds),
        "cpu_min": min(r["cpu"] for r in rounds),
    }


def versions(system: str, python: str, scratch: Path) -> dict[str, str]:
    """The distributions that a system's figures come from."""
    worker = Worker(system, python, Workload("versions", "versions", "", "", ()), scratch)
    words = worker.hear()
    worker.close()
    if worker.note:
        print(f"{system}: {worker.note}", file=sys.stderr)
    return dict(words.get("versions", {}))
