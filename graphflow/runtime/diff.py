"""JSON Patch (RFC 6902) between two JSON-like values: what `diff` shows."""

from __future__ import annotations

from typing import Any


def json_patch(old: Any, new: Any, pointer: str = "") -> list[dict[str, Any]]:
    """Operations that make `new` of `old`. Lists are compared by their common head; messages as their fields."""
    if old is new or (type(old) is type(new) and old == new):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        return _objects(old, new, pointer)
    if isinstance(old, list) and isinstance(new, list):
        return _lists(old, new, pointer)
    return [{"op": "replace", "path": pointer, "value": new}]


def _objects(old: dict[str, Any], new: dict[str, Any], pointer: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for key in old:
        if key not in new:
            out.append({"op": "remove", "path": f"{pointer}/{_escape(key)}"})
    for key, value in new.items():
        place = f"{pointer}/{_escape(key)}"
        out += json_patch(old[key], value, place) if key in old else [{"op": "add", "path": place, "value": value}]
    return out


def _lists(old: list[Any], new: list[Any], pointer: str) -> list[dict[str, Any]]:
    common = min(len(old), len(new))
    out: list[dict[str, Any]] = []
    for index in range(common):
        out += json_patch(old[index], new[index], f"{pointer}/{index}")
    out += [{"op": "remove", "path": f"{pointer}/{index}"} for index in range(len(old) - 1, common - 1, -1)]
    out += [{"op": "add", "path": f"{pointer}/-", "value": value} for value in new[common:]]
    return out


def _escape(key: str) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
