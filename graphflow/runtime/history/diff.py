"""JSON Patch (RFC 6902) between two JSON-like values: what `diff` shows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from graphflow.graph.core.immutable import thaw
from graphflow.graph.core.machine import Frame, Machine, all_frames


async def diff(old: Machine, new: Machine) -> dict[str, list[dict[str, Any]]]:
    """`diff_of` beside the event loop: a value may have megabytes, or a branch for each of its items."""
    return await asyncio.to_thread(diff_of, old, new)


def diff_of(old: Machine, new: Machine) -> dict[str, list[dict[str, Any]]]:
    """What changed from one machine to another: patches by state key, keys below the root after their frame's path.

    For a branch, only the keys that differ from its parent's.
    """
    before, after = _values(old), _values(new)
    out = {}
    for key in {**_shown(old), **_shown(new)}:
        # Values are frozen, so the same object means no change, and large values are not walked.
        if before.get(key) is after.get(key):
            continue
        if patch := json_patch(thaw(before.get(key)), thaw(after.get(key))):
            out[key] = patch
    return out


def _values(machine: Machine) -> dict[str, Any]:
    return {
        f"{frame.path}/{key}" if frame.path else key: value
        for frame in all_frames(machine)
        for key, value in frame.state.items()
    }


def _shown(machine: Machine) -> dict[str, None]:
    """The keys that are compared: of a branch on its parent's state those that differ from it."""
    return {
        f"{frame.path}/{key}" if frame.path else key: None
        for frame in all_frames(machine)
        for key in _own(frame, machine)
    }


def _own(frame: Frame, machine: Machine) -> Mapping[str, Any]:
    """The frame's values; of a branch on its parent's state those that differ from it."""
    parent = machine.frames.get(frame.parent)
    if frame.branch is None or parent is None or parent.graph != frame.graph:
        return frame.state
    above = parent.state
    return {key: value for key, value in frame.state.items() if key not in above or differ(above[key], value)}


def differ(old: Any, new: Any) -> bool:
    """Whether two values of a state differ; other than with `==`, `1` differs from `true` and from `1.0`."""
    # Values are frozen, so the same object means no change, and large values are not walked.
    return old is not new and bool(json_patch(thaw(old), thaw(new)))


def json_patch(old: Any, new: Any, pointer: str = "") -> list[dict[str, Any]]:
    """Operations that make `new` of `old`. Lists are compared by their common head; messages as their fields."""
    if old is new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        return _objects(old, new, pointer)
    if isinstance(old, list) and isinstance(new, list):
        return _lists(old, new, pointer)
    if type(old) is type(new) and old == new:  # not of lists and objects: to Python [1] equals [true]
        return []
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
    # From the end, so that removing one does not move the index of the next.
    out += [{"op": "remove", "path": f"{pointer}/{index}"} for index in range(len(old) - 1, common - 1, -1)]
    out += [{"op": "add", "path": f"{pointer}/-", "value": value} for value in new[common:]]
    return out


def _escape(key: str) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
