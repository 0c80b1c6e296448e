"""The adapter for results of the older dict format (spec 8.3, `ENABLE_LEGACY_ADAPTER`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.errors import TOOL_ERROR_CODES
from graphflow.tools.result import ToolResult, failed

_MARKS = frozenset({"flags", "aborted_reason", "root_resolved"})
"""Keys that only the older format has; `items` or `matches` alone may be any tool's own data."""
# By substring, the first match wins: `outside` also occurs in texts about permissions, so the narrower code comes first.
_WORDS = (
    ("NOT_FOUND", ("not found", "no such", "does not exist")),
    ("ACCESS_DENIED", ("access denied", "outside", "not allowed")),
    ("PERMISSION_DENIED", ("permission",)),
    ("TIMEOUT", ("timeout", "timed out")),
    ("INVALID_PARAM", ("invalid", "must be", "required", "missing")),
)


def is_legacy(data: Mapping[str, Any]) -> bool:
    """Whether a dict is a result of the older format: an error text, or listings with flags."""
    return _error_of(data) is not None or not _MARKS.isdisjoint(data)


def read_legacy(data: Mapping[str, Any]) -> ToolResult:
    """The result behind an older dict; `items` become `entries`, flags become the status."""
    if (error := _error_of(data)) is not None:
        rest = {key: value for key, value in data.items() if key != "error"}
        return failed(_code_of(data, error), error, "Change the arguments and try again.", data=rest)
    context = {"path_resolved": data["root_resolved"]} if "root_resolved" in data else {}
    flags = data.get("flags") if isinstance(data.get("flags"), Mapping) else {}
    cut = bool(flags.get("truncated")) or bool(data.get("aborted_reason"))  # type: ignore[union-attr]
    new = {_renamed(key, value): value for key, value in data.items() if key not in _MARKS}
    if not cut:
        return ToolResult(data=new, context=context)
    reason = data.get("aborted_reason") or "the size limit"
    text = f"The result is incomplete (cut by {reason}). Narrow the request to see the rest."
    return ToolResult(status="partial", data={**new, "truncated": True}, text=text, context=context)


def _error_of(data: Mapping[str, Any]) -> str | None:
    # `ok: true` beside an error text is a tool's own data, a validator's report for one.
    error = data.get("error")
    return error if isinstance(error, str) and error.strip() and data.get("ok") is not True else None


def _code_of(data: Mapping[str, Any], text: str) -> str:
    # A tool that names one of our codes decides; a code of its own says nothing here, and most give the text alone.
    if isinstance(code := data.get("code"), str) and code in TOOL_ERROR_CODES:
        return code
    lowered = text.lower()
    return next((code for code, words in _WORDS if any(word in lowered for word in words)), "INTERNAL_ERROR")


def _renamed(key: str, value: Any) -> str:
    """`items` are entries; `matches` that are bare paths are paths."""
    if key == "items":
        return "entries"
    if key == "matches" and isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return "paths"
    return key
