"""A frame's input, stored without its query where the log `messages` has the query's message.

What the state holds is referenced, never stored twice (E1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphflow.checkpoints.codec import storable
from graphflow.graph.core.immutable import FrozenDict, ListView, LogEntry
from graphflow.messages import HumanMessage

LEAST = 64
"""Characters of a query from which on a reference is worth its bytes."""
LOOKED_AT = 256
"""How many messages from the end a snapshot looks for the query's."""


class Referenced(msgspec.Struct):
    """An input as it was read, until its log is."""

    rest: FrozenDict
    ordinal: int
    """The entry of the frame's log `messages` that has the query."""

    def resolved(self, entries: Sequence[LogEntry], first: int = 0) -> FrozenDict:
        """The input whole; `rest` has the key already, so that the keys keep their order.

        Args:
            first: ordinal of the first of the entries.
        """
        return FrozenDict({**self.rest, "query": entries[self.ordinal - first][1].text})


def by_entries(given: Any, entries: Sequence[LogEntry], first: int) -> list[Any] | None:
    """`[rest, ordinal]` when one of these new entries is the query's message; `first` is the ordinal of the first."""
    query = _query(given)
    if query is not None:
        for offset, entry in enumerate(entries):
            if entry[0] == "+" and _is(entry[1], query):
                return [_rest(given), first + offset]
    return None


def by_view(given: Any, messages: Any) -> list[Any] | None:
    """The same for a snapshot, from the list that the state shows; only while it is still as it was appended."""
    query = _query(given)
    # After a replacement or a deletion, positions in the list are no longer ordinals of the log.
    if query is None or not isinstance(messages, ListView) or messages.ordinals != len(messages):
        return None
    for position in range(len(messages) - 1, max(-1, len(messages) - 1 - LOOKED_AT), -1):
        if _is(messages[position], query):
            return [_rest(given), position]
    return None


def _query(given: Any) -> str | None:
    query = given.get("query") if isinstance(given, Mapping) else None
    return query if isinstance(query, str) and len(query) >= LEAST else None


def _is(message: Any, query: str) -> bool:
    return type(message) is HumanMessage and message.text == query


def _rest(given: Mapping[str, Any]) -> Any:
    return storable({**given, "query": None}, channel="input")
