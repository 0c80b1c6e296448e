"""The window: the part of a thread's conversation that the model gets (spec 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphflow.messages import MESSAGE_TYPES, AIMessage, HumanMessage, ToolMessage, from_wire


def last_runs(messages: Sequence[Any], k: int) -> Sequence[Any]:
    """The messages of the last `k` runs; all of them when there are no more.

    A run begins with its human message. The cut moves further back if it would separate a result from its call.
    Only the window is read, from its end; older messages are not touched.

    Raises:
        ValueError: `k` is less than 1.
    """
    if k < 1:
        raise ValueError(f"a window of {k!r} runs would show the model nothing; give at least 1")
    begun = 0
    results: set[str] = set()  # whose calls lie further back
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if not isinstance(message, MESSAGE_TYPES):
            message = from_wire(message)
        if isinstance(message, ToolMessage):
            results.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            results.difference_update(call.id for call in message.tool_calls)
        elif isinstance(message, HumanMessage):
            begun += 1
            if begun >= k and not results:
                return messages if position == 0 else [messages[i] for i in range(position, len(messages))]
    return messages
