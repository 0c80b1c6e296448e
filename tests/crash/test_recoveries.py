"""A library without a server, over real stores: what dead processes leave is done once, in its order and not before its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.campaign import size
from tests.crash.recoveries import Job, Outcome
from tests.crash.stores import STORES
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
SEEDS = size(8, long=1_000)
"""How many each store takes."""

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("kind", STORES)
def test_what_dead_processes_leave_is_done_once_in_its_order_and_not_before_its_time(
    kind: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    with postgres.database() as url:
        job = Job(store=kind, where=url if kind == "postgres" else "", folder=str(tmp_path), seeds=list(range(SEEDS)))
        command = [sys.executable, "-m", "tests.crash.recoveries", msgspec.json.encode(job).decode()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in done.stdout.splitlines()]
    broken = [f"seed {outcome.seed}: {'; '.join(outcome.broken)}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n\n".join(broken[:10])
    assert len(outcomes) == SEEDS
    totals = {
        name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("kills", "runs", "queued", "waited")
    }
    least = {"kills": SEEDS, "runs": 2 * SEEDS, "queued": SEEDS // 2, "waited": SEEDS}
    assert all(totals[name] >= least[name] for name in least), f"it tested next to nothing: {totals}"
