"""The function calls of one Responses turn: which call an event is about, and what of its arguments is new."""

from __future__ import annotations

from typing import Any

import msgspec

from graphflow.models.deltas import Delta, ToolCallDelta
from graphflow.models.replay.call_ids import UniqueCallIds
from graphflow.models.responses.events import ResponseEvent


class _ResponseCall:
    __slots__ = ("ended", "id", "index", "name", "position", "text", "wire_id")

    def __init__(self, wire_id: str | None, index: int | None) -> None:
        self.wire_id = wire_id
        self.index = index
        self.id = ""
        self.name = ""
        self.position = -1
        """In the turn; -1 until it is given out."""
        self.text: list[str] = []
        self.ended = False


class ResponseCalls:
    """Turns events of function calls into `ToolCallDelta`s.

    An event names its call by `item_id`, else by `output_index`, else it is the last one: some gateways send another id with
    each event, others the same index with each item.
    """

    def __init__(self, ids: UniqueCallIds) -> None:
        self._ids = ids
        self._calls: list[_ResponseCall] = []
        """Those that were given out."""
        self._by_item: dict[str, _ResponseCall] = {}
        self._by_index: dict[int, _ResponseCall] = {}
        self._last: _ResponseCall | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def added(self, item: dict[str, Any], index: int | None, out: list[Delta]) -> int:
        """Takes the item that begins a call; gives the call's position, -1 while it has no name."""
        call = self._known(item, index) or self._open(item, index)
        self._name(call, item, out)
        arguments = _text(item.get("arguments"))
        if arguments and not call.text:
            self._extend(call, arguments, out)
        return call.position

    def delta(self, event: ResponseEvent, out: list[Delta]) -> None:
        """Takes a piece of arguments."""
        if event.delta:
            self._extend(self._found(event.item_id, event.output_index), event.delta, out)

    def whole(self, event: ResponseEvent, out: list[Delta]) -> None:
        """Takes the arguments in full, as they come after their pieces."""
        if event.arguments is not None:
            self._complete(self._found(event.item_id, event.output_index), _text(event.arguments), out)

    def done(self, item: dict[str, Any], index: int | None, out: list[Delta]) -> int:
        """Takes the item of a whole call, whose arguments win over the pieces; gives its position."""
        call = self._known(item, index) or self._same_id(item) or self._open(item, index)
        self._name(call, item, out)
        if "arguments" in item:
            self._complete(call, _text(item["arguments"]), out)
        call.ended = True
        return call.position

    def close(self, out: list[Delta]) -> None:
        """Adds what a call without arguments lacks."""
        for call in self._calls:
            if not call.text:
                self._extend(call, "{}", out)

    def _known(self, item: dict[str, Any], index: int | None) -> _ResponseCall | None:
        wire_id = _id(item.get("call_id"))
        for call in (self._by_item.get(_id(item.get("id")) or ""), self._by_index.get(-1 if index is None else index)):
            # The id of the call decides: ids of items and indexes are used for several calls by some gateways.
            if call is not None and (wire_id is None or call.wire_id in (None, wire_id)):
                return call
        return None

    def _same_id(self, item: dict[str, Any]) -> _ResponseCall | None:
        wire_id = _id(item.get("call_id"))
        return next((call for call in self._calls if wire_id and call.wire_id == wire_id and not call.ended), None)

    def _found(self, item_id: str | None, index: int | None) -> _ResponseCall:
        by_item = self._by_item.get(item_id) if item_id else None
        at_index = None if index is None else self._by_index.get(index)
        if by_item is None or (at_index is not None and by_item.index != index):
            by_item = at_index
        if by_item is None and index is None and item_id is None:
            by_item = self._last
        # Arguments before their item: held until the item names the call.
        return by_item or self._open({"id": item_id}, index)

    def _open(self, item: dict[str, Any], index: int | None) -> _ResponseCall:
        call = _ResponseCall(_id(item.get("call_id")), index)
        if item_id := _id(item.get("id")):
            self._by_item[item_id] = call
        if index is not None:
            self._by_index[index] = call
        self._last = call
        return call

    def _name(self, call: _ResponseCall, item: dict[str, Any], out: list[Delta]) -> None:
        if call.wire_id is None:
            call.wire_id = _id(item.get("call_id"))
        name = item.get("name")
        if call.position >= 0 or not isinstance(name, str) or not name:
            return
        call.name = name
        call.id = self._ids.unique(call.wire_id)
        call.position = len(self._calls)
        self._calls.append(call)
        out.append(ToolCallDelta(call.position, call.id, name, "".join(call.text)))

    def _extend(self, call: _ResponseCall, text: str, out: list[Delta]) -> None:
        call.text.append(text)
        if call.position >= 0:
            out.append(ToolCallDelta(call.position, None, None, text))

    def _complete(self, call: _ResponseCall, whole: str, out: list[Delta]) -> None:
        so_far = "".join(call.text)
        if whole == so_far or not whole:
            return
        if whole.startswith(so_far):
            self._extend(call, whole[len(so_far) :], out)
            return
        call.text = [whole]
        if call.position >= 0:
            out.append(ToolCallDelta(call.position, None, None, whole, restart=True))


def _id(value: Any) -> str | None:
    # Some gateways send numbers; they go back as text.
    return str(value) if isinstance(value, str | int) and value != "" and not isinstance(value, bool) else None


def _text(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
