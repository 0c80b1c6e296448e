"""Seeds that a process of its own lives through: `python -m MODULE JOB`, which answers with one line of JSON per seed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.crash.stores import prepare_store
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
Outcome = TypeVar("Outcome", bound=msgspec.Struct)


class Job(msgspec.Struct, kw_only=True):
    """What the process does."""

    store: str
    where: str
    """The address of a database, or nothing."""
    folder: str
    seeds: list[int]


def outcomes_of(
    module: str, outcome: type[Outcome], *, store: str, postgres: PostgresServer, folder: Path, count: int
) -> list[Outcome]:
    """What became of each of the first `count` seeds, over a new store."""
    with postgres.database() as url:
        job = Job(store=store, where=url if store == "postgres" else "", folder=str(folder), seeds=list(range(count)))
        command = [sys.executable, "-m", module, msgspec.json.encode(job).decode()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    outcomes = [msgspec.json.decode(line, type=outcome) for line in done.stdout.splitlines()]
    assert len(outcomes) == count
    return outcomes


def live_through(run: Callable[[Job, int], Any]) -> None:
    """The process: runs the seeds of its job."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    prepare_store(job.store, job.where, job.folder)
    for seed in job.seeds:
        sys.stdout.buffer.write(msgspec.json.encode(run(job, seed)) + b"\n")
        sys.stdout.buffer.flush()
