"""A library without a server, over real stores: what dead processes leave is done once, in its order and not before its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import size
from tests.crash.recoveries import Outcome
from tests.crash.seeds import outcomes_of
from tests.crash.stores import STORES
from tests.postgres_server import PostgresServer

SEEDS = size(5, long=1_000)
"""How many each store takes."""

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("kind", STORES)
def test_what_dead_processes_leave_is_done_once_in_its_order_and_not_before_its_time(
    kind: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    module = "tests.crash.recoveries"
    outcomes = outcomes_of(module, Outcome, store=kind, postgres=postgres, folder=tmp_path, count=SEEDS)
    broken = [f"seed {outcome.seed}: {'; '.join(outcome.broken)}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n\n".join(broken[:10])
    totals = {
        name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("kills", "runs", "queued", "waited")
    }
    least = {"kills": SEEDS, "runs": 2 * SEEDS, "queued": SEEDS // 2, "waited": SEEDS}
    assert all(totals[name] >= least[name] for name in least), f"it tested next to nothing: {totals}"
