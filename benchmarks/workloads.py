"""Every workload in words and figures; how a system does it stands in `systems/`.

A workload is timed in rounds; one round runs it `repeat` times, so that short graphs are measured as exactly as long ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ENGINE = ("graphflow", "graphflow:stream", "langgraph", "burr", "floor")
STORED = (
    "graphflow",
    "graphflow:sync",
    "langgraph",
    "langgraph:sync",
    "burr",
    "burr:wal",
    "floor",
    "floor:sync",
    "insert",
)
REACT = ("graphflow", "graphflow:sync", "langgraph", "langgraph:delta", "burr", "burr:wal", "floor", "floor:sync")
GROWTH = ("graphflow", "langgraph", "langgraph:delta", "burr", "burr:wal", "floor")
ONCE = ("graphflow", "langgraph", "burr", "burr:wal", "floor")


@dataclass(frozen=True)
class Workload:
    name: str
    case: str
    """The function of a system's module that does it."""
    about: str
    group: str
    """`engine`, `store`, `growth`, `stream`, `pause`, `cold`: which table it goes to."""
    systems: tuple[str, ...]
    """Whom it is measured for, `system:variant`."""
    steps: int = 1
    """Node runs of one run; figures are per step."""
    params: dict[str, Any] = field(default_factory=dict)
    store: bool = False
    repeat: int = 1
    rounds: int = 7
    warmups: int = 1


def _engine() -> list[Workload]:
    about = {
        "chain": "n async nodes in a row, each adds 1; the counter must be n",
        "loop": "one async node that runs n times through a condition on the state",
        "route": "after each node a condition picks one of three by counter % 3, n times",
    }
    out = [
        Workload(
            f"{case}_{n}",
            case,
            text,
            "engine",
            ENGINE,
            n,
            {"n": n},
            repeat=max(1, 1000 // n),
            rounds=5 if n > 1000 else 9,
        )
        for case, text in about.items()
        for n in (10, 100, 1000, 3000)
    ]
    for n, rounds in ((10, 9), (100, 7)):
        words = f"hand-built agent loop: model and tool take turns, {n} calls"
        out.append(Workload(f"react_{n}", "react", words, "engine", ENGINE, 2 * n + 1, {"n": n}, rounds=rounds))
    return out


def _stored() -> list[Workload]:
    return [
        Workload("chain_100@sqlite", "chain", "as above, a checkpoint a step", "store", STORED, 100, {"n": 100}, True),
        Workload("loop_1000@sqlite", "loop", "as above, a checkpoint a step", "store", STORED, 1000, {"n": 1000}, True),
        Workload("react_100@sqlite", "react", "as above, a checkpoint a step", "store", REACT, 201, {"n": 100}, True, rounds=5),
    ]  # fmt: skip


def _growth() -> list[Workload]:
    out = []
    for name, tools in (("chat", False), ("reactchat", True)):
        for n in (10, 50, 200, 1000):
            turns = n // (4 if tools else 2) or 1
            words = f"one thread of {n} messages of 1 KiB, {'4 (with a tool call)' if tools else '2'} a turn"
            params = {"turns": turns, "tools": tools}
            out.append(Workload(f"{name}_{n}", "growth", words, "growth", GROWTH, turns, params, True, 1, 1, 0))
    return out


def _others() -> list[Workload]:
    stream = "one node emits 10,000 events at full speed to one consumer, giving way to the event loop after each"
    pause = "run to a question, durably; then answer it and run to the end"
    return [
        Workload("stream_10000", "stream", stream, "stream", ("graphflow", "langgraph", "burr", "floor"), 10_000, {"n": 10_000}),
        Workload("pause_resume@sqlite", "pause", pause, "pause", ONCE, 1, store=True, rounds=25, warmups=2),
        Workload("cold_resume@sqlite", "cold", "the answer comes in a new process", "cold", ONCE, 1, store=True, rounds=7),
    ]  # fmt: skip


WORKLOADS = [*_engine(), *_stored(), *_growth(), *_others()]
