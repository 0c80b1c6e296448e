"""The cancel campaign: runs that are ended in every way, at every await, while their code cleans up, asks, or swallows it.

A cancellation is as exact as a crash: nothing acts after it, what acted is on record, the caller sees how the run ended,
and a resume does what is left exactly once. A case is a place in the graph, a manner of the code, the moment, and the way
in which the run is ended; `make test` draws some, `make test-long` takes all.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from graphflow import MemoryCheckpointer
from graphflow.checkpoints.checkpointer import Checkpointer
from graphflow.graph.engine.executor import Executor
from graphflow.graph.engine.node_run import NodeRun
from tests.campaign import size
from tests.crash.call_ending import call_cases, calls_broken_by
from tests.crash.ending import broken_by, cases

CASES, CALLS = size(150, long=1_000_000), size(48, long=1_000_000)
"""How many each store takes, at most: of all, and of those where a node calls a model."""

pytestmark = pytest.mark.campaign


async def test_a_run_that_is_cancelled_anywhere_does_nothing_after_it_and_nothing_twice(
    store: Checkpointer, request: pytest.FixtureRequest
) -> None:
    every = cases()
    drawn = random.Random(f"cancels of {request.node.callspec.params['store']}").sample(every, min(CASES, len(every)))
    broken = []
    for number, case in enumerate(drawn):
        broken += [f"{case}: {why}" for why in await broken_by(case, store, f"t{number}")]
    assert not broken, "\n".join(broken[:20])


async def test_a_call_of_a_model_that_is_cut_off_anywhere_is_counted_once_and_a_recorded_one_is_never_made_again(
    store: Checkpointer, request: pytest.FixtureRequest
) -> None:
    every = call_cases()
    number = min(CALLS, len(every))
    drawn = random.Random(f"calls of {request.node.callspec.params['store']}").sample(every, number)
    broken, seen = [], Counter[str]()
    for index, case in enumerate(drawn):
        wrong, had = await calls_broken_by(case, store, f"c{index}")
        broken += [f"{case}: {why}" for why in wrong]
        seen += had
    assert not broken, "\n".join(broken[:20])
    assert seen["cut_off"] >= number // 8 and seen["again"] >= number // 8, f"it cut next to nothing off: {seen}"


def _refuse_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeRun, "over", False)


def _leave_by_a_cancellation(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Executor) -> None:
        assert self.tasks.loop is not None
        self.tasks.loop.cancel()

    patch.setattr(Executor, "leave", leave)


@pytest.mark.parametrize("sabotage", [_refuse_nothing, _leave_by_a_cancellation], ids=lambda f: f.__name__[1:])
async def test_a_cancellation_that_is_broken_on_purpose_is_noticed(
    sabotage: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(sabotage)
    sabotage(monkeypatch)
    monkeypatch.setattr("tests.crash.ending.PATIENCE_S", 0.1)
    drawn = random.Random("cancels that break").sample(cases(), 60)
    store = MemoryCheckpointer()
    assert any([await broken_by(case, store, f"t{number}") for number, case in enumerate(drawn)])
