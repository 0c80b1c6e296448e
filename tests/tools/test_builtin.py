"""The built-in tools but `bash` (spec 8.1)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.testing.tool_envelope_conformance import assert_envelope
from graphflow.tools.builtin.maths import evaluate
from graphflow.tools.envelope import to_envelope
from graphflow.tools.port import ToolResult
from graphflow.tools.registry import ToolRegistry
from tests.tools.fakes import NOON_IN_SHANGHAI_MS, tool_context

REGISTRY = ToolRegistry()


async def use(name: str, results: dict[str, Any] | None = None, **arguments: Any) -> ToolResult:
    result = await REGISTRY.require(name).call(arguments, tool_context(results))
    assert_envelope(to_envelope(result))
    return result


async def test_every_built_in_tool_refuses_unknown_and_missing_arguments_with_a_valid_envelope():
    for each in REGISTRY:
        result = await use(each.name, surely_unknown=1)
        assert result.error is not None
        assert result.error.code == "INVALID_PARAM"
        assert "surely_unknown" in result.text


# city_datetime


@pytest.mark.parametrize(
    "city", ["北京", "Beijing", "beijing", "北京市", " Shanghai ", "上海", "Xi'an", "Asia/Shanghai"]
)
async def test_a_city_is_known_by_its_chinese_and_english_names(city: str):
    result = await use("city_datetime", city=city)
    assert result.data == {
        "tool": "city_datetime",
        "city": city,
        "timezone": "Asia/Shanghai",
        "date": "2024-01-31",
        "time": "12:00:00",
        "iso": "2024-01-31T12:00:00+08:00",
        "source": "clock",
    }


@pytest.mark.parametrize(
    ("city", "zone", "iso"),
    [
        ("New York", "America/New_York", "2024-01-30T23:00:00-05:00"),
        ("纽约", "America/New_York", "2024-01-30T23:00:00-05:00"),
        ("London", "Europe/London", "2024-01-31T04:00:00+00:00"),
        ("东京", "Asia/Tokyo", "2024-01-31T13:00:00+09:00"),
        ("Lisbon", "Europe/Lisbon", "2024-01-31T04:00:00+00:00"),
        ("buenos aires", "America/Argentina/Buenos_Aires", "2024-01-31T01:00:00-03:00"),
    ],
)
async def test_each_city_has_its_own_time_zone(city: str, zone: str, iso: str):
    result = await use("city_datetime", city=city)
    assert (result.data["timezone"], result.data["iso"]) == (zone, iso)


@pytest.mark.parametrize("city", ["Atlantis", "", "../etc/passwd", "America/", "Asia/Atlantis", "/etc/localtime"])
async def test_a_city_whose_zone_is_not_known_is_an_error_that_says_what_to_give(city: str):
    result = await use("city_datetime", city=city)
    assert result.error is not None
    assert "IANA time zone" in result.text


# mock_city_weather


async def test_the_same_arguments_always_give_the_same_weather():
    first = await use("mock_city_weather", city="北京", date="2024-02-01")
    assert first == await use("mock_city_weather", city="北京", date="2024-02-01")
    assert set(first.data) == {"city", "date", "temperatureC", "humidity", "windLevel", "condition", "mockTag"}
    other = await use("mock_city_weather", city="Beijing", date="2024-02-01")
    assert other.data["temperatureC"] == first.data["temperatureC"]
    days = [await use("mock_city_weather", city="北京", date=f"2024-02-{day:02d}") for day in range(1, 20)]
    assert len({day.data["humidity"] for day in days}) > 5


async def now_in(city: str) -> dict[str, Any]:
    return {"city_datetime": (await use("city_datetime", city=city)).data}


@pytest.mark.parametrize(
    ("word", "date"),
    [
        ("today", "2024-01-31"), ("今天", "2024-01-31"), ("Tomorrow", "2024-02-01"), ("明天", "2024-02-01"),
        ("day after tomorrow", "2024-02-02"), ("后天", "2024-02-02"), ("yesterday", "2024-01-30"), ("昨天", "2024-01-30"),
        ("day before yesterday", "2024-01-29"), ("前天", "2024-01-29"), ("大后天", "2024-02-03"),
    ],
)  # fmt: skip
async def test_date_words_count_from_the_latest_city_datetime(word: str, date: str):
    result = await use("mock_city_weather", await now_in("北京"), city="上海", date=word)
    assert result.data["date"] == date


async def test_date_words_mean_the_day_of_the_asked_city_also_when_the_time_was_another_citys():
    assert (await use("mock_city_weather", await now_in("北京"), city="New York", date="today")).data[
        "date"
    ] == "2024-01-30"
    assert (await use("mock_city_weather", await now_in("New York"), city="北京", date="today")).data[
        "date"
    ] == "2024-01-31"


@pytest.mark.parametrize(
    "results", [{}, {"city_datetime": {"text": "x"}}, {"city_datetime": "noon"}, {"city_datetime": {"iso": 5}}]
)
async def test_without_a_city_datetime_a_date_word_is_never_guessed_from_a_clock(results: dict[str, Any]):
    result = await use("mock_city_weather", results, city="北京", date="明天")
    assert result.error is not None
    assert "Call city_datetime first" in result.text


async def test_what_is_no_date_is_refused():
    result = await use("mock_city_weather", city="北京", date="31.1.2024")
    assert "'31.1.2024' is not a date" in result.text


# time_now


async def test_time_now_has_the_defaults_of_its_description():
    assert (await use("time_now")).data == {"time": "2024-01-31 12:00:00", "epochMs": NOON_IN_SHANGHAI_MS}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy/MM/dd", "2024/01/31"), ("HH:mm:ss.SSS", "04:00:00.000"), ("yyyy'年'MM", "2024年01"), ("hh a", "04 AM"), ("XXX", "+00:00"),
        ("yyyy年MM月dd日", "2024年01月31日"), ("", ""),
    ],
)  # fmt: skip
async def test_time_now_writes_the_time_in_the_form_asked_for(pattern: str, text: str):
    assert (await use("time_now", zone="UTC", pattern=pattern)).data["time"] == text


async def test_time_now_refuses_unknown_zones_and_fields():
    assert "'Mars/Base' is not a time zone" in (await use("time_now", zone="Mars/Base")).text
    assert "'QQQ' is not a field" in (await use("time_now", pattern="yyyy QQQ")).text


# task_done


async def test_task_done_gives_its_content_back():
    assert (await use("task_done", finishContent="all done")).data == {"finishContent": "all done"}


# math_eval


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("-2 ** 2", -4), ("7 // 2 + 7 % 2", 4), ("1 / 4", 0.25), ("sqrt(16) + abs(-1)", 5.0),
        ("round(2.567, 1)", 2.6), ("round(2.5)", 2), ("max(1, 2, 3)", 3), ("2 ** 62", 2**62), ("1e3", 1000.0), ("floor(pi)", 3),
    ],
)  # fmt: skip
async def test_math_eval_computes(expression: str, value: Any):
    result = (await use("math_eval", expression=expression)).data["result"]
    assert result == (str(value) if abs(value) > 2**53 else value)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("__import__('os').system('ls')", "not arithmetic"), ("().__class__", "not arithmetic"), ("open('x')", "'open' is not known"),
        ("x + 1", "'x' is not known"), ("[1, 2]", "not arithmetic"), ("'a' * 5", "not arithmetic"), ("True + 1", "not arithmetic"),
        ("lambda: 1", "not arithmetic"), ("1 if 1 else 2", "not arithmetic"), ("1 < 2", "not arithmetic"), ("2 ^ 3", "write **"),
        ("1 +", "not an arithmetic expression"), ("", "not an arithmetic expression"), ("1; 2", "not an arithmetic expression"),
        ("1 / 0", "division by zero"), ("9 ** 9 ** 9", "too large"), ("10 ** 1000 * 10 ** 1000", "too large"), ("1e308 * 10", "infinite"),
        ("(-8) ** 0.5", "no real value"), ("sqrt(-1)", ""), ("exp(1e9)", ""), ("round(1, -99999999)", "at most 30 digits"),
        ("sqrt(1, 2)", ""), ("sqrt(x=1)", ""), ("max()", ""), ("1j", "not arithmetic"), ("(" * 500 + "1" + ")" * 500, ""),
        ("-" * 900 + "1", ""), ("1+" * 500 + "1", "limit is 1000"), ("1\0", ""), ("1if 2", ""), ("f'{1}'", "not arithmetic"),
    ],
)  # fmt: skip
async def test_math_eval_refuses_everything_else_at_once(expression: str, words: str):
    result = await use("math_eval", expression=expression)
    if result.ok:  # a long row of signs is arithmetic
        assert expression.startswith("-" * 900)
        return
    assert result.error is not None
    assert result.error.code == "INVALID_PARAM"
    assert words in result.text


@given(st.text("0123456789+-*/%(). e,round sqrt", max_size=40))
def test_math_eval_gives_a_finite_number_or_refuses(expression: str):
    try:
        value = evaluate(expression)
    except (ValueError, ArithmeticError, TypeError):
        return
    assert isinstance(value, int | float)
    assert value - value == 0
