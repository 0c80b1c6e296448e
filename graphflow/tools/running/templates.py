"""Argument templates (spec 1.5): `{{tool_name.field}}`, dotted paths and list indexes, with date offsets.

An unresolvable reference raises `ArgumentsRefused` with what exists instead; its text never reaches the tool.
A resolved value is data: templates inside it are not resolved.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from graphflow.bounds import DEFAULTS
from graphflow.graph.definition.types import show
from graphflow.tools.envelope import json_text
from graphflow.tools.result import ArgumentsRefused
from graphflow.tools.schema import did_you_mean

# The text comes from a model and is read on the event loop, so no pattern may go back over what it has read: repetitions are
# possessive (`*+`), and each ends at a character that can't belong to it.
_REFERENCE = re.compile(r"\{\{(\s*+(?:[^\W\d]|[\d-]++[^\W\d][\w-]*+\.)[^{}]*+)\}\}")
"""`{{1, 2}}`, `{{3.5}}` or nested braces are ordinary text."""
MOST_REFERENCES = 1_000
"""In the arguments of one call."""
MOST_ISSUES = 20
"""That a call is refused with: to word one takes longer than to read it, and a model corrects no hundreds."""
MOST_CHARACTERS = 250_000
"""Of the arguments of a call that may hold references: longer ones would be searched for too long at once."""
_HEAD = re.compile(r"(?P<tool>[\d-]*+[^\W\d][\w-]*+)(?P<path>(?:\.[^\s.\[\]+]++|\[-?[0-9]++\])*)")
_SHIFT = re.compile(r"(?<!\s)\s*+[+-]\s*+[0-9]++\s*+[A-Za-z]++")
_INDEX = re.compile(r"-?[0-9]{1,18}")
_STEP = re.compile(r"\.([^\s.\[\]+]+)|\[(-?[0-9]+)\]")
_OFFSET = re.compile(r"([+-])\s*([0-9]+)\s*([A-Za-z]+)")
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:(?P<sep>[T ])[0-9]{2}:[0-9]{2}(?P<seconds>:[0-9]{2}(?P<fraction>[.,][0-9]++)?)?(?P<zone>\S*+))?"
)
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "w": timedelta(weeks=1)}
_FORMS = (
    "{{tool_name.field}}, {{tool_name.list[0].field}}, or with an offset on a date {{tool_name.date+1d}} (d, h, w, mo)"
)


def refers(arguments: Mapping[str, Any], length: int) -> bool:
    """Whether the arguments of a call hold a reference.

    Args:
        length: characters of all of them, as the model wrote them.

    Raises:
        ArgumentsRefused: they may hold one, and are too long to be searched.
    """
    if length <= MOST_CHARACTERS:
        return has_template(arguments)
    if _any_text(arguments, lambda text: "{{" in text):
        raise ArgumentsRefused(
            [f"arguments of more than {MOST_CHARACTERS:,} characters may not contain '{{{{'; give less in one call"]
        )
    return False


def has_template(value: Any) -> bool:
    """Whether any text in `value`, at any depth, contains a reference."""
    return _any_text(value, lambda text: _REFERENCE.search(text) is not None)


def _any_text(value: Any, is_one: Callable[[str], bool]) -> bool:
    if isinstance(value, str):
        return is_one(value)
    if isinstance(value, Mapping):
        return any(_any_text(key, is_one) or _any_text(item, is_one) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_any_text(item, is_one) for item in value)


def resolve_templates(arguments: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with every reference replaced by the value that it names.

    A text that is one whole reference becomes the value itself (number, list, …); inside a longer text a value is
    written as text, objects as JSON.

    Args:
        arguments: any JSON data.
        results: data of the latest result of each tool in this run, by tool name.

    Raises:
        ArgumentsRefused: with the references that can't be resolved, and what exists instead; or there are too many, or what they give
            is too large.
    """
    issues: list[str] = []
    resolved = _resolve(arguments, _Results(results), "", issues)
    if issues:
        raise ArgumentsRefused(issues)
    out: dict[str, Any] = resolved
    return out


