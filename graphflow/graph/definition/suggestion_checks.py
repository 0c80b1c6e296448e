"""Suggestions of words are tried before they are shown: one that only leads to the next error is taken back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphflow.errors import Issue
from graphflow.graph.definition.json_pointer import escape, unescape
from graphflow.suggestions import Suggestion

TRIED = 20
"""Suggestions of one document that are tried, each by a check of the whole; those of others are not shown."""
NODES = 2_000
"""Nodes that the trials of one document may check together, so that a huge document is not checked twenty times."""

Check = Callable[[Mapping[str, Any]], Iterable[Issue]]


def keep_working(data: Mapping[str, Any], issues: Sequence[Issue], check: Check) -> list[Issue]:
    """The issues; of a suggestion that does not help only the allowed words remain.

    It helps if the place has no error any more and, where it was the only error, nothing else has one.

    Args:
        data: the document that the issues are about.
        check: all issues of another version of it.
    """
    nodes = data.get("nodes")
    left = max(1, min(TRIED, NODES // max(1, len(nodes) if isinstance(nodes, Mapping) else 1)))
    alone = sum(issue.severity == "error" for issue in issues) == 1
    out = []
    for issue in issues:
        if isinstance(issue.hint, Suggestion):
            out.append(replace(issue, hint=_kept(data, issue, issue.hint, check if left > 0 else None, alone=alone)))
            left -= 1
        else:
            out.append(issue)
    return out


def _kept(data: Mapping[str, Any], issue: Issue, hint: Suggestion, check: Check | None, *, alone: bool) -> str | None:
    """What remains of a hint."""
    steps = [unescape(token) for token in issue.pointer.split("/")[1:]]
    if steps and steps[-1] == hint.wrong and _stands(data, [*steps[:-1], hint.word]):
        return f"{hint.word!r} is there already; remove {hint.wrong!r}"
    return str(hint) if check is not None and _helps(data, steps, hint, check, alone=alone) else hint.rest


def _stands(value: Any, steps: Sequence[str]) -> bool:
    for step in steps:
        if not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True


def _helps(data: Mapping[str, Any], steps: Sequence[str], hint: Suggestion, check: Check, *, alone: bool) -> bool:
    after = [*steps[:-1], hint.word] if steps and steps[-1] == hint.wrong else steps
    fixed = _fixed(data, steps, hint)
    if fixed is None:
        return False
    place = "".join(f"/{escape(step)}" for step in after)
    errors = [found for found in check(fixed) if found.severity == "error"]
    return not errors if alone else not any(f"{found.pointer}/".startswith(f"{place}/") for found in errors)


def _fixed(value: Any, steps: Sequence[str], hint: Suggestion) -> Any:
    """A copy in which the word stands at the place; None if it can't stand there."""
    if not steps:
        if not isinstance(value, str):
            return None
        fixed = re.sub(rf"(?<!\w){re.escape(hint.wrong)}(?!\w)", lambda _: hint.word, value)
        return None if fixed == value else fixed
    step, rest = steps[0], steps[1:]
    if isinstance(value, Mapping) and step in value:
        if not rest and step == hint.wrong:
            return (
                None if hint.word in value else {hint.word if key == step else key: one for key, one in value.items()}
            )
        inner = _fixed(value[step], rest, hint)
        return None if inner is None else {**value, step: inner}
    if isinstance(value, list | tuple) and step.isdecimal() and int(step) < len(value):
        inner = _fixed(value[int(step)], rest, hint)
        return None if inner is None else [*value[: int(step)], inner, *value[int(step) + 1 :]]
    return None
