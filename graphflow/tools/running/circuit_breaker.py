"""The circuit breaker of tools: one that keeps failing is left alone for a while (spec 8.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BREAKING_CODES = frozenset({"EXECUTION_ERROR", "INTERNAL_ERROR", "TIMEOUT"})
"""Errors that count against the tool itself; the others are caused by its arguments."""


@dataclass
class _Circuit:
    failures: int = 0
    opened_at: float | None = None
    trial: bool = False
    """One call is testing whether the tool works again; others still wait."""


class CircuitBreaker:
    """Opens after `threshold` straight failures of a tool for `recovery_s` seconds; then one trial decides.

    Args:
        threshold: straight failures of one tool.
        recovery_s: seconds.
        monotonic: seconds of a clock that only goes forward.
    """

    def __init__(self, monotonic: Callable[[], float], *, threshold: int = 3, recovery_s: float = 300.0) -> None:
        self._monotonic = monotonic
        self._threshold = threshold
        self._recovery_s = recovery_s
        self._circuits: dict[str, _Circuit] = {}

    def wait_s(self, tool: str) -> float | None:
        """Seconds until the tool may be tried, or None when it may be called now.

        A caller that gets None must report how the call ended, by `report` or `leave`.
        """
        circuit = self._circuits.get(tool)
        if circuit is None or circuit.opened_at is None:
            return None
        left = circuit.opened_at + self._recovery_s - self._monotonic()
        if left > 0 or circuit.trial:
            return max(left, 0.0)
        # One call at a time: a burst of calls would all hit a tool that may still be down.
        circuit.trial = True
        return None

    def report(self, tool: str, *, failed: bool) -> None:
        """Records how a call ended."""
        if not failed:
            # Forgotten, not set to zero: the table holds failing tools only.
            self._circuits.pop(tool, None)
            return
        circuit = self._circuits.setdefault(tool, _Circuit())
        circuit.failures += 1
        circuit.trial = False
        if circuit.failures >= self._threshold:
            # A failed trial lands here as well, so the wait begins anew.
            circuit.opened_at = self._monotonic()

    def leave(self, tool: str) -> None:
        """Records a call that was cut off: it counts neither way, and another call may be the trial."""
        if (circuit := self._circuits.get(tool)) is not None:
            circuit.trial = False
