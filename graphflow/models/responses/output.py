"""The output items of one Responses turn, as they go back with the next request: reasoning before what it led to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphflow.models.responses.events import part_texts

HOSTED = frozenset(
    {"compaction", "web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools", "mcp_call"}
)
"""Items that the service made and takes back whole."""


class OutputItems:
    """Collects the items of a turn. Texts and calls are not stored twice: their items say how much of the message is theirs."""

    def __init__(self) -> None:
        self._items: list[tuple[int | None, dict[str, Any]]] = []
        self._open: dict[Any, dict[str, Any]] = {}

    def message(self, index: int | None, item: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The entry of a message; its `characters` grow as its text arrives."""
        entry = self._entry("message", index, {"characters": 0})
        if item is not None and isinstance(item.get("phase"), str):
            entry["phase"] = item["phase"]
        return entry

    def call(self, index: int | None, position: int) -> None:
        if position >= 0:
            self._entry("function_call", ("call", position), {"position": position}, index)

    def whole(self, index: int | None, item: Mapping[str, Any]) -> None:
        """Takes a finished reasoning item, or one that the service made."""
        kind = item["type"]
        kept = _reasoning(item) if kind == "reasoning" else dict(item)
        # Without its content an item is a reference to what the service did not store.
        if kind != "reasoning" or kept.get("encrypted_content") or kept.get("content"):
            self._entry(kind, index if index is not None else kept.get("id"), {}).update(kept)

    @property
    def has_reasoning(self) -> bool:
        return any(item["type"] == "reasoning" for _, item in self._items)

    def state(self) -> list[dict[str, Any]] | None:
        """The items in the order of the service; None where the message says all of it."""
        if not any(item["type"] not in ("message", "function_call") or "phase" in item for _, item in self._items):
            return None
        indexes = [index for index, _ in self._items if index is not None]
        # The same index for several items says nothing: then they stand as they came.
        if len(set(indexes)) == len(self._items):
            self._items.sort(key=lambda pair: pair[0] or 0)
        return [item for _, item in self._items]

    def _entry(self, kind: str, key: Any, fields: dict[str, Any], index: int | None = None) -> dict[str, Any]:
        entry = self._open.get((kind, key))
        if entry is None:
            entry = self._open[kind, key] = {"type": kind, **fields}
            place = index if kind == "function_call" else key
            self._items.append((place if isinstance(place, int) else None, entry))
        return entry


def _reasoning(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a reasoning item that the service takes back, as far as they are what it takes."""
    kept = {name: item[name] for name in ("type", "id", "encrypted_content") if isinstance(item.get(name), str)}
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        if texts := part_texts(item.get(name), kind):
            kept[name] = [{"type": kind, "text": text} for text in texts]
    return kept
