"""Threads whose due work can't be done, left alone for longer and longer before the next try."""

from __future__ import annotations

from graphflow.errors import GraphflowError

FIRST_S, LONGEST_S = 2.0, 60.0


class RecoveryPauses:
    """When a thread on which recovery has failed is looked at again. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[str, float, float]] = {}
        """Thread → why, the pause, and when it ends."""

    def __len__(self) -> int:
        return len(self._failed)

    def rests(self, thread_id: str, now: float) -> bool:
        """Whether it is too early for another try."""
        return thread_id in self._failed and now < self._failed[thread_id][2]

    def failed(self, thread_id: str, error: GraphflowError, now: float) -> bool:
        """Begins a longer pause; whether this failure is new, so that it is worth a line of the log."""
        why, pause, _ = self._failed.get(thread_id, ("", FIRST_S / 2, 0.0))
        pause = min(2 * pause, LONGEST_S)
        self._failed[thread_id] = (error.message, pause, now + pause)
        return why != error.message

    def done(self, thread_id: str) -> None:
        """The thread is well again, or gone."""
        self._failed.pop(thread_id, None)
