"""`kill -9` at every boundary of persistence: nothing acknowledged is lost or done again, nothing is written twice.

Real processes are killed, hundreds of times a run and thousands of times in `make test-long`, at a boundary or at any
moment, over real stores and under both durabilities. Each seed is a graph, the habits of its people, and where its
processes die; a seed that fails is printed with its boundaries, and its folder stays.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.campaign import size
from tests.crash.sabotage import SABOTAGES
from tests.crash.stores import STORES, Place, places_of
from tests.crash.zygote import Job, Outcome
from tests.forked import ForkedProcess, python
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
SEEDS = size(10, long=6_000)
"""How many each store takes."""
KILLS = SEEDS * 5 // 2
"""Processes that must have died by then; if fewer have, more seeds follow."""
ZYGOTES = 2
FEW, MORE = 6, 30
"""So many seeds follow, so many times, while too few processes have died or nobody at one of the boundaries."""
TELLING = (1, 2, 10, 11)
"""Seeds that are likely to notice a broken promise; the others follow."""
BOUNDARIES = {
    f"{name} {side}"
    for name in ("prepare", "write", "durable", "flush", "send", "announce", "act", "talk", "take", "load", "thread", "put_document")
    for side in "<>"
} | {"talk -"}  # fmt: skip
"""Where somebody must have died, whatever the store; a store adds its own (`Place.boundaries`)."""

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def places(postgres: PostgresServer) -> Iterator[dict[str, Place]]:
    """Where each kind of store is, its server running."""
    with postgres.database() as url:
        yield places_of(url)


@pytest.mark.parametrize("kind", STORES)
def test_a_process_that_is_killed_anywhere_loses_nothing_acknowledged_and_writes_nothing_twice(
    kind: str, places: dict[str, Place], tmp_path: Path
) -> None:
    place = places[kind]
    due = BOUNDARIES | place.boundaries
    following = itertools.count(1)
    outcomes: list[Outcome] = []
    died: Counter[str] = Counter()
    seeds, aims = SEEDS, set[str]()
    for number in range(1 + MORE):
        outcomes += killed(
            kind, place, tmp_path / str(number), list(itertools.islice(following, seeds)), aims=sorted(aims)
        )
        broken = [f"seed {o.seed}, killed at {o.kills}: {o.broken}" for o in outcomes if o.broken]
        assert not broken, "\n\n".join(broken[:10])
        died = Counter(where.rpartition(" ")[0] for o in outcomes for where in o.kills)
        # How far a process is when its moment comes, its machine decides: who got past one gives way to further seeds.
        seeds, aims = FEW, due - set(died)
        if died.total() >= KILLS and not aims:
            break
    print(f"{kind}: {len(outcomes)} seeds, {died.total()} kills, {sum(o.lives for o in outcomes)} lives; {dict(died)}")  # noqa: T201
    assert died.total() >= KILLS
    assert not aims, "nobody ever comes there"


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_promise_that_is_broken_on_purpose_is_noticed(
    sabotage: str, places: dict[str, Place], tmp_path: Path
) -> None:
    found = tmp_path / "found"
    seeds = [*TELLING, *(seed for seed in range(1, 400) if seed not in TELLING)]
    outcomes = killed("sqlite", places["sqlite"], tmp_path, seeds, sabotage=sabotage, until=found)
    assert any(o.broken for o in outcomes)


def killed(
    kind: str,
    place: Place,
    folder: Path,
    seeds: list[int],
    *,
    aims: Sequence[str] = (),
    sabotage: str = "",
    until: Path | str = "",
) -> list[Outcome]:
    """What became of each seed, by processes that fork the ones to be killed; `Job` tells of the options."""
    running = []
    try:
        for number in range(ZYGOTES):
            own = folder / f"zygote{number}"
            own.mkdir(parents=True)
            job = Job(
                store=kind, where=place.where, folder=str(own), seeds=seeds[number::ZYGOTES], aims=list(aims),
                sabotage=sabotage, until=str(until),
            )  # fmt: skip
            text = msgspec.json.encode(job).decode()
            running.append(python("-m", "tests.crash.zygote", text, cwd=ROOT, pipes=("stdout", "stderr"), session=True))
        with ThreadPoolExecutor(ZYGOTES) as readers:
            return [outcome for told in readers.map(outcomes_of, running) for outcome in told]
    finally:
        for process in running:
            if process.returncode is None:  # whoever waits for them was interrupted, or one has failed
                os.killpg(process.pid, signal.SIGKILL)  # with the process that it has forked
                process.wait()


def outcomes_of(process: ForkedProcess) -> list[Outcome]:
    """What a zygote has to tell, once it has ended."""
    out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    return [msgspec.json.decode(line, type=Outcome) for line in out.splitlines()]
