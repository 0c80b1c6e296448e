"""Limits: requests of a token, and runs at once (spec 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphflow.errors import GraphflowError
from graphflow.service.context import ServiceContext

RETRY_MS = 1000
"""When to ask again where nobody can know when a run ends."""


class RateLimit:
    """So many requests a minute for each token: a bucket that holds a minute's worth and fills evenly.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Token's name → requests left, and when that was so."""

    def take(self, name: str) -> None:
        """Counts one request of this token.

        Raises:
            GraphflowError: `too_many_requests`; `retryAfterMs` says when the next one is accepted.
        """
        now, per_second = self._clock(), self._per_minute / 60
        left, since = self._buckets.get(name, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - since) * per_second)
        if left < 1:
            # A refused request costs nothing, or a client that keeps asking would never get in.
            self._buckets[name] = (left, now)
            raise GraphflowError(
                f"{name!r} may make {self._per_minute} requests a minute and has made them; wait for `retryAfterMs`",
                code="too_many_requests",
                retryAfterMs=max(1, round((1 - left) / per_second * 1000)),
            )
        self._buckets[name] = (left - 1, now)


class RunLimit:
    """So many runs at once in this process; those that are being begun count too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._beginning = 0

    @contextmanager
    def room(self, context: ServiceContext) -> Iterator[None]:
        """Room for one run, while its request begins it.

        Raises:
            GraphflowError: `overloaded`.
        """
        if len(context.runs.by_thread) + self._beginning >= self._most:
            raise GraphflowError(
                f"{self._most} runs are active, the limit of this server (`server.max_runs`); try again in a moment",
                code="overloaded",
                retryAfterMs=RETRY_MS,
            )
        # Runs that are being begun are in no table yet; without this count requests side by side would pass the limit
        # together.
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1
