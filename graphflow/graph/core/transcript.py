"""The message history of a frame: calls stay paired with results, and input becomes a user message (E9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.graph.core.channels import Update
from graphflow.graph.core.immutable import State
from graphflow.graph.core.machine import Operation
from graphflow.messages import AIMessage, HumanMessage, ToolMessage


def answer_open_calls(messages: Sequence[Any], text: str) -> list[ToolMessage]:
    """An error result for every tool call that has none, so that calls stay paired (E9).

    Only what came after the last human message is read: every run before it left its calls paired.
    """
    first = len(messages)
    while first and not isinstance(messages[first - 1], HumanMessage):
        first -= 1
    waiting: dict[str, str] = {}
    for message in messages[first:]:
        if isinstance(message, AIMessage):
            waiting.update({call.id: call.name for call in message.tool_calls})
        elif isinstance(message, ToolMessage):
            waiting.pop(message.tool_call_id, None)
    if not waiting:
        return []
    return [ToolMessage(tool_call_id=i, name=name, content=text, error=True) for i, name in waiting.items()]


RUN_AND_LEFT = "this call was run, and the run ended before its result was passed on; do not repeat it unseen"
CUT_OFF = "the run ended in the midst of this call: whether it was done is unknown; find out before you repeat it"


def left_open(messages: Sequence[Any], operations: Mapping[str, Operation], text: str) -> list[ToolMessage]:
    """An error result for every call without one; a call on record as begun says so instead of `text`."""
    out = []
    for reply in answer_open_calls(messages, text):
        # The model must not blindly repeat a call that has acted: the record says more than the transcript.
        operation = operations.get(reply.tool_call_id)
        if operation is not None:
            told = RUN_AND_LEFT if operation.state == "done" else CUT_OFF
            reply = msgspec.structs.replace(reply, content=told)
        out.append(reply)
    return out


def add_user_message(
    state: State, given: Any, update: Update, operations: Mapping[str, Operation] | None = None
) -> None:
    """Open tool calls get an error result, then the query comes as user message (E9).

    Args:
        operations: what the node that ran them has on record.
    """
    more: list[Any] = list(
        left_open(state.get("messages", ()), operations or {}, "this call was not run: the run ended before it")
    )
    query = given.get("query") if isinstance(given, Mapping) else None
    if isinstance(query, str):
        references = given.get("references")
        # A document whose own schema says otherwise may hold anything under this name.
        listed = tuple(references) if isinstance(references, list | tuple) else ()
        more.append(HumanMessage(content=query, references=listed))
    if more:
        update.logs["messages"] = [*update.logs.get("messages", ()), *(("+", message) for message in more)]
