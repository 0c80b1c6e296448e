"""No test fails because a machine is slow: limits for what hangs stand in one place, and are longer than anything takes."""

from __future__ import annotations

import re
from pathlib import Path

import hypothesis

TESTS = Path(__file__).parent
OWN_LIMIT = re.compile(r"asyncio\.timeout\([\d.]|wait_for\(.*, [\d.]+\)|\btimeout=[\d.]")
REASONED = {
    "typing/test_typing.py",  # longer than `PATIENCE_S`: mypy begins without a cache
    "benchmarks/test_benchmarks.py",  # longer: all of them in small
    "server/test_busy_processes.py",  # a lock that is held is tried again, however often
    "checkpoints/test_postgres_losses.py",  # sixty refusals of a second each, all at once or one after the other
}


def test_tests_take_their_limit_from_one_place() -> None:
    files = [path for path in TESTS.rglob("*.py") if path.parent.name != "web" and path != Path(__file__)]
    assert len(files) > 300
    found = {path.relative_to(TESTS).as_posix() for path in files if OWN_LIMIT.search(path.read_text(encoding="utf-8"))}
    assert hypothesis.settings().deadline is None
    assert found == REASONED, "a limit of its own: take `tests.patience.PATIENCE_S`"
