"""Argument templates in calls that a model makes: whatever is written, the literal text reaches no tool (spec 1.5)."""

from __future__ import annotations

import calendar
import json
import re
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from graphflow.bounds import DEFAULTS
from graphflow.messages import HumanMessage, ToolMessage
from graphflow.tools.result import ArgumentsRefused
from graphflow.tools.running.arguments import LatestResults, parse_arguments
from graphflow.tools.running.templates import MOST_ISSUES, MOST_REFERENCES, has_template, resolve_templates

ZONES = ("", "Z", "z", "+08:00", "-03:30", "+0530", "+14")


def shifted(value: str, offset: str) -> str:
    return str(resolve_templates({"x": f"{{{{t.v{offset}}}}}"}, {"t": {"v": value}})["x"])


@pytest.mark.parametrize(
    ("value", "offset", "gives"),
    [
        ("2023-01-31", "+1mo", "2023-02-28"),
        ("2024-01-31", "+1mo", "2024-02-29"),
        ("2024-02-29", "+12mo", "2025-02-28"),
        ("2024-02-29", "-48mo", "2020-02-29"),
        ("2024-03-31", "-1mo", "2024-02-29"),
        ("2024-10-31", "+1mo-1mo", "2024-10-30"),
        ("2024-12-31", "+1d", "2025-01-01"),
        ("2023-02-28", "+1d", "2023-03-01"),
        ("2024-02-28", "+1d", "2024-02-29"),
        ("1900-02-28", "+1d", "1900-03-01"),
        ("2000-02-28", "+1d", "2000-02-29"),
        ("2024-06-30T23:30", "+1h", "2024-07-01T00:30"),
        ("2024-06-30T23:30:00+0530", "+1h", "2024-07-01T00:30:00+0530"),
        ("2024-06-30T23:30:15,5Z", "-24h", "2024-06-29T23:30:15,5Z"),
        ("9999-12-31", "-1w", "9999-12-24"),
        ("2024-12-31", "+0000000001d", "2025-01-01"),
        ("2024-12-31", "+00000000000d", "2024-12-31"),
    ],
)
def test_an_offset_follows_the_calendar_and_keeps_the_form(value: str, offset: str, gives: str) -> None:
    assert shifted(value, offset) == gives


def test_an_index_into_an_object_is_its_key_letter_by_letter() -> None:
    assert resolve_templates({"x": "{{t.v[007]}}{{t.v.7}}"}, {"t": {"v": {"007": "a", "7": "b"}}}) == {"x": "ab"}


@pytest.mark.parametrize("step", ["1_0", "\u0661", "[1" + "0" * 30 + "]"])
def test_only_plain_digits_are_an_index_of_a_list(step: str) -> None:
    step = step if step.startswith("[") else f".{step}"
    with pytest.raises(ArgumentsRefused, match="list of 11"):
        resolve_templates({"x": f"{{{{t.v{step}}}}}"}, {"t": {"v": list(range(11))}})


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001 - the zone is drawn beside it
    st.sampled_from(ZONES),
    st.sampled_from(["minutes", "seconds", "milliseconds"]),
    st.sampled_from(["d", "h", "w"]),
    st.integers(-400, 400),
)
def test_a_moment_moves_by_the_offset_in_its_own_zone(
    moment: datetime, zone: str, precision: str, unit: str, count: int
) -> None:
    value = moment.isoformat(timespec=precision) + zone
    text = shifted(value, f"{count:+d}{unit}")
    length = {"d": timedelta(days=1), "h": timedelta(hours=1), "w": timedelta(weeks=1)}[unit]
    moved, given_ = (datetime.fromisoformat(each.upper()) for each in (text, value))
    assert moved - given_ == count * length
    assert text.endswith(zone) and len(text) == len(value)


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(-300, 300))
def test_a_month_later_is_the_same_day_or_the_last_of_the_month(day: date, count: int) -> None:
    moved = date.fromisoformat(shifted(day.isoformat(), f"{count:+d}mo"))
    assert (moved.year - day.year) * 12 + moved.month - day.month == count
    assert moved.day == min(day.day, calendar.monthrange(moved.year, moved.month)[1])


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(0, 5000))
def test_there_and_back_is_where_one_was(day: date, count: int) -> None:
    assert shifted(day.isoformat(), f"+{count}d-{count}d") == day.isoformat()
    assert shifted(shifted(day.isoformat(), f"+{count}w"), f"-{count}w") == day.isoformat()


