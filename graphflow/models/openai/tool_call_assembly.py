"""The tool calls of one turn, assembled although providers number and name them in many ways.

A call is identified by its id, else by its index, else it is the one that was open last; a new id
that comes with a name opens a call even on an index that is in use.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from graphflow.models.deltas import Delta, ToolCallDelta
from graphflow.models.openai.chunks import CallPart, FunctionPart
from graphflow.models.openai.state import StateCollector
from graphflow.models.replay.call_ids import UniqueCallIds


class _PartialCall:
    __slots__ = ("id", "index", "last", "name", "parts", "position", "started", "wire_id")

    def __init__(self, position: int, call_id: str, wire_id: str | None, index: int | None) -> None:
        self.position = position
        self.id = call_id
        self.wire_id = wire_id
        self.index = index
        self.name = ""
        self.parts: list[str] = []
        self.last = ""  # last character of the arguments that is no white space
        self.started = False

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def append(self, fragment: str) -> None:
        if fragment:
            self.parts.append(fragment)
            self.last = fragment.rstrip()[-1:] or self.last

    def is_whole(self) -> bool:
        """Whether the arguments so far are one complete JSON object."""
        # The last character rules out nearly every fragment without parsing the text again.
        return self.last == "}" and isinstance(_parsed(self.text), dict)


class CallTable:
    """Turns the call parts of chunks into `ToolCallDelta`s with stable positions and unique ids."""

    def __init__(
        self,
        *,
        offered: Collection[str],
        ids: UniqueCallIds,
        state: StateCollector,
    ) -> None:
        self._offered = frozenset(offered)
        self._ids = ids
        self._state = state
        self._calls: list[_PartialCall] = []
        self._by_id: dict[str, _PartialCall] = {}
        self._by_index: dict[int, _PartialCall] = {}
        self._current: _PartialCall | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, parts: list[CallPart], out: list[Delta]) -> None:
        """Adds the parts of one chunk; what they give goes to `out`."""
        if len(parts) == 1 and self._goes_on(parts[0], out):
            return
        # Positions that occurred in this chunk: without id and index, a second entry of one chunk is a second call.
        seen: set[int] = set()
        for part in parts:
            function = part.function or _NO_FUNCTION
            call = self._find(part, function, seen) or self._open(part)
            seen.add(call.position)
            if part.extra_content is not None:
                self._state.call(call.position, part.extra_content)
            self._extend(call, function, out)

    def arguments(self) -> list[str]:
        """Of each call, in the order of positions."""
        return [call.text for call in self._calls]

    def flush(self, out: list[Delta]) -> None:
        """At the end of the turn: calls that were held, and `{}` for those that came without arguments."""
        for call in self._calls:
            if call.started and call.parts:
                continue
            if not call.parts:
                call.append("{}")
            # Calls still held for a longer name are given out now: nothing that could follow changes the name.
            out.append(self._begin(call) if not call.started else ToolCallDelta(call.position, None, None, "{}"))

    def _goes_on(self, part: CallPart, out: list[Delta]) -> bool:
        """Takes what nearly every part is, a bare fragment for a known index; whether it was one."""
        function = part.function
        if part.id or part.index is None or function is None or function.name or part.extra_content is not None:
            return False
        call, fragment = self._by_index.get(part.index), function.arguments
        # Anything unusual takes the slow path; this one runs for nearly every argument delta.
        if call is None or not call.parts or type(fragment) is not str or not fragment or not call.started:
            return False
        # A whole object followed by another one: the slow path decides whether it replaces the first or opens a call.
        if call.last == "}" and fragment.lstrip().startswith("{"):
            return False
        call.append(fragment)
        self._current = call
        out.append(ToolCallDelta(call.position, None, None, fragment))
        return True

    # --- which call is meant ---------------------------------------------------------------------

    def _find(self, part: CallPart, function: FunctionPart, seen: set[int]) -> _PartialCall | None:
        known = self._by_id.get(part.id) if part.id else None
        if known is not None:
            if part.index is not None and part.index != known.index:
                at_index = self._by_index.get(part.index)
                if at_index is not None and at_index.wire_id == part.id:
                    return at_index  # two calls share the id: only the index tells them apart
            return None if self._repeats_id(known, part, function, seen) else known
        if part.index is not None:
            at_index = self._by_index.get(part.index)
            if at_index is not None:
                return None if self._opens_another(at_index, part, function, seen) else at_index
            if function.name or part.id:
                return None
            last = self._current  # an index that first appears on a bare fragment belongs to the call before it
            return last if last is not None and last.index is None else None
        last = self._current
        if last is None or (part.id and function.name) or self._opens_another(last, part, function, seen):
            return None
        return last

    def _repeats_id(self, known: _PartialCall, part: CallPart, function: FunctionPart, seen: set[int]) -> bool:
        """Whether the provider used an id twice, for two calls."""
        if not function.name:
            return False
        # Both indexes are known, so they decide; the name alone can't, as one tool may be called twice.
        if part.index is not None and known.index is not None:
            return part.index != known.index
        return known.position in seen or (function.name != known.name and bool(known.parts))

    def _opens_another(self, call: _PartialCall, part: CallPart, function: FunctionPart, seen: set[int]) -> bool:
        """Whether a part that points at `call` is in truth the beginning of another one."""
        if not function.name:
            return False
        if part.id and (call.wire_id is not None or call.parts):
            return True  # a new id with a name
        if part.id is None and part.index is None and call.position in seen:
            return True  # two entries of one chunk
        if call.name and function.name != call.name and call.parts:
            return True
        # Two calls of one tool, both whole and without ids; but an object after an empty `{}` belongs to the same call.
        whole_anew = _fragment(function).lstrip().startswith("{") and call.is_whole()
        return whole_anew and call.text.strip() != "{}"

    def _open(self, part: CallPart) -> _PartialCall:
        sent = part.id or None
        call = _PartialCall(len(self._calls), self._ids.unique(sent), sent, part.index)
        self._calls.append(call)
        if sent is not None:
            self._by_id[sent] = call
        if part.index is not None:
            self._by_index[part.index] = call
        self._current = call
        return call

    # --- what it adds ----------------------------------------------------------------------------

    def _extend(self, call: _PartialCall, function: FunctionPart, out: list[Delta]) -> None:
        self._current = call
        renamed = self._name(call, function.name)
        fragment = _fragment(function)
        # Some providers send `null` for "no arguments yet".
        if not call.parts and fragment == "null":
            fragment = ""
        if not call.started:
            call.append(fragment)
            if not self._must_wait(call):
                out.append(self._begin(call))
            return
        restart = False
        if call.last == "}" and fragment.lstrip().startswith("{") and call.is_whole():
            # Some providers repeat the whole arguments in a last chunk.
            if fragment.strip() == call.text.strip():
                return
            call.parts.clear()
            restart = True
        call.append(fragment)
        if fragment or renamed:
            out.append(ToolCallDelta(call.position, None, call.name if renamed else None, fragment, restart))

    def _name(self, call: _PartialCall, name: str | None) -> bool:
        """Takes a name or a piece of one; whether the name grew after it had been given out."""
        if not name or name == call.name or (call.parts and call.name):
            return False
        # Providers that repeat the name in each chunk would give `searchsearch`; an offered name is complete.
        if call.name in self._offered and call.name + name not in self._offered:
            return False
        call.name = name if name.startswith(call.name) else call.name + name
        return call.started

    def _must_wait(self, call: _PartialCall) -> bool:
        """A call without a name, or with the beginning of an offered name only, can't be given out yet."""
        if not call.name:
            return True
        if call.parts or call.name in self._offered:
            return False
        # The name may still grow (`read` to `read_file`); once announced it could not be taken back.
        return any(name.startswith(call.name) for name in self._offered)

    def _begin(self, call: _PartialCall) -> ToolCallDelta:
        call.started = True
        return ToolCallDelta(call.position, call.id, call.name, call.text)


_NO_FUNCTION = FunctionPart()


def _fragment(function: FunctionPart) -> str:
    arguments = function.arguments
    if arguments is None:
        return ""
    if type(arguments) is str:
        return arguments
    return msgspec.json.encode(arguments).decode()


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
