"""Enforces the rule that providers check: each tool call is followed by exactly one result (spec 6.1)."""

from __future__ import annotations

from collections.abc import Iterable

from graphflow.messages import AIMessage, Message, ToolCall, ToolMessage

NOT_RUN = "this call was not run"
"""Text for a call without a result."""


def paired(messages: Iterable[Message]) -> list[Message]:
    """The messages with every call directly followed by its result, in the order of the calls.

    A call without a result gets an error result; a result without a call, or a second one of a call, is dropped; what
    stands between a call and its result comes after the results. Paired messages come out as they are. Some providers
    use the ids of calls again in a later turn, so a result belongs to the last turn with calls before it.
    """
    out: list[Message] = []
    calls: tuple[ToolCall, ...] = ()
    results: list[ToolMessage] = []
    others: list[Message] = []

    def settle() -> None:
        out.extend(_result_of(call, results) for call in calls)
        out.extend(others)

    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(message)
        elif isinstance(message, AIMessage) and message.tool_calls:
            settle()
            out.append(message)
            calls, results, others = message.tool_calls, [], []
        else:
            others.append(message)
    settle()
    return out


def _result_of(call: ToolCall, results: list[ToolMessage]) -> ToolMessage:
    for index, result in enumerate(results):
        if result.tool_call_id == call.id:
            # Taken out, so that a second call with the same id gets the second result.
            return results.pop(index)
    return ToolMessage(tool_call_id=call.id, name=call.name, content=NOT_RUN, error=True)
