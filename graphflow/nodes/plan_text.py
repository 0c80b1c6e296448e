"""From the text that a model answers to "make a plan" to the steps of the plan (spec 1.2, 3.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphflow.excerpts import excerpt_of
from graphflow.json_data import whole_characters

# A model may write anything: no two parts of this pattern can match the same character, so a fence that is never closed
# costs one pass over the text, not one for each line break.
_FENCE = re.compile(r"```[ \t]*+\w*+[^\S\n]*+\n(.*?)```", re.DOTALL)
_LISTS = ("steps", "tasks", "plan")
_FIELDS = {
    "title": ("title", "name", "task", "step"),
    "description": ("description", "details"),
    "goal": ("goal", "objective"),
    "successCriteria": ("successCriteria", "success_criteria", "criteria"),
}
"""Field of a step → the names that models use for it; the first one present counts."""


class PlanError(ValueError):
    """The text is not a plan; the message explains the error to the model."""


def parse_plan(text: str) -> list[dict[str, str]]:
    """The steps of a plan: `{taskId, title, description, goal, successCriteria, status}`, each of them `init`.

    The JSON may stand in a fence or between words; it is an object with `steps`, or the list itself. A step may be a text.
    Missing fields: `taskId` is `step-N`, `title` is `Step N`, the rest says what the title says.

    Raises:
        PlanError: there is no JSON, or it holds no steps.
    """
    try:
        given = _steps_in(_decoded(text))
        if not given:
            raise PlanError("the plan has no steps")
        ids = _TaskIds()
        return [_step(item, number, ids) for number, item in enumerate(given, 1)]
    except RecursionError as error:  # the decoder reads a little deeper than this code can walk
        raise PlanError("its JSON is nested too deeply") from error


def only_step(request: str) -> list[dict[str, str]]:
    """The fallback plan: one step, the request itself."""
    return parse_plan(
        msgspec.json.encode([{"title": whole_characters(request.strip()) or "Answer the request"}]).decode()
    )


def _decoded(text: str) -> Any:
    issue = "it holds no JSON"
    for candidate in _candidates(text):
        try:
            value = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            # Only text that looks like JSON gives an error that helps the model.
            issue = f"its JSON can't be read ({error})" if candidate.startswith(("{", "[")) else issue
            continue
        if isinstance(value, dict | list):
            return value
    raise PlanError(issue)


def _candidates(text: str) -> Iterator[str]:
    """Candidates for the JSON of a text: all of it, the content of a fence, the outermost brackets."""
    yield text.strip()
    for fenced in _FENCE.findall(text):
        yield fenced.strip()
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]


def _steps_in(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    for name in _LISTS:
        inner = value.get(name)
        if isinstance(inner, list):
            return inner
        if isinstance(inner, dict):
            return _steps_in(inner)
    raise PlanError(f'it has no list "steps"; its keys are {", ".join(map(repr, value)) or "none"}')


def _step(item: Any, number: int, ids: _TaskIds) -> dict[str, str]:
    if isinstance(item, str):
        item = {"title": item}
    if not isinstance(item, Mapping):
        raise PlanError(f"steps[{number - 1}] is {excerpt_of(item, 60)}, and a step is an object")
    said = {
        field: next(filter(None, (_text(item.get(name)) for name in names)), "") for field, names in _FIELDS.items()
    }
    title = said["title"] or f"Step {number}"
    goal = said["goal"] or title
    return {
        "taskId": ids.of(item, number),
        "title": title,
        "description": said["description"] or goal,
        "goal": goal,
        "successCriteria": said["successCriteria"] or f"This is reached: {goal}",
        "status": "init",
    }


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(filter(None, map(_text, value)))
    # Numbers are taken as text: models number their steps.
    return "" if value is None or isinstance(value, dict | bool) else str(value).strip()


class _TaskIds:
    """Unique ids for a plan's steps."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next = 1
        """Next number to try. Every lower `step-N` from a step's own number on is taken, so none is tried twice."""

    def of(self, item: Mapping[str, Any], number: int) -> str:
        """The step's own id; `step-N` if it has none or the id is taken."""
        found = _text(item.get("taskId")) or _text(item.get("id")) or f"step-{number}"
        if found in self._taken:
            self._next = max(self._next, number)
            while (found := f"step-{self._next}") in self._taken:
                self._next += 1
        self._taken.add(found)
        return found
