"""States of random classes: what the class refuses is refused, what it takes reads back equal, in every store and after a kill.

A seed is a class (dataclass, pydantic model, `TypedDict`, with nested ones, bounds and reducers) and a list of writes and
edits, right and wrong. A seed that fails is printed with what it wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from graphflow import MemoryCheckpointer
from tests.campaign import size
from tests.crash.random_states import States
from tests.crash.seeds import outcomes_of
from tests.crash.state_lives import Life, Outcome
from tests.crash.stores import STORES
from tests.postgres_server import PostgresServer

SEEDS = size(8, long=2_000)
"""How many each store takes."""

pytestmark = pytest.mark.campaign


async def test_what_a_class_takes_is_read_back_and_what_it_refuses_is_refused() -> None:
    broken, taken, refused = [], 0, 0
    for seed in range(SEEDS):
        life = Life(States(seed), MemoryCheckpointer(), "t")
        await life.live()
        broken += [f"seed {seed}: {why}" for why in life.broken]
        taken += sum(not act.refused for act in life.states.acts)
        refused += sum(bool(act.refused) for act in life.states.acts)
    assert not broken, "\n".join(broken[:10])
    assert taken >= 3 * SEEDS and refused >= SEEDS // 2, "it tried next to nothing"


@pytest.mark.parametrize("kind", STORES)
def test_a_process_that_is_killed_between_writes_leaves_a_state_that_its_class_reads(
    kind: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    module = "tests.crash.state_lives"
    outcomes = outcomes_of(module, Outcome, store=kind, postgres=postgres, folder=tmp_path, count=SEEDS)
    broken = [
        f"seed {outcome.seed}, killed in {outcome.killed}: {outcome.broken}" for outcome in outcomes if outcome.broken
    ]
    assert not broken, "\n\n".join(broken[:10])
    assert {"write", "read", "last"} <= {outcome.killed for outcome in outcomes}, "nobody died there"
    assert sum(bool(outcome.killed) for outcome in outcomes) >= SEEDS // 2