@given(st.dates(), st.integers(1, 10**12), st.sampled_from(["d", "w", "mo"]), st.sampled_from("+-"))
def test_no_offset_is_too_large_to_be_refused_in_words(day: date, count: int, unit: str, sign: str) -> None:
    try:
        text = shifted(day.isoformat(), f"{sign}{count}{unit}")
    except ArgumentsRefused as refused:
        text = str(refused)
    assert "{{" not in text.partition("can't be resolved")[0] or "years 1 to 9999" in text


@pytest.mark.parametrize("tool", ["7zip", "-x", "look_up", "a-b", "2fa_check"])
def test_a_tool_may_have_any_name_that_tools_have(tool: str) -> None:
    assert resolve_templates({"x": f"{{{{{tool}.v}}}}"}, {tool: {"v": 1}}) == {"x": 1}
    with pytest.raises(ArgumentsRefused, match="no tool yet"):
        resolve_templates({"x": f"at {{{{{tool}.v}}}}"}, {})


@pytest.mark.parametrize("text", ["{{3.5}}", "{{1, 2}}", "{{-1.5}}", "{{}}", "{{ }}", "x{{y", "{{2024-01-31}}"])
def test_numbers_in_braces_are_ordinary_text(text: str) -> None:
    assert not has_template(text) and resolve_templates({"x": text}, {}) == {"x": text}


PIECES = (
    "a", "t", "é", "_", "1", "٣", "-", "-1d", "+1d", "+2 mo", " - 3 w", " ", "\n", "\u2003", ".", "..", ".v", ".v-1d", "[0]",
    "[-1]", "[", "]", "+",
)  # fmt: skip
TOOL = r"[\w-]*[^\W\d][\w-]*"
PATH = r"(?:\.[^\s.\[\]+]+|\[-?[0-9]+\])*"
OFFSETS = r"(?:\s*[+-]\s*[0-9]+\s*[A-Za-z]+)*"


def split_slowly(inner: str) -> tuple[str, list[str], str] | None:
    """Tool, steps and offsets of a reference by trying every place where the offsets may begin, the first before others."""
    for at in range(1, len(inner) + 1):
        if re.fullmatch(TOOL + PATH, inner[:at]) and re.fullmatch(OFFSETS, inner[at:]):
            tool, *steps = re.split(r"[.\[]", inner[:at].replace("]", ""))
            return tool, steps, inner[at:]
    return None


def outcome(text: str, results: dict[str, Any]) -> Any:
    try:
        return resolve_templates({"x": text}, results)["x"]
    except ArgumentsRefused as refused:
        return "not a reference" if "not a reference" in str(refused) else "refused"


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
@example("t.-1d").via("the one step there can be")
@example("t.-1d-1d").via("a step and an offset")
@example("t-1d").via("a tool and an offset")
@example("-1d.v-1d +1d").via("a tool that looks like an offset")
def test_a_reference_is_read_as_its_grammar_says(written: str) -> None:
    """Names may hold what looks like an offset; a name is as short as it can be."""
    text, inner = f"{{{{{written}}}}}", written.strip()
    split = split_slowly(inner)
    if not re.match(rf"[^\W\d]|{TOOL}\.", inner):
        assert not has_template(text) and outcome(text, {}) == text
    elif split is None:
        assert has_template(text) and outcome(text, {}) == "not a reference"
    else:
        tool, steps, offsets = split
        value: Any = "2024-01-31"
        for step in reversed(steps):
            value = {step: value}
        assert outcome(text, {tool: value}) == outcome(f"{{{{t.v{offsets}}}}}", {"t": {"v": "2024-01-31"}})


N = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "{{" + "a-" * N, "{{" + "a-" * N + "}}", "{{a" + ".a" * N, "{{a" + ".a-1d" * N + "!}}", "{{" + "1-" * N,
        "{{" + "1-" * N + "}}", "{{" + "1-" * N + "a.v}}", "{{a" + " + 1" * N, "{{a" + " + 1" * N + "}}", "{{a.b" + " " * N,
        "{{a.b" + " " * N + "!}}", "{{" + " " * N, "{{a" + " a" * N + "}}", "{{a" + "-1d" * N + "!}}", "{{a.b+" + "1" * N + "}}",
        "{{a.b+1" + "d" * N + "!}}", "{{a +" + " " * N + "!}}", "{{a[" + "0" * N + "}}", "{{a" + "[0]" * N + "!}}", "{" * N,
        "{{" * N + "}}" * N, "{{a" * N, "{{a}" * N,
    ],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_a_long_text_is_read_once_whatever_its_shape(text: str) -> None:
    """Models write it and the event loop reads it: with a pattern that goes back, some of these would take hours."""
    assert (outcome(text, {}) == text) is not has_template(text)


