"""Bounds on what a run may hold and send, with their defaults: the section `bounds` of the settings.

They belong to the engine: a graph that runs without a server has them too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

MIB = 1024 * 1024


def _bound(default: int, meaning: str, unit: str = "bytes", *, reserved: bool = False) -> Any:
    """A row of the settings table (`graphflow/settings/table.py`)."""
    row = {"meaning": meaning, "env": (), "unit": unit, "least": 1, "most": None, "secret": False, "reserved": reserved}
    return field(default=default, metadata=row)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a run may hold and send; the setting of each is `bounds.NAME`. Beyond one a run ends with `limit_exceeded`."""

    value_bytes: int = _bound(
        16 * MIB,
        "Largest value that a node, an expression or a reducer may make, or that comes from outside: the input, `params` and"
        " `variables` of a run, an answer, the payload of a signal, the result of a `ctx.step`.",
    )
    expression_items: int = _bound(
        10_000,
        "Most items that one evaluation of an expression goes through in `map`, `filter`, `all`, `exists` and `exists_one`, all together.",
        "items",
    )
    state_bytes: int = _bound(64 * MIB, "Largest state of a thread, all of its frames together.")
    fan_out: int = _bound(
        100_000,
        "Most branches of one `map` or `parallel`; more fail the node before any begins.",
        "branches",
    )
    map_max: int = _bound(
        64,
        "Branches of a `map` that work at once if the node has no `max`, and of a `parallel`. A branch that waits for an"
        " answer, a signal or a time does not count. A run keeps the number that it began with.",
        "branches",
    )
    document_bytes: int = _bound(4 * MIB, "Largest file that people write: agents, tools, viewports, cases.")
    events: int = _bound(
        1_000_000,
        "Most events of one run. The events that end it come on top, and those that are sent while its last records are not"
        " acknowledged by the store.",
        "events",
    )
    signals: int = _bound(
        100,
        "Most signals that a run keeps for `wait` nodes that it has not reached; a further one is refused.",
        "signals",
    )
    max_agent_depth: int = _bound(
        5,
        "Most agents that are at work within each other: one that a run's own agent calls is the first. A call beyond gets an"
        " error result.",
        "agents",
    )
    tool_output_bytes: int = _bound(MIB, "Largest output of a tool; a longer one is cut, with a note that says so.")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is not int or value < 1:
                raise ValueError(f"Bounds() got {each.name}={value!r}; {each.name} takes a whole number, at least 1")


DEFAULTS = Bounds()
