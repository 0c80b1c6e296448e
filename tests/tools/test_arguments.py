"""Tolerant parsing (spec 8.2) and argument templates (spec 1.5)."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.messages import HumanMessage, ToolMessage
from graphflow.tools.result import ArgumentsRefused, ToolResult
from graphflow.tools.running.arguments import LatestResults, parse_arguments, result_value
from graphflow.tools.running.templates import MOST_CHARACTERS, has_template, refers, resolve_templates

NOW = {
    "date": "2024-01-31",
    "iso": "2024-01-31T12:00:00+08:00",
    "utc": "2024-01-31T04:00:00Z",
    "short": "2024-01-31 04:00",
    "fine": "2024-01-31T04:00:00.250+00:00",
    "n": 3,
    "list": [{"name": "a"}, [1, 2]],
    "with-dash": "d",
    "城市": "北京",
}
RESULTS = {"city_datetime": NOW, "other-tool": {"text": "{{city_datetime.date}}"}}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def resolved(text: Any) -> Any:
    return resolve_templates({"x": text}, RESULTS)["x"]


@pytest.mark.parametrize("text", ["", "  \n", "null", "{}", '""', '"{}"', '"null"'])
def test_nothing_at_all_is_no_arguments(text: str):
    assert parse_arguments(text) == {}


def test_a_json_string_that_holds_json_is_read_twice():
    assert parse_arguments('"{\\"a\\": 1}"') == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1', "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ('{"a": 1} trailing', "not valid JSON"),
        ("[1]", "a list"),
        ("5", "a number"),
        ("true", "a boolean"),
        ('"just words"', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('"\ud800"', "not valid JSON"),
        ('{"a": ' + "[" * 90 + "]" * 90 + "}", "nested deeper than 90 levels"),
        ('{"a": [' + "1," * 250_000 + "1]}", "more than 250,000 values"),
        ('{"a": [' + ("9" * 4_000 + ",") * 200 + "1]}", "more than 250,000 values"),
    ],
)
def test_what_is_no_object_is_refused_and_never_repaired(text: str, words: str):
    with pytest.raises(ArgumentsRefused, match=words) as caught:
        parse_arguments(text)
    assert len(str(caught.value)) < 500


def test_secrets_in_broken_arguments_are_masked():
    with pytest.raises(ArgumentsRefused) as caught:
        parse_arguments('{"api_key": "abcdef123456"')
    assert "abcdef123456" not in str(caught.value)


@given(st.dictionaries(st.text(), json_values))
def test_every_json_object_parses_to_itself_also_when_it_was_encoded_twice(data: dict[str, Any]):
    once = msgspec.json.encode(data).decode()
    assert parse_arguments(once) == data
    assert parse_arguments(msgspec.json.encode(once).decode()) == data


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gives_an_object_or_a_refusal(text: str):
    try:
        parsed = parse_arguments(text)
    except ArgumentsRefused:
        return
    assert isinstance(parsed, dict)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{city_datetime.date}}", "2024-01-31"),
        ("{{ city_datetime.date }}", "2024-01-31"),
        (" {{city_datetime.n}} ", 3),
        ("{{city_datetime.list[0].name}}", "a"),
        ("{{city_datetime.list.0.name}}", "a"),
        ("{{city_datetime.list[1][1]}}", 2),
        ("{{city_datetime.list[-1]}}", [1, 2]),
        ("{{city_datetime.with-dash}}", "d"),
        ("{{city_datetime.城市}}", "北京"),
        ("{{city_datetime}}", NOW),
        ("{{city_datetime.date+1d}}", "2024-02-01"),
        ("{{city_datetime.date-2d}}", "2024-01-29"),
        ("{{city_datetime.date + 2w}}", "2024-02-14"),
        ("{{city_datetime.date+1mo}}", "2024-02-29"),
        ("{{city_datetime.date+13mo}}", "2025-02-28"),
        ("{{city_datetime.date-2mo}}", "2023-11-30"),
        ("{{city_datetime.date+1mo-1d}}", "2024-02-28"),
        ("{{city_datetime.date+30h}}", "2024-02-01T06:00:00"),
        ("{{city_datetime.iso+1h}}", "2024-01-31T13:00:00+08:00"),
        ("{{city_datetime.utc-5h}}", "2024-01-30T23:00:00Z"),
        ("{{city_datetime.short+1d}}", "2024-02-01 04:00"),
        ("{{city_datetime.fine+1d}}", "2024-02-01T04:00:00.250+00:00"),
        (
            "on {{city_datetime.date+1d}} and {{city_datetime.n}} {{city_datetime.list[0]}}",
            'on 2024-02-01 and 3 {"name":"a"}',
        ),
    ],
)
def test_references_are_replaced_by_what_they_name(template: str, value: Any):
    assert resolved(template) == value


def test_references_are_found_at_any_depth_and_in_keys():
    arguments = {"a": [{"b": "{{city_datetime.date}}"}], "{{city_datetime.n}}": 1}
    assert has_template(arguments)
    assert resolve_templates(arguments, RESULTS) == {"a": [{"b": "2024-01-31"}], "3": 1}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{city_datetme.date}}", "Did you mean 'city_datetime'"),
        ("{{unknown.x}}", "results exist of city_datetime, other-tool"),
        ("{{city_datetime.dat}}", "it has date, iso"),
        ("{{city_datetime.list[9]}}", "list of 2"),
        ("{{city_datetime.list.x}}", "not an index"),
        ("{{city_datetime.date.year}}", "no fields"),
        ("{{city_datetime.n+1d}}", "needs an ISO date"),
        ("{{city_datetime.date+1y}}", "'y' is not a unit"),
        ("{{city_datetime.date+99999999999d}}", "years 1 to 9999"),
        ("{{city_datetime.date+999999mo}}", "years 1 to 9999"),
        ("{{city_datetime..date}}", "not a reference"),
        ("{{city_datetime.date | upper}}", "can't be resolved"),
        ("before {{nothing.here}} after", "there is no result of 'nothing'"),
    ],
)
def test_what_cannot_be_resolved_names_what_exists(template: str, words: str):
    with pytest.raises(ArgumentsRefused) as caught:
        resolve_templates({"list": [{"deep": template}]}, RESULTS)
    assert words in str(caught.value)
    assert str(caught.value).startswith("list[0].deep: ")


def test_without_any_result_the_refusal_says_that_there_is_none():
    with pytest.raises(ArgumentsRefused, match="no tool yet"):
        resolve_templates({"x": "{{city_datetime.date}}"}, {})


def test_all_references_that_cannot_be_resolved_are_named_at_once():
    with pytest.raises(ArgumentsRefused) as caught:
        resolve_templates({"a": "{{x.y}} {{z.w}}", "b": "{{v.u}}"}, {})
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize("text", ["{{}}", "{{1, 2}, {3}}", "{% if x %}", "{ {a.b} }", "{{'a'}}", "plain"])
def test_braces_that_name_nothing_are_ordinary_text(text: str):
    assert not has_template(text)
    assert resolved(text) == text


@pytest.mark.parametrize("more", ["{", "{{ a.", "x{{city_datetime.date}}"])
def test_what_is_too_long_to_be_searched_for_references_holds_none(more: str):
    """A search costs time for each brace, and nothing else runs meanwhile."""
    long = {"text": more * (MOST_CHARACTERS // len(more) + 1)}
    with pytest.raises(ArgumentsRefused, match=r"more than 250,000 characters may not contain '\{\{'"):
        refers(long, MOST_CHARACTERS + 1)
    with pytest.raises(ArgumentsRefused):
        refers({"deep": [{more * 2 if more == "{" else more: 1}]}, MOST_CHARACTERS + 1)
    assert not refers({"text": "{ }" * MOST_CHARACTERS}, 3 * MOST_CHARACTERS)
    assert refers({"text": "{{city_datetime.date}}"}, MOST_CHARACTERS)


def test_what_a_result_contains_is_data_and_not_resolved_again():
    assert resolved("{{other-tool.text}}") == "{{city_datetime.date}}"


names = st.text("abc_", min_size=1, max_size=4).filter(lambda name: name[0] != "_")


@given(
    st.dictionaries(names, st.dictionaries(names, st.text("xyz"), max_size=3), max_size=3),
    names,
    names,
    st.text("{}. x+1d", max_size=12),
)
def test_a_reference_is_replaced_or_refused_and_never_passed_on(
    results: dict[str, Any], tool: str, field: str, around: str
):
    text = f"{around}{{{{{tool}.{field}}}}}{around}"
    try:
        value = resolve_templates({"x": text}, results)["x"]
    except ArgumentsRefused:
        return
    assert f"{{{{{tool}.{field}}}}}" not in str(value) or "{" in around
    assert field in results[tool]


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.integers(-3000, 3000))
def test_days_and_weeks_are_calendar_days(day: date, count: int):
    results = {"t": {"d": day.isoformat()}}
    assert resolve_templates({"x": f"{{{{t.d{count:+d}d}}}}"}, results) == {
        "x": (day + timedelta(days=count)).isoformat()
    }
    if abs(count) < 400:
        assert resolve_templates({"x": f"{{{{t.d{count:+d}w}}}}"}, results) == {
            "x": (day + timedelta(weeks=count)).isoformat()
        }


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.integers(-600, 600))
def test_months_keep_the_day_or_end_at_the_months_last(day: date, count: int):
    text = resolve_templates({"x": f"{{{{t.d{count:+d}mo}}}}"}, {"t": {"d": day.isoformat()}})["x"]
    moved = date.fromisoformat(text)
    assert (moved.year - day.year) * 12 + moved.month - day.month == count
    assert moved.day == day.day or (moved.day < day.day and (moved + timedelta(days=1)).day == 1)


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.integers(-999, 999))  # noqa: DTZ001 - a wall time
def test_hours_move_a_date_time(moment: datetime, count: int):
    text = resolve_templates({"x": f"{{{{t.m{count:+d}h}}}}"}, {"t": {"m": moment.isoformat()}})["x"]
    assert datetime.fromisoformat(text) == moment + timedelta(hours=count)


@given(json_values)
def test_values_without_references_pass_unchanged(value: Any):
    if not has_template(value):
        assert resolve_templates({"x": value}, RESULTS) == {"x": value}


def test_the_latest_good_result_of_each_tool_since_the_input_counts():
    messages = [
        ToolMessage(tool_call_id="0", name="earlier_run", content="{}"),
        HumanMessage(content="hi"),
        ToolMessage(tool_call_id="1", name="a", content='{"n": 1}'),
        ToolMessage(tool_call_id="2", name="a", content='{"n": 2}'),
        ToolMessage(tool_call_id="3", name="a", content="Error TIMEOUT: slow", error=True),
        ToolMessage(tool_call_id="4", name="b", content="words"),
        ToolMessage(tool_call_id="5", name="c", content='{"cut": 1\n[CUT: …]'),
    ]
    expected = {"a": {"n": 2}, "b": {"text": "words"}, "c": {"text": '{"cut": 1\n[CUT: …]'}}
    found = LatestResults(messages)
    assert dict(found) == expected
    assert len(found) == 3
    assert "earlier_run" not in found
    assert resolve_templates({"x": "{{a.n}} {{b.text}}"}, found) == {"x": "2 words"}


@pytest.mark.parametrize(
    "text", ["words", '{"a": {"b": 7}}', "{}", '{"half": ', "[1, 2]", '{"lone": "\ud83d"}', '{"deep": ' + "[" * 5000]
)
def test_a_later_call_reads_the_same_of_a_result_in_this_turn_and_in_the_next(text: str):
    of_this_turn = result_value(ToolResult(text=text))
    message = ToolMessage(tool_call_id="1", name="t", content=text)
    assert LatestResults([message])["t"] == of_this_turn
    assert isinstance(of_this_turn, dict)
