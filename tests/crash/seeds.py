"""Seeds that a process of its own lives through: `python -m MODULE JOB`, which answers with one line of JSON per seed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.crash.stores import prepare_store
from tests.forked import python
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
        process = python("-m", module, msgspec.json.encode(job).decode(), cwd=ROOT, pipes=("stdout", "stderr"))
        out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    outcomes = [msgspec.json.decode(line, type=outcome) for line in out.splitlines()]
    assert len(outcomes) == count
    return outcomes


def live_through(run: Callable[[Job, int], Any]) -> None:
    """The process: runs the seeds of its job."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    prepare_store(job.store, job.where, job.folder)
    for seed in job.seeds:
        sys.stdout.buffer.write(msgspec.json.encode(run(job, seed)) + b"\n")
        sys.stdout.buffer.flush()
