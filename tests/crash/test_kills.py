"""`kill -9` at every boundary of persistence: nothing acknowledged is lost or done again, nothing is written twice.

Real processes are killed, more than a thousand times a run, at a boundary or at any moment, over real stores and under
both durabilities. Each seed is a graph, the habits of its people, and where its processes die; a seed that fails is
printed with its boundaries, and its folder stays. A longer soak: `CRASH_SEEDS=6000 CRASH_FIRST=1000 pytest tests/crash`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.crash.sabotage import SABOTAGES
from tests.crash.stores import STORES, Place, serve_stores
from tests.crash.zygote import Job, Outcome

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("CRASH_SEEDS", "0"))
FIRST = int(os.environ.get("CRASH_FIRST", "1"))
ZYGOTES = 2
BOUNDARIES = {
    f"{name} {side}"
    for name in ("prepare", "write", "durable", "flush", "send", "announce", "act", "take", "load", "thread", "put_document")
    for side in "<>"
}  # fmt: skip
"""Where somebody must have died, whatever the store; a store adds its own (`Place.boundaries`)."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Place]]:
    """Where each kind of store is, its server running."""
    with serve_stores() as served:
        yield served


@pytest.mark.parametrize("kind", STORES)
def test_a_process_that_is_killed_anywhere_loses_nothing_acknowledged_and_writes_nothing_twice(
    kind: str, places: dict[str, Place], tmp_path: Path
) -> None:
    place = places[kind]
    seeds = SEEDS or place.seeds
    outcomes = list(killed(kind, place, tmp_path, list(range(FIRST, FIRST + seeds))))
    broken = [f"seed {o.seed}, killed at {o.kills}: {o.broken}" for o in outcomes if o.broken]
    assert not broken, "\n\n".join(broken[:10])
    assert len(outcomes) == seeds
    died = Counter(where.rpartition(" ")[0] for o in outcomes for where in o.kills)
    print(f"{kind}: {seeds} seeds, {died.total()} kills, {sum(o.lives for o in outcomes)} lives; {dict(died)}")  # noqa: T201
    assert died.total() >= 2.5 * seeds  # a fast machine is done before some of the late ones
    assert SEEDS or not (BOUNDARIES | place.boundaries) - set(died)


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_promise_that_is_broken_on_purpose_is_noticed(
    sabotage: str, places: dict[str, Place], tmp_path: Path
) -> None:
    seeds = list(range(1, 60))
    outcomes = list(killed("sqlite", places["sqlite"], tmp_path, seeds, sabotage=sabotage, until_broken=True))
    assert any(o.broken for o in outcomes)


def killed(
    kind: str, place: Place, folder: Path, seeds: list[int], *, sabotage: str = "", until_broken: bool = False
) -> Iterator[Outcome]:
    """What became of each seed, by processes that fork the ones to be killed."""
    running = []
    for number in range(ZYGOTES):
        own = folder / f"zygote{number}"
        own.mkdir()
        job = Job(
            store=kind, where=place.where, folder=str(own), seeds=seeds[number::ZYGOTES], sabotage=sabotage,
            until_broken=until_broken,
        )  # fmt: skip
        text = msgspec.json.encode(job).decode()
        command = [sys.executable, "-m", "tests.crash.zygote", text]
        # Own files, not pipes: nobody has to read one while waiting for the other.
        with (own / "out").open("wb") as out, (own / "err").open("wb") as err:
            running.append((own, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, start_new_session=True)))
    while until_broken and all(process.poll() is None for _, process in running):
        time.sleep(0.05)
    for own, process in running:
        if until_broken and process.poll() is None:  # the other one has found something
            os.killpg(process.pid, signal.SIGKILL)  # with the process that it has forked
        code = process.wait() if not until_broken else max(process.wait(), 0)
        yield from (msgspec.json.decode(line, type=Outcome) for line in (own / "out").read_bytes().splitlines())
        assert code == 0, (own / "err").read_text(encoding="utf-8", errors="replace")[-3000:]
