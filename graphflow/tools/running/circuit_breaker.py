"""The circuit breaker of tools: one that keeps failing is left alone for a while (spec 8.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BREAKING_CODES = frozenset({"EXECUTION_ERROR", "INTERNAL_ERROR", "TIMEOUT"})
"""Errors that speak against the tool itself; the others speak against its arguments."""


@dataclass
class _Circuit:
    failures: int = 0
    opened_at: float | None = None
    trial: bool = False
    """One call tries whether the tool is well again; others still wait."""


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

        Whoever is told None must report how the call ended, by `report` or `leave`.
        """
        circuit = self._circuits.get(tool)
        if circuit is None or circuit.opened_at is None:
            return None
        left = circuit.opened_at + self._recovery_s - self._monotonic()
        if left > 0 or circuit.trial:
            return max(left, 0.0)
        circuit.trial = True
        return None

    def report(self, tool: str, *, failed: bool) -> None:
        """How a call ended."""
        if not failed:
            self._circuits.pop(tool, None)
            return
        circuit = self._circuits.setdefault(tool, _Circuit())
        circuit.failures += 1
        circuit.trial = False
        if circuit.failures >= self._threshold:
            circuit.opened_at = self._monotonic()

    def leave(self, tool: str) -> None:
        """A call that was cut off says nothing about the tool; a trial is free again."""
        if (circuit := self._circuits.get(tool)) is not None:
            circuit.trial = False
