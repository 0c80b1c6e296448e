"""LangGraph's own benchmark `wide_state`: a state of 15 keys, six nodes that copy from one key to others, round after round.

`one → two → {three, four} → five → six`, and again until `messages` has more than n items. Lists double each round, so
the state grows to n times the input.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import Any

NODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "one": ("messages", ("trigger_events", "primary_issue_medium")),
    "two": ("trigger_events", ("autoresponse", "issue")),
    "three": ("autoresponse", ("relevant_rules",)),
    "four": ("trigger_events", ("categorizations", "responses", "memory_docs")),
    "five": (
        "categorizations",
        ("user_info", "crm_info", "email_thread_id", "slack_participants", "bot_id", "notified_assignees"),
    ),
    "six": ("responses", ("messages",)),
}
"""Node → the key that it reads, and the keys that it writes."""

ADDED = ("messages", "trigger_events", "categorizations", "responses")
"""Keys whose writes are added to the list."""
MERGED = ("slack_participants", "notified_assignees")
"""Keys whose writes are merged into the object."""
LISTS = (*ADDED, "memory_docs", "relevant_rules")
OBJECTS = (*MERGED, "user_info", "crm_info", "autoresponse", "issue")
TEXTS = ("primary_issue_medium", "email_thread_id", "bot_id")


def start(params: dict[str, Any]) -> dict[str, Any]:
    """The first message: objects in an object, with lists of small values."""
    few = ["hi?" * 10, True, 1, 6327816386138, None] * 5
    return {
        str(outer) * 10: {str(inner) * 10: few for inner in range(params["inner"])} for outer in range(params["outer"])
    }


def written(value: Any, keys: Sequence[str], size: int) -> dict[str, Any]:
    """What a node writes after it has read `value`: all of it to lists, its last item to objects, noise to texts."""
    if isinstance(value, str):
        value = {value: value}
    items = [value] if hasattr(value, "keys") else value
    out: dict[str, Any] = {}
    for key in keys:
        if key in LISTS:
            out[key] = items
        elif key in OBJECTS:
            out[key] = items[-1]
        else:
            out[key] = "".join(random.choices(string.ascii_lowercase, k=size))
    return out