@pytest.mark.parametrize("offsets", ["-1d+1d" * (N // 2), "+0d" + " " * N + "-0d", "+" + "0" * N + "d"])
def test_offsets_may_be_as_many_as_one_likes(offsets: str) -> None:
    assert shifted("2024-01-31", offsets) == "2024-01-31"


def test_a_long_value_that_only_begins_like_a_date_is_refused() -> None:
    with pytest.raises(ArgumentsRefused, match="ISO date"):
        shifted("2024-01-31T12:00:00." + "1" * N + " x", "+1d")


@pytest.mark.parametrize(
    ("text", "gives"),
    [("{{{t.v}}}", "{5}"), ("{{ t.v }}{{t.v}}", "55"), ("{{1}}{{t.v}}", "{{1}}5"), ("{{x {{t.v}} y}}", "{{x 5 y}}")],
)
def test_the_innermost_braces_count(text: str, gives: str) -> None:
    assert resolve_templates({"x": text}, {"t": {"v": 5}}) == {"x": gives}


@given(st.text(), st.text(), st.text())
def test_a_value_is_put_in_as_it_is_whatever_stands_in_it(before: str, value: str, after: str) -> None:
    assume("{" not in before + after and "}" not in before + after)
    arguments = parse_arguments(json.dumps({"x": f"{before}|{{{{t.v}}}}|{after}"}))
    assert resolve_templates(arguments, {"t": {"v": value}}) == {"x": f"{before}|{value}|{after}"}


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=8))
def test_escapes_in_the_json_of_a_call_hide_no_reference(padding: str) -> None:
    assume("{" not in padding and "}" not in padding)
    escaped = "".join(f"\\u{ord(c):04x}" for c in "{{t.v+1d}}")
    text = '{"x": "' + escaped + json.dumps(padding)[1:-1] + '"}'
    results = {"t": {"v": "2024-02-28"}}
    given_ = resolve_templates(parse_arguments(text), results)
    assert given_ == {"x": "2024-02-29" + padding} or padding.strip() == ""
    assert "{{" not in json.dumps(given_)


def latest(*results: ToolMessage) -> LatestResults:
    return LatestResults([HumanMessage(content="?"), *results])


def test_a_result_shown_whole_is_read_like_one_of_which_only_the_data_is_shown() -> None:
    envelope = {"status": "success", "data": {"n": 1}, "text": "one", "stats": {}, "context": {}}
    shown = ToolMessage(tool_call_id="c", name="t", content=json.dumps(envelope))
    assert resolve_templates({"x": "{{t.n}}"}, latest(shown)) == {"x": 1}
    empty = ToolMessage(tool_call_id="c", name="t", content=json.dumps({**envelope, "data": {}}))
    assert resolve_templates({"x": "{{t.text}}"}, latest(empty)) == {"x": "one"}


def test_zones_are_those_of_the_result_and_not_of_this_machine() -> None:
    tokyo = datetime(2024, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=9)))
    assert shifted(tokyo.isoformat(), "-1h") == "2023-12-31T23:30:00+09:00"


@pytest.mark.parametrize(
    ("value", "words"),
    [("2023-02-29", "t.v"), ("2024-13-01", "t.v"), ("today", "ISO date"), (5, "ISO date"), ("2024-01-01T25:00", "t.v")],
)
def test_what_is_no_date_is_refused_with_its_value(value: Any, words: str) -> None:
    with pytest.raises(ArgumentsRefused) as refused:
        resolve_templates({"x": "{{t.v+1d}}"}, {"t": {"v": value}})
    assert words in str(refused.value) and repr(value) in str(refused.value).replace('"', "'")


@pytest.mark.parametrize(("results", "issues"), [({}, MOST_ISSUES + 1), ({"x": {"y": 1}}, 1)])
def test_a_text_of_many_references_is_refused_after_the_first_of_them(results: dict[str, Any], issues: int) -> None:
    looked: list[str] = []

    class Seen(dict[str, Any]):
        def __contains__(self, name: object) -> bool:
            looked.append(str(name))
            return super().__contains__(name)

    with pytest.raises(ArgumentsRefused) as refused:
        resolve_templates({"a": "{{x.y}} " * (MOST_REFERENCES + 5)}, Seen(results))
    assert len(refused.value.errors) == issues
    assert len(looked) <= MOST_REFERENCES


def test_references_give_no_more_than_a_value_may_have() -> None:
    with pytest.raises(ArgumentsRefused, match="give more than"):
        resolve_templates({"a": "{{x}} " * 20}, {"x": "a" * (DEFAULTS.value_bytes // 10)})