class _Results:
    """What the references of one call name, and how much of it was taken."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self._left, self._size = MOST_REFERENCES, DEFAULTS.value_bytes

    def count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ArgumentsRefused(
                [f"the arguments have more than {MOST_REFERENCES:,} references; give the values themselves"]
            )

    def take(self, text: str) -> str:
        self._size -= len(text)
        if self._size < 0:
            most = f"{DEFAULTS.value_bytes:,} characters"
            raise ArgumentsRefused(
                [f"the references of the arguments give more than {most}; refer to parts of the results"]
            )
        return text


def _resolve(value: Any, results: _Results, place: str, issues: list[str]) -> Any:
    if isinstance(value, str):
        return _resolve_text(value, results, place, issues) if "{{" in value else value
    if isinstance(value, Mapping):
        return {
            # Keys may hold references as well; JSON knows text keys only.
            _as_text(_resolve(key, results, place, issues)): _resolve(
                item, results, f"{place}.{key}" if place else key, issues
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_resolve(item, results, f"{place}[{index}]", issues) for index, item in enumerate(value)]
    return value


def _resolve_text(text: str, results: _Results, place: str, issues: list[str]) -> Any:
    def value_of(braces: re.Match[str]) -> Any:
        results.count()
        try:
            return _value(braces[1].strip(), results.data)
        except ValueError as error:
            # Collected, not raised: the model gets the wrong references in one error and can fix them in one turn.
            issues.append(f"{place}: {show(braces[0])} can't be resolved: {error}")
            if len(issues) == MOST_ISSUES:
                raise ArgumentsRefused([*issues, "what follows was not looked at"]) from None
            return ""

    def written(braces: re.Match[str]) -> str:
        return results.take(_as_text(value_of(braces)))

    # One whole reference keeps the type of its value; inside a longer text it can only be text.
    whole = _REFERENCE.fullmatch(text.strip())
    return value_of(whole) if whole is not None else _REFERENCE.sub(written, text)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _value(inner: str, results: Mapping[str, Any]) -> Any:
    split = _where_offsets_begin(inner)
    head, offsets = _HEAD.fullmatch(inner, 0, split), inner[split:]
    if head is None:
        raise ValueError(f"this is not a reference; the forms are {_FORMS}")
    tool = head["tool"]
    if tool not in results:
        known = ", ".join(sorted(results)) or "no tool yet"
        raise ValueError(
            f"there is no result of {tool!r} in this run; results exist of {known}.{did_you_mean(tool, sorted(results))}"
        )
    value = results[tool]
    walked = tool
    for step in _STEP.finditer(head["path"]):
        value = _child(value, step[1] or step[2], walked)
        walked += step[0]
    return _shifted(value, offsets) if offsets else value


def _where_offsets_begin(inner: str) -> int:
    """The position of the first trailing offset in `inner`; its length if there are none.

    A name may contain what looks like an offset (`list-1d`). The name is taken as short as possible: only the first
    character of the last step, or of a tool without steps, always belongs to it.
    """
    begin, end = len(inner), -1
    for shift in _SHIFT.finditer(inner, max(inner.rfind("."), inner.rfind("[")) + 2):
        # A gap ends the chain: only offsets that reach the end of the reference without a break count.
        if shift.start() != end:
            begin = shift.start()
        end = shift.end()
    return begin if end == len(inner) else len(inner)


def _child(value: Any, step: str, walked: str) -> Any:
    if isinstance(value, Mapping):
        # JSON keys are text, so an index names the key of that text in an object, its zeros included.
        if step in value:
            return value[step]
        keys = [str(key) for key in value]
        raise ValueError(f"{walked} has no {step!r}; it has {', '.join(keys) or 'nothing'}.{did_you_mean(step, keys)}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        # `int` also reads `1_0` and the digits of other scripts, which a model never means as an index.
        if _INDEX.fullmatch(step) is None:
            raise ValueError(f"{walked} is a list of {len(value)}; {step!r} is not an index")
        try:
            return value[int(step)]
        except IndexError:
            raise ValueError(f"{walked} is a list of {len(value)}; there is no index {step}") from None
    raise ValueError(f"{walked} is {show(value)}, which has no fields")


def _shifted(value: Any, offsets: str) -> str:
    form = _ISO.fullmatch(value) if isinstance(value, str) else None
    if form is None:
        raise ValueError(f"an offset needs an ISO date or date-time, and this is {show(value)}")
    try:
        moment = datetime.fromisoformat(value.replace(",", ".").upper())
        hours = False
        for sign, count, unit in _OFFSET.findall(offsets):
            # Nine digits already leave the calendar; `int` of a longer text costs the square of its length. Leading
            # zeros go first, or the cut would take `+0000000001d` for no offset at all.
            moment = _moved(moment, int(sign + (count.lstrip("0")[:9] or "0")), unit)
            hours = hours or unit == "h"
    except OverflowError:
        raise ValueError(f"{value} with {offsets.strip()} lies outside of the years 1 to 9999") from None
    except ValueError as error:
        raise ValueError(f"{show(value)}: {error}") from None
    return _written(moment, form, hours)


def _moved(moment: datetime, count: int, unit: str) -> datetime:
    if unit in _UNITS:
        return moment + count * _UNITS[unit]
    if unit != "mo":
        raise ValueError(f"{unit!r} is not a unit of an offset; units are d, h, w, mo")
    months = moment.year * 12 + moment.month - 1 + count
    year, month = divmod(months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    # The last day of a shorter month, as calendars do: January 31 plus one month is in February.
    last_day = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last_day))


def _written(moment: datetime, form: re.Match[str], hours: bool) -> str:
    """In the form of the original, its fraction and zone letter by letter; hours turn a date into a date-time."""
    # The offset shifts the wall-clock time; the zone is copied from the original as text.
    moment = moment.replace(tzinfo=None)
    if form["sep"] is None:
        return moment.isoformat(timespec="seconds") if hours else moment.date().isoformat()
    text = moment.isoformat(sep=form["sep"], timespec="minutes" if form["seconds"] is None else "seconds")
    return text + (form["fraction"] or "") + form["zone"]
