"""Every workload in words and figures; how a system does it stands in `systems/`.

A workload is timed in rounds; one round runs it `repeat` times, so that short graphs are measured as exactly as long ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

OURS = ("graphflow", "graphflow:stream")
ENGINE = (*OURS, "langgraph", "burr", "pydantic_graph", "floor")
DURABLE = (
    "graphflow", "graphflow:sync", "langgraph", "langgraph:sync", "burr", "burr:wal", "floor", "floor:sync", "insert",
)  # fmt: skip
GROWTH = ("graphflow", "langgraph", "langgraph:delta", "burr", "openai_agents", "floor")


@dataclass(frozen=True)
class Workload:
    name: str
    case: str
    """The function of a system's module that does it."""
    about: str
    group: str
    """Which tables it goes to; see `report.TITLES`."""
    systems: tuple[str, ...]
    """Whom it is measured for, `system:variant`."""
    steps: int = 1
    """Node runs of one run; figures are per step."""
    params: dict[str, Any] = field(default_factory=dict)
    store: str = ""
    """`""`, `memory`, `sqlite` or `postgres`."""
    repeat: int = 1
    rounds: int = 7
    warmups: int = 1
    least: int = 2
    """Rounds that even a slow system runs."""


def _engine() -> Iterator[Workload]:
    shapes = {
        "chain": "n async nodes in a row, each adds 1; the counter must be n",
        "loop": "one async node that runs n times through a condition on the state",
        "route": "after each node a condition picks one of three by counter % 3, n times",
    }
    for case, text in shapes.items():
        for n in (10, 100, 1000, 3000):
            yield Workload(
                f"{case}_{n}", case, text, "engine", ENGINE, n, {"n": n}, repeat=max(1, 500 // n),
                rounds=4 if n == 3000 else 7,
            )  # fmt: skip
    for n in (10, 100, 1000):
        about = "one node makes n items, n branches, a join that sums"
        yield Workload(f"fanout_{n}", "fanout", about, "engine", ENGINE, n + 2, {"n": n}, repeat=max(1, 200 // n))
    yield Workload(
        "nested_10", "nested", "a graph in a graph, ten levels", "engine", ENGINE, 10, {"depth": 10}, repeat=30
    )
    for n in (10, 100):
        about = f"an agent loop built by hand: model and tool take turns, {n} calls with a result of 36 KB"
        yield Workload(f"react_{n}", "react", about, "engine", ENGINE, 2 * n + 1, {"n": n}, repeat=max(1, 30 // n))
    for n in (10, 100):
        about = f"the system's own agent with a scripted model and a typed tool, {n} calls"
        systems = ("graphflow", "langgraph", "langgraph:react", "openai_agents", "floor")
        yield Workload(f"agent_{n}", "agent", about, "engine", systems, 2 * n + 1, {"n": n}, rounds=5)


def _langgraphs() -> Iterator[Workload]:
    systems = ("graphflow", "langgraph", "pydantic_graph")
    for n in (10, 1000, 3000):
        about = "n nodes that write nothing, events read to the end"
        yield Workload(f"lg_sequential_{n}", "sequential", about, "langgraph", systems, n, {"n": n}, repeat=max(1, 200 // n), rounds=5)  # fmt: skip
    for n in (10, 100):
        about = f"{n} branches, each a graph of 12 node runs, events read to the end"
        yield Workload(f"lg_fanout_to_subgraph_{n}", "subfan", about, "langgraph", (*systems, "floor"), 12 * n, {"n": n}, rounds=5)  # fmt: skip
    for inner, outer, n, loops in ((5, 5, 300, 6), (5, 3, 600, 7), (3, 3, 1200, 7)):
        about = "15 keys, six nodes that copy from one to others, until a list has n items, events read to the end"
        params = {"n": n, "inner": inner, "outer": outer}
        systems = ("graphflow", "langgraph", "burr", "floor")
        yield Workload(f"lg_wide_state_{inner * outer}x{n}", "wide", about, "langgraph", systems, 6 * loops, params)


def _conditions() -> Iterator[Workload]:
    systems = ("graphflow:python", "graphflow:plain", "graphflow:cel")
    for size in (10, 10_000):
        about = (
            f"loop of 1,000 whose way is chosen by Python, by a comparison, by CEL; {size:,} items that nobody names"
        )
        yield Workload(f"condition_{size}", "condition", about, "condition", systems, 1000, {"n": 1000, "size": size})


def _declared() -> Iterator[Workload]:
    about = "loop of 1,000 over a state that is a mapping, a dataclass, a pydantic model with a bound"
    systems = ("graphflow:mapping", "graphflow:dataclass", "graphflow:pydantic")
    yield Workload("declared_1000", "declared", about, "declared", systems, 1000, {"n": 1000})


def _stored() -> Iterator[Workload]:
    memory = ("graphflow", "langgraph")
    yield Workload("chain_100@memory", "chain", "a checkpoint a step", "memory", memory, 100, {"n": 100}, "memory")
    yield Workload("loop_1000@memory", "loop", "a checkpoint a step", "memory", memory, 1000, {"n": 1000}, "memory")
    about = "as without a store, a checkpoint a step"
    react = (
        "graphflow",
        "graphflow:sync",
        "langgraph",
        "langgraph:delta",
        "burr",
        "burr:wal",
        "openai_agents",
        "floor",
    )
    agent = ("graphflow", "graphflow:sync", "langgraph", "openai_agents", "floor")
    swarm = (
        "graphflow", "graphflow:sync", "langgraph", "langgraph:sync", "burr", "burr:wal", "floor", "floor:sync",
    )  # fmt: skip
    yield Workload("chain_100@sqlite", "chain", about, "sqlite", DURABLE, 100, {"n": 100}, "sqlite")
    yield Workload("chain_3000@sqlite", "chain", about, "sqlite", ("graphflow", "langgraph", "floor"), 3000, {"n": 3000}, "sqlite", rounds=3)  # fmt: skip
    yield Workload("loop_1000@sqlite", "loop", about, "sqlite", DURABLE, 1000, {"n": 1000}, "sqlite")
    yield Workload("fanout_100@sqlite", "fanout", about, "sqlite", ("graphflow", "graphflow:sync", "langgraph", "floor"), 102, {"n": 100}, "sqlite")  # fmt: skip
    yield Workload("react_100@sqlite", "react", about, "sqlite", react, 201, {"n": 100}, "sqlite", rounds=5)
    yield Workload("agent_100@sqlite", "agent", about, "sqlite", agent, 201, {"n": 100}, "sqlite", rounds=5)
    about = "100 threads at once on one store, each a chain of 20 nodes"
    yield Workload("swarm_100x20@sqlite", "chain", about, "sqlite", swarm, 2000, {"n": 20, "threads": 100}, "sqlite", rounds=5)  # fmt: skip


def _postgres() -> Iterator[Workload]:
    about = "as without a store, a checkpoint a step"
    loop = ("graphflow", "graphflow:sync", "langgraph", "langgraph:sync", "burr")
    react = ("graphflow", "graphflow:sync", "langgraph", "langgraph:delta")
    swarm = ("graphflow", "graphflow:sync", "langgraph")
    yield Workload("chain_100@postgres", "chain", about, "postgres", loop, 100, {"n": 100}, "postgres", rounds=5)
    yield Workload("loop_1000@postgres", "loop", about, "postgres", loop, 1000, {"n": 1000}, "postgres", rounds=5)
    yield Workload(
        "react_100@postgres", "react", about, "postgres", react, 201, {"n": 100}, "postgres", rounds=5, least=1
    )
    about = "100 threads at once on one store, each a chain of 20 nodes"
    yield Workload("swarm_100x20@postgres", "chain", about, "postgres", swarm, 2000, {"n": 20, "threads": 100}, "postgres", rounds=3)  # fmt: skip


def _growth() -> Iterator[Workload]:
    def grown(
        name: str, systems: tuple[str, ...], turns: int, store: str, rounds: int, tools: bool = False
    ) -> Workload:
        per_turn = "4 messages (one a tool call)" if tools else "2 messages"
        about = f"one thread of {turns:,} turns, {per_turn} of 1 KiB a turn"
        params = {"turns": turns, "tools": tools}
        return Workload(f"{name}@{store}", "growth", about, "growth", systems, turns, params, store, 1, rounds, 0, 1)

    for n, rounds in ((10, 5), (50, 3), (200, 3), (1000, 3)):
        yield grown(f"chat_{n}", GROWTH, n // 2, "sqlite", rounds)
    yield grown(
        "reactchat_1000", ("graphflow", "langgraph", "langgraph:delta", "burr", "floor"), 250, "sqlite", 3, True
    )
    yield grown("chat_2000", ("graphflow", "langgraph:delta"), 1000, "sqlite", 3)
    yield grown("chat_20000", ("graphflow",), 10_000, "sqlite", 1)
    yield grown("chat_200", ("graphflow", "langgraph", "langgraph:delta", "burr"), 100, "postgres", 1)
    yield grown("chat_1000", ("graphflow", "langgraph", "langgraph:delta"), 500, "postgres", 1)


def _streams() -> Iterator[Workload]:
    systems = ("graphflow", "langgraph", "burr", "floor")
    about = "one node emits 10,000 events at full speed to one consumer, giving way to the event loop after each"
    yield Workload("stream_10k_custom", "stream", about, "stream", systems, 10_000, {"n": 10_000})
    about = "a chat model yields 10,000 chunks through the system's own way for tokens"
    models = ("graphflow", "langgraph", "openai_agents", "floor")
    yield Workload("stream_10k_model", "model_stream", about, "stream", models, 10_000, {"n": 10_000}, rounds=5)
    about = "10,000 tokens to a consumer that is slower than the node"
    yield Workload("slow_consumer_10k", "slow", about, "slow", ("graphflow", "langgraph", "burr"), 10_000, {"n": 10_000, "turns": 3}, rounds=3)  # fmt: skip
    about = "so many runs at once, each emits 100 events 20 ms apart"
    for runs, rounds in ((1000, 3), (5000, 2)):
        params = {"runs": runs, "n": 100, "gap": 0.02}
        yield Workload(f"paced_{runs}", "stream", about, "paced", systems, runs * 100, params, "", 1, rounds, 0, 1)


def _questions() -> Iterator[Workload]:
    about = "run to a question, durably; then answer it and run to the end"
    systems = ("graphflow", "langgraph", "burr", "burr:wal", "floor")
    yield Workload("pause_resume@sqlite", "pause", about, "pause", systems, 1, store="sqlite", rounds=25, warmups=2)
    yield Workload("pause_resume@postgres", "pause", about, "pause", ("graphflow", "langgraph"), 1, store="postgres", rounds=15, warmups=2)  # fmt: skip
    about = "the answer comes in a new process, timed from its start to its result"
    yield Workload("cold_resume@sqlite", "cold", about, "cold", systems, 1, store="sqlite", rounds=9)


WORKLOADS = [
    *_engine(), *_langgraphs(), *_conditions(), *_declared(), *_stored(), *_postgres(), *_growth(), *_streams(), *_questions(),
]  # fmt: skip

_TINY = {"n": 4, "turns": 4, "runs": 3, "threads": 3, "depth": 3, "size": 10, "inner": 2, "outer": 2}


def tiny(workload: Workload) -> Workload:
    """The same in a moment, to see that it runs: its figures mean nothing."""
    params = {
        key: min(value, _TINY[key]) if key in _TINY and type(value) is int else value
        for key, value in workload.params.items()
    }
    return replace(workload, params=params, repeat=1, rounds=1, warmups=0)
