"""The circuit breaker of tools: one that keeps failing is left alone for a while (spec 8.2).

Each person has circuits of their own. Why a tool fails can't be seen from outside: mostly it is what it was called with, and
what one person's models call it with must not close it to the others. A service that is down costs each of them the failures
that open a circuit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BREAKING_CODES = frozenset({"EXECUTION_ERROR", "INTERNAL_ERROR", "TIMEOUT"})
"""Errors that count against the tool itself; the others are caused by its arguments."""
MOST_CIRCUITS = 10_000
"""Beyond this many the oldest is forgotten, which lets its tool be called again."""

Circuit = tuple[str, ...]
"""The tool, and who asked for the run."""


@dataclass
class _State:
    failures: int = 0
    opened_at: float | None = None
    trial: bool = False
    """One call is testing whether the tool works again; others still wait."""


class CircuitBreaker:
    """Opens after `threshold` straight failures of a circuit for `recovery_s` seconds; then one trial decides.

    Args:
        threshold: straight failures of one circuit.
        recovery_s: seconds.
        monotonic: seconds of a clock that only goes forward.
    """

    def __init__(self, monotonic: Callable[[], float], *, threshold: int = 3, recovery_s: float = 300.0) -> None:
        self._monotonic = monotonic
        self._threshold = threshold
        self._recovery_s = recovery_s
        self._circuits: dict[Circuit, _State] = {}

    def wait_s(self, circuit: Circuit) -> float | None:
        """Seconds until the tool may be tried, or None when it may be called now.

        A caller that gets None must report how the call ended, by `report` or `leave`.
        """
        state = self._circuits.get(circuit)
        if state is None or state.opened_at is None:
            return None
        left = state.opened_at + self._recovery_s - self._monotonic()
        if left > 0 or state.trial:
            return max(left, 0.0)
        # One call at a time: a burst of calls would all hit a tool that may still be down.
        state.trial = True
        return None

    def report(self, circuit: Circuit, *, failed: bool) -> None:
        """Records how a call ended."""
        if not failed:
            # Forgotten, not set to zero: the table holds failing tools only.
            self._circuits.pop(circuit, None)
            return
        state = self._circuits.setdefault(circuit, _State())
        state.failures += 1
        state.trial = False
        if state.failures >= self._threshold:
            # A failed trial lands here as well, so the wait begins anew.
            state.opened_at = self._monotonic()
        if len(self._circuits) > MOST_CIRCUITS:
            del self._circuits[next(iter(self._circuits))]

    def leave(self, circuit: Circuit) -> None:
        """Records a call that was cut off: it counts neither way, and another call may be the trial."""
        if (state := self._circuits.get(circuit)) is not None:
            state.trial = False
