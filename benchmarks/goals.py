"""The goals that graphflow set itself: each a figure of its own against a figure of somebody else's, of the same run.

Rows A1 to G1 are ratios to the best peer; the others are the further promises of the engine. `floor` and `insert` are no
peers: nobody who does more than the workload beats them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Mapping[str, Any]]
"""`workloads` of a results file."""


@dataclass(frozen=True)
class Figure:
    """One measured figure; lower is better."""

    workload: str
    system: str
    key: str

    def value(self, results: Results) -> float | None:
        """None when it was not measured."""
        entry = results.get(self.workload)
        figures = entry["systems"].get(self.system, {}) if entry else {}
        source, factor, per = DERIVED.get(self.key, (self.key, 1.0, ""))
        if entry is None or source not in figures:
            return None
        share = {"": 1.0, "steps": entry["steps"], "runs": entry["params"].get("runs", 1)}[per]
        return float(figures[source]) * factor / float(share)


DERIVED = {
    "wall_us": ("wall", 1e6, "steps"), "cpu_us": ("cpu", 1e6, "steps"), "wall_ms": ("wall", 1e3, ""),
    "wall_s": ("wall", 1.0, ""), "kib_per_run": ("grown_most_mib", 1024.0, "runs"), "bytes_per_step": ("stored_mb", 1e6, "steps"),
}  # fmt: skip
"""Figure → the measured one that it is made of, by which factor, and a share of what."""

UNITS = {
    "wall_us": "µs", "cpu_us": "µs CPU", "wall_ms": "ms", "wall_s": "s", "bytes_per_message": "B", "bytes_per_step": "B",
    "last_turn_cold_ms": "ms", "load_ms": "ms", "history_100_ms": "ms", "states_100_ms": "ms", "fork_ms": "ms",
    "latency_p50_us": "µs", "latency_p99_us": "µs", "kib_per_run": "KiB", "turn_last_ms": "ms", "turn_10_ms": "ms",
    "first_turn_hot_ms": "ms", "last_turn_hot_ms": "ms", "import_ms": "ms", "import_mib": "MiB", "distributions": "",
    "megabytes": "MB", "text_us": "µs CPU", "ahead": "events", "grown_mib": "MiB", "last_end_s": "s", "first_end_s": "s",
    "kib_per_thread": "KiB", "behind_at_half": "tokens",
}  # fmt: skip


@dataclass(frozen=True)
class Goal:
    row: str
    about: str
    own: Figure
    others: tuple[Figure, ...]
    """Whose best figure is compared; with none `most` is the figure itself."""
    most: float | None
    """The most that the ratio may be; None is only reported."""
    difference: bool = False
    """`most` is how much more than the others' best it may be, in the figure's unit."""
    yardstick: bool = False
    """The others are no peers but graphflow itself or a bare program."""


def _against(
    row: str, about: str, workload: str, key: str, most: float | None, peers: str, own: str = "graphflow", **more: Any
) -> Goal:
    others = tuple(Figure(workload, peer, key) for peer in peers.split())
    return Goal(row, about, Figure(workload, own, key), others, most, **more)


_ENGINE = "burr pydantic_graph langgraph"
_STORED = "burr:wal burr langgraph langgraph:sync"
_CHAT = "langgraph:delta langgraph burr openai_agents"
_SYNC = "graphflow:sync"
_PG = "burr langgraph langgraph:sync"

PEERS: tuple[Goal, ...] = (
    _against("A1", "chain of 1,000, per node", "chain_1000", "cpu_us", 0.25, _ENGINE),
    _against("A2", "loop of 1,000, per node", "loop_1000", "cpu_us", 0.15, _ENGINE),
    _against("A3", "route of 1,000, per node", "route_1000", "cpu_us", 0.07, "burr langgraph"),
    _against("A4", "fan-out of 1,000 and join, per branch", "fanout_1000", "cpu_us", 0.15, _ENGINE),
    _against("A5", "ten nested graphs, per level", "nested_10", "cpu_us", 0.25, _ENGINE),
    _against("A6", "agent loop by hand, 100 calls, per node", "react_100", "cpu_us", 0.25, _ENGINE),
    _against("A7", "the system's agent, 100 calls, per node", "agent_100", "cpu_us", 0.10, "langgraph langgraph:react openai_agents"),
    _against("A8", "LangGraph's fanout_to_subgraph_100, per node", "lg_fanout_to_subgraph_100", "cpu_us", 0.15, "pydantic_graph langgraph"),
    _against("A9", "LangGraph's wide_state_15x600, per node", "lg_wide_state_15x600", "cpu_us", 0.25, "burr langgraph"),
    _against("B1", "chain of 100, checkpoints in memory, per node", "chain_100@memory", "wall_us", 0.06, "langgraph"),
    _against("B2", "loop of 1,000, SQLite, default durability, per node", "loop_1000@sqlite", "wall_us", 0.06, _STORED),
    _against("B3", "the same, each step's commit awaited", "loop_1000@sqlite", "wall_us", 0.45, _STORED, _SYNC),
    _against("B3", "the same, against bare code that awaits each commit", "loop_1000@sqlite", "wall_us", 1.4, "floor:sync", _SYNC, yardstick=True),
    _against("B4", "agent loop of 100 calls, SQLite, per node", "react_100@sqlite", "wall_us", 0.15, "langgraph:delta langgraph burr burr:wal openai_agents"),
    _against("B5", "the system's agent, 100 calls, SQLite, per node", "agent_100@sqlite", "wall_us", 0.10, "openai_agents langgraph"),
    _against("B6", "100 threads × 20 nodes on one SQLite store, per node", "swarm_100x20@sqlite", "wall_us", 0.25, _STORED),
    _against("B6", "the same, commits awaited", "swarm_100x20@sqlite", "wall_us", 0.33, _STORED, _SYNC),
    _against("B7", "loop of 1,000, PostgreSQL, default durability, per node", "loop_1000@postgres", "wall_us", 0.2, _PG),
    _against("B7", "the same, each step's commit awaited", "loop_1000@postgres", "wall_us", 0.8, _PG, _SYNC),
    _against("B8", "agent loop of 100 calls, PostgreSQL, per node", "react_100@postgres", "wall_us", 0.15, "langgraph:delta langgraph"),
    _against("C1", "bytes per message of 1 KiB, thread of 1,000, against a session without checkpoints", "chat_1000@sqlite", "bytes_per_message", 1.15, "openai_agents"),
    _against("C1", "the same, against checkpoints", "chat_1000@sqlite", "bytes_per_message", 0.15, "langgraph:delta langgraph burr"),
    _against("C2", "last turn of 1,000 messages, by a process that never saw the thread", "chat_1000@sqlite", "last_turn_cold_ms", 0.15, _CHAT),
    Goal("C2", "the last turn by a process that drives the thread, against its first", Figure("chat_1000@sqlite", "graphflow", "last_turn_hot_ms"),
         (Figure("chat_1000@sqlite", "graphflow", "first_turn_hot_ms"),), 1.2, yardstick=True),
    _against("C3", "load the newest state, 1,000 messages", "chat_1000@sqlite", "load_ms", 1.0, _CHAT),
    _against("C4", "list the last 100 checkpoints of 1,000 messages", "chat_1000@sqlite", "history_100_ms", 0.001, "langgraph langgraph:delta"),
    _against("C4", "the same with their states", "chat_1000@sqlite", "states_100_ms", 0.02, "langgraph langgraph:delta"),
    _against("C5", "fork from the middle of 1,000 messages", "chat_1000@sqlite", "fork_ms", 0.8, "burr langgraph langgraph:delta"),
    _against("D1", "10,000 custom events at full speed, per event", "stream_10k_custom", "cpu_us", 0.9, "burr langgraph"),
    _against("D2", "10,000 chunks of a model at full speed, per chunk", "stream_10k_model", "cpu_us", 0.5, "openai_agents langgraph"),
    _against("D3", "delay from node to consumer at full speed, p50", "stream_10k_custom", "latency_p50_us", 1.0, "burr langgraph"),
    _against("D4", "1,000 runs × 50 events/s, per event", "paced_1000", "cpu_us", 0.9, "burr langgraph"),
    Goal("D4", "the same, delay p99", Figure("paced_1000", "graphflow", "latency_p99_us"), (), 10_000.0),
    _against("D5", "5,000 runs × 50 events/s, until all have ended", "paced_5000", "wall_s", 0.75, "burr langgraph"),
    _against("D5", "the same, memory per run", "paced_5000", "kib_per_run", 1.0, "burr langgraph"),
    _against("K1", "pause and resume, SQLite", "pause_resume@sqlite", "wall_ms", 0.5, "burr:wal burr langgraph"),
    _against("K2", "resume in a new process, SQLite", "cold_resume@sqlite", "wall_ms", 0.8, "burr burr:wal langgraph"),
    _against("F1", "import of the graph API with the SQLite store (pydantic-graph has none)", "import", "import_ms", 0.9, "pydantic_graph burr langgraph"),
    _against("F2", "memory of that import", "import", "import_mib", 1.4, "pydantic_graph burr langgraph"),
    _against("F3", "distributions that it installs", "install", "distributions", None, "burr pydantic_graph langgraph"),
    _against("F3", "their size", "install", "megabytes", None, "pydantic_graph burr langgraph"),
    _against("G1", "a model's stream over HTTP into typed deltas, per chunk", "model_client", "text_us", 0.08, "openai"),
)  # fmt: skip
"""Rows A1 to G1."""


def _own(row: str, about: str, workload: str, key: str, most: float, base: tuple[str, str] | None = None, system: str = "graphflow") -> Goal:  # fmt: skip
    """A figure against another of graphflow's own, `(workload, key)`, or against a number."""
    others = (Figure(base[0], system, base[1]),) if base else ()
    return Goal(row, about, Figure(workload, system, key), others, most, yardstick=True)


