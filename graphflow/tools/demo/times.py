"""`city_datetime` and `time_now`: what time it is, by the run's clock."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from graphflow.tools.context import ToolContext
from graphflow.tools.demo.cities import find_city, zone_of
from graphflow.tools.port import tool
from graphflow.tools.result import ToolResult, failed

_PATTERN = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIELDS = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p",
    "EEE": "%a", "EEEE": "%A", "MMM": "%b", "MMMM": "%B",
}  # fmt: skip


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "City in Chinese or English, or an IANA time zone."}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
async def city_datetime(city: str, ctx: ToolContext) -> dict[str, Any] | ToolResult:
    """Current local date and time of a city."""
    found = find_city(city)
    if found is None:
        return failed(
            "INVALID_PARAM",
            f"the time zone of the city {city!r} is not known",
            "Give a larger city of the region, or an IANA time zone such as 'Asia/Shanghai'.",
        )
    now = _now(ctx, ZoneInfo(found.timezone))
    return {
        "tool": "city_datetime",
        "city": city,
        "timezone": found.timezone,
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M:%S"),
        "iso": now.isoformat(timespec="seconds"),
        "source": "clock",
    }


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {
            "zone": {"type": "string", "description": "IANA time zone.", "default": "Asia/Shanghai"},
            "pattern": {
                "type": "string",
                "description": "Of yyyy MM dd HH mm ss SSS and text in single quotes.",
                "default": "yyyy-MM-dd HH:mm:ss",
            },
        },
        "additionalProperties": False,
    },
)
async def time_now(
    ctx: ToolContext, zone: str = "Asia/Shanghai", pattern: str = "yyyy-MM-dd HH:mm:ss"
) -> dict[str, Any] | ToolResult:
    """Current time in a time zone, in the form of a pattern."""
    found = zone_of(zone)
    if found is None:
        return failed(
            "INVALID_PARAM", f"{zone!r} is not a time zone", "Give an IANA name such as 'Asia/Shanghai' or 'UTC'."
        )
    try:
        text = _formatted(_now(ctx, found), pattern)
    except ValueError as error:
        return failed("INVALID_PARAM", f"pattern {pattern!r}: {error}", "Use yyyy MM dd HH mm ss SSS.")
    return {"time": text, "epochMs": ctx.now_ms()}


def _now(ctx: ToolContext, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(ctx.now_ms() / 1000, zone)


def _formatted(moment: datetime, pattern: str) -> str:
    # Java's letters: models know them from many APIs, and `strftime` would format letters that nobody meant.
    out = ""
    for part in _PATTERN.finditer(pattern):
        text = part[0]
        if part[2] is None:
            out += (part[1] or "'") if text.startswith("'") else text
        elif text == "SSS":
            out += f"{moment.microsecond // 1000:03d}"
        elif text == "XXX":
            out += moment.isoformat()[-6:]
        elif text in _FIELDS:
            out += moment.strftime(_FIELDS[text])
        else:
            raise ValueError(f"{text!r} is not a field of a pattern")
    return out
