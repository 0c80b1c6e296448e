"""`mock_city_weather`: invented weather, the same for the same arguments."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from graphflow.tools.context import ToolContext
from graphflow.tools.demo.cities import City, find_city
from graphflow.tools.port import tool
from graphflow.tools.result import ToolResult, failed

_DAYS = {
    "day before yesterday": -2, "前天": -2, "yesterday": -1, "昨天": -1, "昨日": -1, "today": 0, "now": 0, "今天": 0, "今日": 0,
    "tomorrow": 1, "明天": 1, "明日": 1, "day after tomorrow": 2, "the day after tomorrow": 2, "后天": 2, "後天": 2, "大后天": 3,
}  # fmt: skip
_CONDITIONS = (
    ("sunny", "晴"), ("cloudy", "多云"), ("overcast", "阴"), ("light rain", "小雨"), ("showers", "阵雨"), ("windy", "有风"),
    ("foggy", "雾"),
)  # fmt: skip
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


@tool(
    effects="read",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City in Chinese or English."},
            "date": {
                "type": "string",
                "description": "YYYY-MM-DD; or a word such as today, tomorrow, 明天 once city_datetime was called.",
            },
        },
        "required": ["city", "date"],
        "additionalProperties": False,
    },
)
async def mock_city_weather(city: str, date: str, ctx: ToolContext) -> dict[str, Any] | ToolResult:
    """Weather of a city on a date. Invented for demonstrations: the same arguments always give the same weather."""
    known = find_city(city)
    day = _day(date, known, ctx.results.get("city_datetime"))
    if isinstance(day, ToolResult):
        return day
    draws = hashlib.sha256(f"{known.name if known else city.strip()}|{day.isoformat()}".encode()).digest()
    warmth = 14 - abs(day.month - 7) * 3  # a northern year: July is warmest
    return {
        "city": city,
        "date": day.isoformat(),
        "temperatureC": warmth + 4 + draws[0] % 13,
        "humidity": 30 + draws[1] % 61,
        "windLevel": 1 + draws[2] % 7,
        "condition": _CONDITIONS[draws[3] % len(_CONDITIONS)][1 if _CHINESE.search(city) else 0],
        "mockTag": "mock",
    }


def _day(text: str, city: City | None, now: Any) -> date | ToolResult:
    """The day that a date or a date word means; a word counts from the latest `city_datetime`, never from a clock."""
    word = text.strip().casefold()
    if word not in _DAYS:
        try:
            return datetime.fromisoformat(text.strip()).date()
        except ValueError:
            return failed("INVALID_PARAM", f"date: {text!r} is not a date", "Give it as YYYY-MM-DD.")
    today = _today(city, now)
    if today is None:
        return failed(
            "INVALID_PARAM",
            f"date: what {text!r} means is not known, as there is no result of city_datetime in this run",
            "Call city_datetime first, or give the date as YYYY-MM-DD.",
        )
    return today + timedelta(days=_DAYS[word])


def _today(city: City | None, now: Any) -> date | None:
    """The date in this city at the moment of the result: another city's result may lie in another day."""
    if not isinstance(now, Mapping):
        return None
    try:
        if city is None:
            return date.fromisoformat(str(now.get("date")))
        moment = datetime.fromisoformat(str(now.get("iso")))
    except ValueError:
        return None
    return moment.astimezone(ZoneInfo(city.timezone)).date() if moment.tzinfo else moment.date()
