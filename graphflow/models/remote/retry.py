"""When to try again, and how long to wait before it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one model call, in seconds. A wait without a bound does not exist."""

    connect_s: float = 10
    """For the connection, TLS included."""
    first_data_s: float = 120
    """From the request to the first event with data; comments do not count."""
    idle_s: float = 120
    """Between events with data; comments do not count."""
    after_finish_s: float = 5
    """After a finish reason, for a last word about usage; then the turn counts as whole."""
    total_s: float = 600
    """Time of the whole call with its retries, unless `ChatOptions.timeout_s` is set."""
    max_retries: int = 2
    """Retries after the first try."""
    backoff_s: float = 0.5
    """Before the first retry; doubles each time."""
    max_backoff_s: float = 8
    max_retry_after_s: float = 120
    """Longest pause that a provider may ask for; if it asks for more, the error is raised at once."""


def backoff_s(limits: Limits, attempt: int, draw: float) -> float:
    """Seconds before retry `attempt` (0 is the first): doubling, capped, the upper half by `draw` in [0, 1)."""
    full = min(limits.max_backoff_s, limits.backoff_s * 2.0**attempt)
    return full * (0.5 + draw / 2)


def retry_after_s(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a provider asks to wait (`retry-after-ms`, `retry-after` as number or date), or `None`."""
    # OpenAI's own header, finer than the standard one, so it wins.
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        return None
    # A negative, infinite or NaN pause is none; NaN fails both comparisons.
    return number if 0 <= number < float("inf") else None
