"""graphflow of this checkout beside that of another one, in pairs: what a change costs.

    .venv/bin/python benchmarks/before_after.py ../before                   the workloads below
    .venv/bin/python benchmarks/before_after.py ../before chain_* loop_*    others, by name or pattern

The other checkout needs a `.venv` of its own with graphflow in it. Prints, for each workload, the median over all pairs of the
ratio now / before: CPU time, then wall time.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Where, Worker
from workloads import WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
DEFAULT = (
    "chain_1000", "loop_1000", "route_1000", "fanout_1000", "nested_10", "react_100", "agent_100", "stream_10k_custom",
    "stream_10k_model", "loop_1000@memory", "loop_1000@sqlite", "fanout_100@sqlite", "react_100@sqlite", "agent_100@sqlite",
    "swarm_100x20@sqlite", "chat_1000@sqlite", "pause_resume@sqlite",
)  # fmt: skip
IMPORT = ("-c", "import graphflow; graphflow.Graph, graphflow.SqliteCheckpointer")


def python_of(checkout: Path) -> str:
    return str(checkout / ".venv" / "bin" / "python")


def pairs(workload: Workload, homes: tuple[Path, Path], rounds: int) -> Iterator[tuple[float, float]]:
    """(CPU, wall) of now / before, a pair a round; who goes first changes from round to round."""
    with tempfile.TemporaryDirectory(prefix="pairs-") as scratch:
        place = Where(Path(scratch))
        workers = [Worker("graphflow", python_of(home), workload, place, home=home / "benchmarks") for home in homes]
        for worker in workers:
            worker.hear()
        try:
            for number in range(-1, rounds):
                figures = {}
                for which in (0, 1) if number % 2 else (1, 0):
                    figures[which] = workers[which].run()
                    if workers[which].note:
                        sys.exit(f"{workload.name}, {homes[which]}: {workers[which].note}")
                now, before = figures[0], figures[1]
                if number >= 0 and now and before:  # the first pair warms up
                    yield now["cpu"] / before["cpu"], now["wall"] / before["wall"]
        finally:
            for worker in workers:
                worker.close()


def imports(homes: tuple[Path, Path], rounds: int) -> Iterator[tuple[float, float]]:
    """Wall time of the import in fresh interpreters, twice: there is no other figure of it."""
    for number in range(-2, rounds):
        took = {}
        for which in (0, 1) if number % 2 else (1, 0):
            start = time.perf_counter()
            subprocess.run([python_of(homes[which]), *IMPORT], check=True, cwd="/")
            took[which] = time.perf_counter() - start
        if number >= 0:
            yield took[0] / took[1], took[0] / took[1]


def line(name: str, found: list[tuple[float, float]]) -> str:
    cpu, wall = (statistics.median(pair[which] for pair in found) for which in (0, 1))
    return f"{name:24} {cpu:8.3f} {wall:8.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("workloads", nargs="*", default=DEFAULT, help="names or patterns")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of each workload")
    options = parser.parse_args()
    homes = (HERE.parent, options.before.resolve())
    print(f"{'now / before':24} {'cpu':>8} {'wall':>8}")
    print(line("import", list(imports(homes, max(options.rounds, 11)))), flush=True)
    for workload in WORKLOADS:
        if any(fnmatch.fnmatchcase(workload.name, pattern) for pattern in options.workloads):
            print(line(workload.name, list(pairs(workload, homes, options.rounds))), flush=True)


if __name__ == "__main__":
    main()
