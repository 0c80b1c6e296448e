"""When to try again, and how long to wait before it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from graphflow.models.options import CallLimits


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


def limits_of_call(limits: Limits, changes: CallLimits | None, total_s: float | None = None) -> Limits:
    """The limits with those of a provider or a call in their place; `total_s` is the call's other name of its total."""
    if changes is None and total_s is None:
        return limits
    given = changes or CallLimits()
    asked = {
        "connect_s": given.connect_s,
        "first_data_s": given.first_token_s,
        "idle_s": given.idle_s,
        "total_s": given.total_s or total_s,
    }
    return msgspec.structs.replace(limits, **{name: value for name, value in asked.items() if value is not None})


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
