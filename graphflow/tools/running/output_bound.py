"""The output of a tool, kept within its bound: what is too long is cut where it is, and says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphflow.tools.result import ToolFailure, ToolResult
from graphflow.value_size import size_of


def bounded(value: Any, most: int, tool: str) -> Any:
    """What a tool gave, or as much of it as the bound allows: a `partial` result whose data begins with a note.

    Args:
        value: as the tool returned it, or its result; measured before it is copied or encoded.
        most: bytes, `bounds.tool_output_bytes`.
    """
    if size_of(value, most) <= most:
        return value
    room = max(most - 1_000, most // 2)  # the note and the names of the fields need some of it
    note = (
        f"Cut: {tool} gave more than the {most:,} bytes that the setting bounds.tool_output_bytes allows;"
        " ask for less, or for a part"
    )
    if not isinstance(value, ToolResult):
        data = value if isinstance(value, Mapping) else {"text" if isinstance(value, str) else "result": value}
        return ToolResult(status="partial", data=_noted(note, data, room), text=f"{note}.")
    if value.error is not None:
        error = ToolFailure(code=value.error.code, message=_cut(value.error.message, room // 2))
        return ToolResult(status="error", error=error, text=f"{note}. {_cut(value.text, room // 2)}")
    data = value.data or {"text": value.text}
    # Sources, statistics and context are small, unless they are what is too much.
    rest = {"sources": value.sources, "stats": value.stats, "context": value.context}
    if size_of(rest, most) > most // 4:
        rest = {"sources": [], "stats": {}, "context": {}}
    return ToolResult(status="partial", data=_noted(note, data, most // 2), text=f"{note}.", **rest)  # type: ignore[arg-type]


def _noted(note: str, data: Mapping[str, Any], room: int) -> dict[str, Any]:
    # First: the text that the model gets is cut once more, at its end.
    return {"note": note, "truncated": True, **_fitted(data, room)}


def _fitted(value: Any, room: int) -> Any:
    """As much of the value as there is room for, from its beginning."""
    if size_of(value, room) <= room:
        return value
    if isinstance(value, str):
        return _cut(value, room)
    if isinstance(value, bytes | bytearray):
        return bytes(value[:room])
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        out: dict[Any, Any] = {}
        for key, item in value.items():
            room -= size_of(key, room) + 2
            if room <= 0:
                break
            out[key] = _fitted(item, room)
            room -= size_of(out[key], room)
        return out
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for item in value:
            if room <= 2:
                break
            items.append(_fitted(item, room - 2))
            room -= 2 + size_of(items[-1], room)
        return items
    return None


def _cut(text: str, room: int) -> str:
    return text[:room].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
