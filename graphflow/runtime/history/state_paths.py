"""Paths into a state, and what records and log entries wrote at their ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphflow.checkpoints.record_decoder import RecordBody
from graphflow.errors import StateError
from graphflow.graph.core.channels import Update
from graphflow.graph.core.immutable import LogEntry
from graphflow.graph.core.machine import ROOT

Part = str | int
Place = tuple[int, int]
_PART = re.compile(
    r"""\.(?P<name>[A-Za-z_]\w*) | \[(?P<index>-?\d+)\] | \[(?P<quote>["'])(?P<text>.*?)(?P=quote)\]""", re.VERBOSE
)
MISSING = object()


def parse(expression: str) -> tuple[str, tuple[Part, ...]]:
    """The state key and the way into its value.

    Raises:
        StateError: it is not a path.
    """
    text = expression.strip()
    text = text if text.startswith("[") else f".{text}"
    parts: list[Part] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise StateError(
                f"{expression!r} is not a path into the state, from {text[at:]!r} on: write state.KEY, .name, [index]",
                code="invalid_input",
            )
        name, index = match["name"], match["index"]
        parts.append(name if name is not None else int(index) if index is not None else match["text"])
        at = match.end()
    # A lone `state` is a key of that name.
    if parts[:1] == ["state"] and len(parts) > 1:
        parts = parts[1:]
    return str(parts[0]), tuple(parts[1:])


def read(value: Any, parts: Sequence[Part]) -> Any:
    """The value at the end of the way, or a mark for none."""
    for part in parts:
        try:
            if isinstance(value, Mapping) or (isinstance(part, int) and isinstance(value, Sequence)):
                value = value[part]  # type: ignore[index] # an index where it is not a mapping
            else:
                # Messages are structs: their fields are attributes.
                value = getattr(value, str(part))
        except (KeyError, IndexError, AttributeError, TypeError):
            return MISSING
    return value


def origins(entries: Sequence[LogEntry], above: Sequence[Place] = (), frame: int = ROOT) -> list[Place]:
    """For each item of the list that the entries make, (frame, ordinal) of the entry that put it there.

    Args:
        above: of the items that the list began with.
    """
    out = list(above)
    for ordinal, entry in enumerate(entries):
        match entry[0]:
            case "+":
                out.append((frame, ordinal))
            case "=":
                out[entry[1]] = (frame, ordinal)
            case "-":
                del out[entry[1]]
            case "*":
                out[:] = [(frame, ordinal)] * len(entry[1])
    return out


def written_at(body: RecordBody, number: int, key: str, parts: Sequence[Part]) -> Any:
    """What a record wrote at the end of the way; the mark for none when it did not write there."""
    change = body.patch.frames.get(number)
    return MISSING if change is None or change.update is None else written_in(change.update, key, parts)


def written_in(update: Update, key: str, parts: Sequence[Part]) -> Any:
    if key in update.sets:
        # A replaced value that lacks the part still wrote it: it is gone.
        found = read(update.sets[key], parts)
        return None if found is MISSING else found
    changed = update.merges.get(key)
    if changed is None or (parts and parts[0] not in changed):
        return MISSING
    return read(changed, parts)
