"""Calls and results as every provider takes them: each id once, each call answered behind its turn and in its place, no result
without its call.

Conversations of the engine are so. Those that code makes need not be, and providers refuse the whole request.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from graphflow.content import TextPart
from graphflow.messages import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from graphflow.models.replay.call_ids import WIRE_ID_MARK, wire_id

_UNANSWERED = "This call has no result: it was interrupted."
_EARLIER = "Result of an earlier call:"


def repaired(messages: Sequence[Message]) -> Sequence[Message]:
    """The same messages where calls and results fit; else with new ids for calls that share one or have none, an error result
    for a call without one, and a result without its call as something said.
    """
    return messages if _fit(messages) else _Repair(messages).out


def _fit(messages: Sequence[Message]) -> bool:
    known: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        # Exact types, as this runs over the whole history for each call of a model.
        if (kind := type(message)) is ToolMessage:
            # Gemini takes results without ids by their order.
            if not waiting or message.tool_call_id != waiting.pop():  # type: ignore[union-attr]
                return False
        elif waiting:
            return False
        elif kind is AIMessage and (calls := message.tool_calls):  # type: ignore[union-attr]
            waiting = [call.id for call in reversed(calls)]
            if (
                "" in waiting
                or len({wire_id(call_id) for call_id in waiting}) < len(calls)
                or not known.isdisjoint(waiting)
            ):
                return False
            known.update(waiting)
    return not waiting


class _Repair:
    def __init__(self, messages: Sequence[Message]) -> None:
        self.out: list[Message] = []
        self._taken = {call.id for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
        self._used: set[str] = set()
        self._calls: list[tuple[str, ToolCall]] = []
        """Of the last turn with calls: the id that a result names, and the call as it is sent."""
        self._results: dict[int, ToolMessage] = {}
        self._others: list[Message] = []
        for message in messages:
            if isinstance(message, ToolMessage):
                self._result(message)
            elif isinstance(message, AIMessage) and message.tool_calls:
                self._settle()
                self._turn(message)
            else:
                self._others.append(message)
        self._settle()

    def _turn(self, message: AIMessage) -> None:
        wired: set[str] = set()
        for call in message.tool_calls:
            own = call.id
            if not own or own in self._used or wire_id(own) in wired:
                own = self._free(own.replace(WIRE_ID_MARK, "_") or "call")
            self._used.add(own)
            wired.add(wire_id(own))
            self._calls.append((call.id, call if own == call.id else msgspec.structs.replace(call, id=own)))
        self.out.append(msgspec.structs.replace(message, tool_calls=tuple(call for _, call in self._calls)))

    def _free(self, wanted: str) -> str:
        number, own = 2, wanted
        while own in self._taken or own in self._used:
            own, number = f"{wanted}_{number}", number + 1
        return own

    def _result(self, message: ToolMessage) -> None:
        # Two calls of one id get their results in the order of the calls.
        for position, (named, call) in enumerate(self._calls):
            if named == message.tool_call_id and position not in self._results:
                same = call.id == named
                self._results[position] = message if same else msgspec.structs.replace(message, tool_call_id=call.id)
                return
        content = message.content
        told = f"{_EARLIER}\n"
        self._others.append(
            HumanMessage(content=told + content if isinstance(content, str) else (TextPart(text=told), *content))
        )

    def _settle(self) -> None:
        for position, (_, call) in enumerate(self._calls):
            missing = ToolMessage(tool_call_id=call.id, name=call.name, content=_UNANSWERED, error=True)
            self.out.append(self._results.get(position, missing))
        self.out += self._others
        self._calls, self._results, self._others = [], {}, []
