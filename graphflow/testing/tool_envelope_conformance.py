"""The response envelope as an acceptance test (spec 8.3): what every tool's answer must look like.

`check_envelope` is for anybody's tools:

```python
assert_envelope(to_envelope(result), tool="Read")
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.errors import TOOL_ERROR_CODES

STATUSES = ("success", "partial", "error")
KEYS = frozenset({"status", "data", "text", "stats", "context"})
# Stems: any form of the word counts (`truncated`, `truncation`).
_REASONS = (
    "truncat",
    "cut",
    "partial",
    "incomplete",
    "fallback",
    "dry",
    "limit",
    "exit",
    "timed out",
    "stopped",
    "shown",
    "failed",
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is wrong with an envelope."""

    errors: tuple[str, ...]
    """Breaks of the protocol."""
    warnings: tuple[str, ...]
    """Allowed, and worth a look."""

    @property
    def ok(self) -> bool:
        return not self.errors


def check_envelope(envelope: Any, *, tool: str | None = None) -> Report:
    """Everything that is wrong with an envelope.

    Args:
        envelope: decoded JSON.
        tool: name of a coding tool (`LS`, `Glob`, `Grep`, `Read`, `Write`, `Edit`, `MultiEdit`), whose data has a shape.
    """
    if not isinstance(envelope, Mapping):
        return Report(errors=(f"the envelope is {type(envelope).__name__}; expected an object",), warnings=())
    errors = [*_key_errors(envelope), *_part_errors(envelope), *_error_errors(envelope), *_partial_errors(envelope)]
    # The data of an error is of no shape: the tool may have failed before it had any.
    if (
        tool is not None
        and tool in _SHAPES
        and envelope.get("status") != "error"
        and isinstance(envelope.get("data"), Mapping)
    ):
        errors += [f"data of {tool}: {issue}" for issue in _SHAPES[tool](envelope["data"])]
    # Warnings read parts that a broken envelope may lack.
    return Report(errors=tuple(errors), warnings=tuple(_warnings(envelope)) if not errors else ())


def assert_envelope(envelope: Any, *, tool: str | None = None) -> None:
    """Raises `AssertionError` with every break of the protocol."""
    if report := check_envelope(envelope, tool=tool).errors:
        raise AssertionError("\n".join(report))


def _key_errors(envelope: Mapping[str, Any]) -> Iterator[str]:
    allowed = KEYS | ({"error"} if envelope.get("status") == "error" else set())
    for key in sorted(KEYS - set(envelope)):
        yield f"the key {key!r} is missing"
    for key in sorted(set(map(str, envelope)) - allowed):
        yield f"the key {key!r} does not belong there"


def _part_errors(envelope: Mapping[str, Any]) -> Iterator[str]:
    if "status" in envelope and envelope["status"] not in STATUSES:
        yield f"status is {envelope['status']!r}; expected one of {', '.join(STATUSES)}"
    for key in ("data", "stats", "context"):
        if key in envelope and not isinstance(envelope[key], Mapping):
            yield f"{key} is {envelope[key]!r}; expected an object"
    text = envelope.get("text", "-")
    if not isinstance(text, str) or not text.strip():
        yield f"text is {text!r}; expected words"
    stats, context = envelope.get("stats"), envelope.get("context")
    if isinstance(stats, Mapping) and not _is_number(stats.get("time_ms")):
        yield f"stats.time_ms is {stats.get('time_ms')!r}; expected a number"
    if isinstance(context, Mapping):
        if not isinstance(context.get("cwd"), str):
            yield f"context.cwd is {context.get('cwd')!r}; expected a text"
        if not isinstance(context.get("params_input"), Mapping):
            yield f"context.params_input is {context.get('params_input')!r}; expected an object"


def _error_errors(envelope: Mapping[str, Any]) -> Iterator[str]:
    if envelope.get("status") != "error":
        return
    error = envelope.get("error")
    if not isinstance(error, Mapping):
        yield f"error is {error!r}; status error needs an object"
        return
    if error.get("code") not in TOOL_ERROR_CODES:
        yield f"error.code is {error.get('code')!r}; expected one of {', '.join(sorted(TOOL_ERROR_CODES))}"
    if not isinstance(error.get("message"), str) or not error["message"].strip():
        yield f"error.message is {error.get('message')!r}; expected words"


def _partial_errors(envelope: Mapping[str, Any]) -> Iterator[str]:
    data = envelope.get("data")
    if isinstance(data, Mapping) and envelope.get("status") == "success":
        for key in ("truncated", "fallback_used"):
            if data.get(key) is True:
                yield f"data.{key} is true; status must be partial"


def _warnings(envelope: Mapping[str, Any]) -> Iterator[str]:
    text, status = str(envelope["text"]), envelope["status"]
    if len(text) < 10:
        yield f"text is short: {text!r}"
    if status == "error" and envelope["data"]:
        yield "an error has data; {} is usual"
    if status == "error" and text.strip() == str(envelope["error"]["message"]).strip():
        yield "the text of an error names no next step"
    if status == "partial" and not any(word in text.lower() for word in _REASONS):
        yield "the text of a partial result does not say why it is partial"


def _is_number(value: Any) -> bool:
    # In Python `true` is also the number 1.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _entries(data: Mapping[str, Any]) -> Iterator[str]:
    for item in _objects(data, "entries"):
        if not isinstance(item.get("path"), str) or item.get("type") not in ("file", "dir", "link"):
            yield f"the entry {item!r} needs `path` and `type` file, dir or link"


def _paths(data: Mapping[str, Any]) -> Iterator[str]:
    paths = data.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        yield f"paths is {paths!r}; expected a list of texts"


def _matches(data: Mapping[str, Any]) -> Iterator[str]:
    for item in _objects(data, "matches"):
        line = item.get("line")
        if not isinstance(item.get("file"), str) or not isinstance(item.get("text"), str) or type(line) is not int:
            yield f"the match {item!r} needs `file`, `line` (a whole number) and `text`"


def _content(data: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(data.get("content"), str):
        yield f"content is {data.get('content')!r}; expected a text"


def _applied(data: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(data.get("applied"), bool):
        yield f"applied is {data.get('applied')!r}; expected true or false"


def _objects(data: Mapping[str, Any], key: str) -> Iterable[Mapping[str, Any]]:
    items = data.get(key)
    if not isinstance(items, list):
        return [{key: items}]  # one object that no check accepts: the error then shows what was given
    return [item if isinstance(item, Mapping) else {"item": item} for item in items]


_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "LS": _entries, "Glob": _paths, "Grep": _matches, "Read": _content,
    "Write": _applied, "Edit": _applied, "MultiEdit": _applied,
}  # fmt: skip