PROMISES: tuple[Goal, ...] = (
    *(
        _own("flat", f"{case}: a node of 3,000 against a node of 100", f"{case}_3000", "cpu_us", 1.2, (f"{case}_100", "cpu_us"))
        for case in ("chain", "loop", "route")
    ),
    _own("size", "bytes per message of 1 KiB, thread of 1,000 turns", "chat_2000@sqlite", "bytes_per_message", 1638.4),
    _own("size", "bytes per message of 1 KiB, thread of 10,000 turns", "chat_20000@sqlite", "bytes_per_message", 1638.4),
    _own("size", "bytes per step, chain of 3,000 against a loop of 1,000", "chain_3000@sqlite", "bytes_per_step", 1.2, ("loop_1000@sqlite", "bytes_per_step")),
    _own("hot", "the 1,000th turn against the 10th", "chat_2000@sqlite", "turn_last_ms", 1.2, ("chat_2000@sqlite", "turn_10_ms")),
    _own("hot", "the 10,000th turn against the 10th", "chat_20000@sqlite", "turn_last_ms", 1.2, ("chat_20000@sqlite", "turn_10_ms")),
    _own("history", "a page of 100 of 10,000 turns against one of 500", "chat_20000@sqlite", "history_100_ms", 1.5, ("chat_1000@sqlite", "history_100_ms")),
    _own("fork", "a fork of 10,000 turns against one of 500", "chat_20000@sqlite", "fork_ms", 1.5, ("chat_1000@sqlite", "fork_ms")),
    *(
        Goal("condition", f"a condition in CEL against one in Python, {size:,} items in the state, per step", Figure(f"condition_{size}", "graphflow:cel", "cpu_us"),
             (Figure(f"condition_{size}", "graphflow:python", "cpu_us"),), 8.0, difference=True, yardstick=True)
        for size in (10, 10_000)
    ),
    _own("slow", "most events that a node is ahead of a slow consumer", "slow_consumer_10k", "ahead", 256.0),
    _own("5,000", "memory per run of 5,000 that stream", "paced_5000", "kib_per_run", 16.0),
    _own("5,000", "memory per thread of 5,000 on one SQLite store, half-way", "crowd", "kib_per_thread", 16.0),
    _own("5,000", "tokens that the slowest thread is behind the fastest, half-way", "crowd", "behind_at_half", 25.0),
)  # fmt: skip
"""What was promised beyond the peers."""


@dataclass(frozen=True)
class Verdict:
    """A goal and what came out."""

    goal: Goal
    own: float | None
    best: float | None
    """The best of the others."""
    others: dict[str, float]
    ratio: float | None
    """Or the difference, or with no others the figure."""

    @property
    def met(self) -> bool | None:
        """None when it was not measured, or is only reported."""
        return None if self.ratio is None or self.goal.most is None else self.ratio <= self.goal.most


def judge(goal: Goal, results: Results) -> Verdict:
    own = goal.own.value(results)
    others = {figure.system: value for figure in goal.others if (value := figure.value(results)) is not None}
    best = min(others.values(), default=None)
    if own is None or (goal.others and not best):
        ratio = None
    elif best is None:
        ratio = own
    else:
        ratio = own - best if goal.difference else own / best
    return Verdict(goal, own, best, others, ratio)
