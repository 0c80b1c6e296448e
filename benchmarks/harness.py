"""What a system's module and the worker agree on."""

from __future__ import annotations

import itertools
import os
import time
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
    cold resume, else empty. `url` is an empty PostgreSQL database of this worker, which `psql` can be asked about.
    """

    params: dict[str, Any]
    store: str
    """`""`, `memory`, `sqlite` or `postgres`."""
    variant: str
    folder: Path
    phase: str = ""
    url: str = ""
    psql: str = ""
    _threads: itertools.count[int] = field(default_factory=itertools.count)

    def has(self, word: str) -> bool:
        """Whether the variant names it; several stand with commas."""
        return word in self.variant.split(",")

    def database(self, name: str = "threads.db") -> str:
        return str(self.folder / name)

    def thread(self) -> str:
        """A thread id that was not used before."""
        return f"t{os.getpid()}-{next(self._threads)}"

    def stored_bytes(self, name: str = "threads.db") -> int:
        """Size of the database, indexes included: of the file, or of the worker's PostgreSQL database."""
        if self.store == "sqlite":
            return stored_bytes(self.database(name))
        if self.store != "postgres":
            return 0
        import subprocess

        ask = [self.psql, "-qAtX", "-d", self.url, "-c", "SELECT pg_database_size(current_database())"]
        return int(subprocess.run(ask, check=True, capture_output=True, text=True).stdout)


Case = Callable[[Place], AbstractAsyncContextManager[Timed]]


def stored_bytes(path: str) -> int:
    """Size of a SQLite database after everything in its write-ahead log was folded in."""
    import sqlite3  # here, as below: what a case does not use is not loaded before it

    if not Path(path).exists():
        return 0
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return sum(Path(path + end).stat().st_size for end in ("", "-wal") if Path(path + end).exists())


class Growing:
    """Bytes that a database grew by in each run, and per KiB of the content that the run added, if any."""

    def __init__(self, place: Place, content: int) -> None:
        self._place, self._content, self._size = place, content, place.stored_bytes()

    def __call__(self) -> Facts:
        before, self._size = self._size, self._place.stored_bytes()
        grown = {"stored_mb": (self._size - before) / 1e6}
        return {**grown, "bytes_per_kib": (self._size - before) / (self._content / 1024)} if self._content else grown


def growing(place: Place, content: int = 0) -> Growing | None:
    """What a run stores; None where nothing is stored."""
    return Growing(place, content) if place.store in ("sqlite", "postgres") else None


def latencies(values: Sequence[float]) -> Facts:
    """p50 and p99 of delays in seconds, as µs."""
    ordered = sorted(values)
    return {
        "latency_p50_us": ordered[len(ordered) // 2] * 1e6,
        "latency_p99_us": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e6,
    }


class Pace:
    """The beat of a paced source: one mark every `gap` seconds, counted from the start; without a gap at once."""

    def __init__(self, gap: float) -> None:
        self._gap, self._next = gap, time.perf_counter()

    def pause(self) -> float:
        """Seconds to sleep before the next one."""
        self._next += self._gap
        return max(0.0, self._next - time.perf_counter()) if self._gap else 0.0


class Arrivals:
    """What the consumers of many runs see: delays of all, and when the first and the last run ended."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._ends: list[float] = []
        self._start = time.perf_counter()

    def seen(self, sent: float) -> None:
        self.delays.append(time.perf_counter() - sent)

    def ended(self) -> None:
        self._ends.append(time.perf_counter() - self._start)

    def facts(self, expected: int) -> Facts:
        assert len(self.delays) == expected, (len(self.delays), expected)
        return {**latencies(self.delays), "first_end_s": min(self._ends), "last_end_s": max(self._ends)}


def median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def edges(seconds: Sequence[float]) -> tuple[float, float]:
    """Medians, in ms, of up to five turns at the start (without the very first) and at the end."""
    few = max(1, min(5, len(seconds) // 4))
    first, last = seconds[1 : 1 + few] or seconds, seconds[-few:]
    return median(first) * 1e3, median(last) * 1e3


def around(seconds: Sequence[float], turn: int) -> float:
    """Median, in ms, of the eleven turns around the given one, or the last ones."""
    first = max(0, min(turn - 6, len(seconds) - 11))
    return median(seconds[first : first + 11]) * 1e3


def growth_facts(
    *, hot: Sequence[float], size: int, messages: int, load: float, history: float | None = None,
    fork: float | None = None, cold_first: float | None = None, cold_last: float | None = None, states: float | None = None,
) -> Facts:  # fmt: skip
    """The figures of one grown thread; times come in seconds and are kept in ms.

    Args:
        hot: every turn, in order, in one process that may keep what it likes.
        cold_first, cold_last: a turn at either end by a process that has never seen the thread; by default `hot`,
            for systems that read the store at every turn anyway.
        history: the last 100 checkpoints the way the system lists them; `states` with their states, where that is
            another call.
    """
    first, last = edges(hot)
    out = {
        "bytes_per_message": size / messages,
        "first_turn_hot_ms": first,
        "last_turn_hot_ms": last,
        "hot_growth": last / first,
        "turn_10_ms": around(hot, 10),
        "turn_last_ms": around(hot, len(hot)),
        "first_turn_cold_ms": first if cold_first is None else cold_first * 1e3,
        "last_turn_cold_ms": last if cold_last is None else cold_last * 1e3,
        "load_ms": load * 1e3,
    }
    more = {"history_100_ms": history, "states_100_ms": states, "fork_ms": fork}
    return {**out, **{name: value * 1e3 for name, value in more.items() if value is not None}}
