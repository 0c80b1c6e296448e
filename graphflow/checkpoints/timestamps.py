"""Datetimes and times as data: the codec's part that knows time zones.

A `zoneinfo` zone is kept by its key. Any other zone is kept as the offset it had at that moment, so the instant
is the same, but arithmetic across a change of clocks is not.
"""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

from graphflow.errors import CodecError


def dump_zoned(value: datetime | time) -> list[Any]:
    """`[ISO 8601, zone key, fold]`, without the parts at the end that say nothing."""
    key = getattr(value.tzinfo, "key", None)
    if key is None and value.fold == 0:
        return [value.isoformat()]
    # With a key, the wall time is stored without its offset: the zone's rules give it back, `fold` decides in the
    # repeated hour.
    text = value.isoformat() if key is None else value.replace(tzinfo=None).isoformat()
    return [text, key, value.fold]


def load_datetime(text: str, key: str | None = None, fold: int = 0) -> datetime:
    value = datetime.fromisoformat(text)
    return value.replace(tzinfo=value.tzinfo if key is None else _zone(key), fold=fold)


def load_time(text: str, key: str | None = None, fold: int = 0) -> time:
    value = time.fromisoformat(text)
    return value.replace(tzinfo=value.tzinfo if key is None else _zone(key), fold=fold)


def _zone(key: str) -> Any:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(key)
    except (LookupError, OSError, ValueError) as error:
        raise CodecError(
            f"a stored time is in the time zone {key!r}, which this machine does not know: install or update `tzdata`",
            code="store_failed",
        ) from error
