"""What a system's module and the worker agree on."""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Facts = dict[str, float]


@dataclass
class Timed:
    """What a case hands the worker: the run that is timed, and what is looked up after the clock has stopped."""

    run: Callable[[], Awaitable[Facts | None]]
    facts: Callable[[], Facts] | None = None


@dataclass
class Place:
    """Where and how a case runs.

    `folder` is empty at the start and belongs to this worker; `phase` is `pause` or `resume` in the two processes of a
    cold resume, else empty.
    """

    params: dict[str, Any]
    store: bool
    variant: str
    folder: Path
    phase: str = ""
    _threads: itertools.count[int] = field(default_factory=itertools.count)

    def database(self, name: str = "threads.db") -> str:
        return str(self.folder / name)

    def thread(self) -> str:
        """A thread id that was not used before."""
        return f"t{os.getpid()}-{next(self._threads)}"


Case = Callable[[Place], AbstractAsyncContextManager[Timed]]


def stored_bytes(path: str) -> int:
    """Size of a SQLite database after everything in its write-ahead log was folded in."""
    if not Path(path).exists():
        return 0
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return sum(Path(path + end).stat().st_size for end in ("", "-wal") if Path(path + end).exists())


class Growing:
    """Bytes that a database grew by in each run, against the bytes of content that the run added."""

    def __init__(self, path: str, content: int) -> None:
        self._path, self._content, self._size = path, content, 0

    def __call__(self) -> Facts:
        before, self._size = self._size, stored_bytes(self._path)
        return {
            "stored_mb": (self._size - before) / 1e6,
            "bytes_per_kib": (self._size - before) / (self._content / 1024),
        }


def latencies(values: Sequence[float]) -> Facts:
    """p50 and p99 of delays in seconds, as µs."""
    ordered = sorted(values)
    return {
        "latency_p50_us": ordered[len(ordered) // 2] * 1e6,
        "latency_p99_us": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e6,
    }


def edges(seconds: Sequence[float]) -> tuple[float, float]:
    """Medians, in ms, of up to five turns at the start (without the very first) and at the end."""
    few = max(1, min(5, len(seconds) // 4))
    first, last = seconds[1 : 1 + few] or seconds, seconds[-few:]
    return statistics.median(first) * 1e3, statistics.median(last) * 1e3


def growth_facts(
    *, hot: Sequence[float], size: int, messages: int, load: float, history: float | None, fork: float,
    cold_first: float | None = None, cold_last: float | None = None,
) -> Facts:  # fmt: skip
    """The figures of one grown thread; times come in seconds and are kept in ms.

    Args:
        hot: every turn, in order, in one process that may keep what it likes.
        cold_first, cold_last: a turn at either end by a process that has never seen the thread; by default `hot`,
            for systems that read the store at every turn anyway.
    """
    first, last = edges(hot)
    out = {
        "bytes_per_message": size / messages,
        "first_turn_hot_ms": first,
        "last_turn_hot_ms": last,
        "first_turn_cold_ms": first if cold_first is None else cold_first * 1e3,
        "last_turn_cold_ms": last if cold_last is None else cold_last * 1e3,
        "load_ms": load * 1e3,
        "fork_ms": fork * 1e3,
    }
    return out if history is None else {**out, "history_100_ms": history * 1e3}
