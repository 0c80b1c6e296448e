"""Ids are UUIDv7: in order of their making, all different, also in their ends."""

from __future__ import annotations

import time
import uuid

import pytest

from graphflow.runtime.clock_and_ids import Uuid7Ids


def test_ids_are_uuids_of_version_7_in_order_and_differ_in_their_last_digits() -> None:
    ids = Uuid7Ids()
    made = [ids.new_id() for _ in range(10_000)]
    assert made == sorted(made)
    assert len({text[-8:] for text in made}) > 9_990
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in made} == {(7, uuid.RFC_4122)}


def test_a_clock_that_steps_back_and_a_full_millisecond_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000_000_000, 4_000_000_000, *[5_000_000_000] * 5_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    ids = Uuid7Ids()
    made = [ids.new_id() for _ in range(5_000)]
    assert made == sorted(set(made))
