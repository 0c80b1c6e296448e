"""What a chunk stream carries for the provider itself, merged as it comes: reasoning items and `extra_content`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphflow.models.deltas import Delta, StateDelta
from graphflow.models.replay.replay import AS_REASONING, Replay
from graphflow.models.replay.signed_arguments import SIGNED, fingerprint

_JOINED = ("text", "summary", "data")
"""Texts of a reasoning item that come in pieces; of every other field the first value stays."""


class StateCollector:
    """The provider state of one turn. `close` gives it out, whole."""

    __slots__ = ("_blocks", "_calls", "_details", "_extra", "_replay", "tagged")

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._details = ReasoningItems()
        self._extra: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._blocks: list[tuple[dict[str, Any], int, int, int]] = []
        """Of Claude: a block, and how many characters of reasoning, of text, and calls had come until then."""
        self.tagged: Sequence[tuple[bool, int]] = ()
        """Reasoning and text in the content, see `think_tags`."""

    def details(self, items: list[Any]) -> None:
        """Takes `reasoning_details` of one chunk."""
        self._details.take(items)

    def take_extra(self, content: Any, reasoned: int, said: int, calls: int) -> None:
        """Takes `extra_content` of a delta; `reasoned` and `said` characters and so many calls had come until then."""
        if not isinstance(content, dict):
            return
        given = content.get("anthropic")
        if isinstance(given, dict) and isinstance(given.get("signature"), str):
            self._blocks.append(({"type": "thinking", "signature": given["signature"]}, reasoned, said, calls))
        elif isinstance(given, dict) and isinstance(given.get("redacted"), str):
            self._blocks.append(({"type": "redacted_thinking", "data": given["redacted"]}, reasoned, said, calls))
        _merge(self._extra, content)

    def call(self, position: int, content: Any) -> None:
        """Takes `extra_content` of a call."""
        if isinstance(content, dict):
            _merge(self._calls.setdefault(position, {}), content)

    def close(self, out: list[Delta], *, reasoned: int, said: int, arguments: Sequence[str]) -> None:
        """Adds the state of the message and its calls.

        Args:
            reasoned: characters of reasoning; `said` is those of text.
            arguments: of each call.
        """
        replay = self._replay
        for position, content in sorted(self._calls.items()):
            if "extra_content" in replay.call_fields and content:
                signed = {"extra_content": content, SIGNED: fingerprint(arguments[position])}
                out.append(StateDelta(replay.stamped(signed), position))
        data: dict[str, Any] = {}
        if items := self._details.items():
            data["reasoning_details"] = items
        for owner in ("google", "vertex"):
            if isinstance(given := self._extra.get(owner), dict):
                given.pop("thought", None)  # marks one delta as a thought; on a message it would mark the answer too
        if any(self._extra.values()):
            data["extra_content"] = self._extra
        if reasoned:
            data |= {"reasoning_content": AS_REASONING, "reasoning": AS_REASONING, "thinking": AS_REASONING}
        if any(inside for inside, _ in self.tagged):
            data |= {"tagged": [list(piece) for piece in self.tagged], "tagged_reasoning": AS_REASONING}
        if self._blocks:
            data["content"] = self._content(reasoned, said, len(arguments))
        elif "content" in replay.message_fields:
            data.pop("thinking", None)  # unsigned, it is refused
        if kept := {name: value for name, value in data.items() if name in replay.message_fields}:
            out.append(StateDelta(replay.stamped(kept)))

    def _content(self, reasoned: int, said: int, calls: int) -> list[dict[str, Any]]:
        """The blocks of the turn, as `anthropic.blocks` keeps them."""
        out: list[dict[str, Any]] = []
        thought = told = called = 0
        for block, reasoned_then, said_then, called_then in [*self._blocks, (None, reasoned, said, calls)]:
            # What came since the last block stands before this one: text first, then calls.
            if said_then > told:
                out.append({"type": "text", "characters": said_then - told})
            out += [{"type": "tool_use"}] * (called_then - called)
            if reasoned_then > thought or (block is not None and block["type"] == "thinking"):
                signed = (
                    block
                    if block is not None and block["type"] == "thinking"
                    else {"type": "thinking", "signature": ""}
                )
                out.append(signed | {"characters": reasoned_then - thought})
            if block is not None and block["type"] != "thinking":
                out.append(block)
            thought, told, called = reasoned_then, said_then, called_then
        return out


class ReasoningItems:
    """Items of `reasoning_details`, merged by `(type, index)`: a signature signs its block's whole text."""

    __slots__ = ("_items", "_pieces", "_places")

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._places: dict[tuple[Any, int], int] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        """(place, field) → the text so far; joined at the end, as a block may come in thousands of pieces."""

    def take(self, items: list[Any]) -> None:
        for item in items:
            place = self._place(item) if isinstance(item, dict) else None
            if place is None:
                self._add(item)
            else:
                self._extend(place, item)

    def items(self) -> list[Any]:
        """The whole items, in the order in which they began."""
        for (place, name), pieces in self._pieces.items():
            self._items[place][name] = "".join(pieces)
        return self._items

    def _place(self, item: dict[str, Any]) -> int | None:
        """Where the item goes on; None where it begins."""
        kind, index = item.get("type"), item.get("index")
        if isinstance(index, int):
            place = self._places.get((kind, index))
        else:
            # Without an index only what follows its own beginning at once is a piece; an encrypted item is whole.
            place = len(self._items) - 1 if self._items and kind in ("reasoning.text", "reasoning.summary") else None
        if place is None or not isinstance(known := self._items[place], dict) or known.get("type") != kind:
            return None
        if not isinstance(index, int) and ("index" in known or known.get("signature")):
            return None
        # Two ids are two items, whatever their index says: each call of a turn may have one.
        return None if item.get("id") and known.get("id") and item["id"] != known["id"] else place

    def _add(self, item: Any) -> None:
        place = len(self._items)
        self._items.append(dict(item) if isinstance(item, dict) else item)
        if not isinstance(item, dict):
            return
        if isinstance(index := item.get("index"), int):
            self._places[item.get("type"), index] = place
        for name in _JOINED:
            if isinstance(text := item.get(name), str):
                self._pieces[place, name] = [text]

    def _extend(self, place: int, item: dict[str, Any]) -> None:
        known = self._items[place]
        for name, value in item.items():
            if name in _JOINED and isinstance(value, str):
                self._pieces.setdefault((place, name), []).append(value)
            elif value is not None and (name == "signature" or known.get(name) is None):
                known[name] = value


def _merge(known: dict[str, Any], more: dict[str, Any]) -> None:
    """Adds fields to `known`, those of objects in it too; lists go on, of all else a later value wins, but for null."""
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(inner := known.setdefault(name, {}), dict):
            _merge(inner, value)
        elif isinstance(value, list) and isinstance(before := known.get(name), list):
            known[name] = [*before, *value]
        elif value is not None:
            known[name] = value
