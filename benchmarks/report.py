"""Figures as Markdown tables: the goals, and every workload for every system."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from goals import PEERS, PROMISES, UNITS, Figure, Goal, Results, Verdict, judge

Measured = Mapping[str, Any]
"""One workload of a results file."""

TITLES = {
    "engine": "The engine, no store", "langgraph": "LangGraph's own workloads, no store", "condition": "Conditions", "declared": "Classes of the state",
    "memory": "Checkpoints in memory", "sqlite": "With SQLite, a checkpoint per step",
    "postgres": "With PostgreSQL, a checkpoint per step", "growth": "Growth of one thread", "stream": "Streaming",
    "slow": "A slow consumer", "paced": "Many runs at once", "crowd": "Five thousand threads", "pause": "Pause and resume",
    "cold": "Resume in a new process", "import": "Import", "install": "Installation", "model_client": "Model client",
}  # fmt: skip
"""Groups in the order of the report."""

NAMES = {
    "langgraph": "LangGraph", "burr": "Burr", "pydantic_graph": "pydantic-graph", "openai_agents": "OpenAI Agents",
    "openai": "OpenAI SDK", "httpx-json": "httpx + json", "httpx-raw": "httpx alone",
}  # fmt: skip


def name_of(system: str) -> str:
    name, _, variant = system.partition(":")
    return NAMES.get(name, name) + (f" {variant}" if variant else "")


def number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def short(value: float) -> str:
    """Two digits that count."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}" if value >= 0.01 else f"{value:.1g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    lines = [head, [*["---"] * left, *["---:"] * (len(head) - left)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# --- goals


def goal_tables(results: Results) -> str:
    """Rows A1 to G1, then the promises."""
    head = ["", "what", "goal", "graphflow", "others", "ratio", "", "command: `make bench ARGS=…`"]
    parts = [
        "**Against the best peer**\n\n" + table(head, [_line(goal, results) for goal in PEERS], 2),
        "**Further promises**\n\n" + table(head, [_line(goal, results) for goal in PROMISES], 2),
    ]
    return "\n".join(parts)


def _line(goal: Goal, results: Results) -> list[str]:
    verdict = judge(goal, results)
    unit = UNITS.get(goal.own.key, "")
    own = "–" if verdict.own is None else f"{number(verdict.own)} {unit}".strip()
    return [
        goal.row, goal.about, _wanted(goal, unit), own, _others(verdict), _ratio(verdict),
        {True: "met", False: "**missed**", None: "–"}[verdict.met], f'`"--only {goal.own.workload}"`',
    ]  # fmt: skip


def _wanted(goal: Goal, unit: str) -> str:
    if goal.most is None:
        return "reported"
    if goal.difference:
        return f"≤ {goal.most:g} {unit} more"
    return f"≤ {goal.most:g}×" if goal.others else f"≤ {goal.most:,.0f} {unit}".strip()


def _others(verdict: Verdict) -> str:
    ordered = sorted(verdict.others.items(), key=lambda item: item[1])
    goal = verdict.goal
    if goal.yardstick:
        return ", ".join(
            number(value) if system == goal.own.system else f"{name_of(system)} {number(value)}"
            for system, value in ordered
        )
    return ", ".join(f"{name_of(system)} {number(value)}" for system, value in ordered)


def _ratio(verdict: Verdict) -> str:
    if verdict.ratio is None or not verdict.goal.others:
        return "–"
    return f"+{verdict.ratio:.1f}" if verdict.goal.difference else f"{short(verdict.ratio)}×"


def verdicts(results: Results) -> list[Verdict]:
    return [judge(goal, results) for goal in (*PEERS, *PROMISES)]


# --- every workload

Column = tuple[str, str]
"""A title, and the key of a figure (see `goals.Figure`)."""

_US: Column = ("CPU µs per node run", "cpu_us")
_WALL: Column = ("Wall µs per node run", "wall_us")
TABLES: dict[str, list[Column]] = {
    "engine": [_US],
    "langgraph": [_US],
    "condition": [_US], "declared": [_US],
    "memory": [_WALL],
    "sqlite": [
        _WALL, ("CPU µs per node run, all threads", "cpu_us"), ("Bytes stored per node run", "bytes_per_step"),
        ("Bytes stored per KiB of message content", "bytes_per_kib"),
    ],
    "postgres": [_WALL, ("CPU µs per node run, without the server's", "cpu_us")],
    "growth": [
        ("Bytes stored per message of 1 KiB", "bytes_per_message"),
        ("First turn, hot, ms", "first_turn_hot_ms"),
        ("Last turn, hot, ms", "last_turn_hot_ms"),
        ("Last turn, cold, ms", "last_turn_cold_ms"),
        ("Load the newest state, ms", "load_ms"),
        ("List the last 100 checkpoints, ms", "history_100_ms"),
        ("Fork from the middle, ms", "fork_ms"),
    ],
    "stream": [
        ("CPU µs per event", "cpu_us"),
        ("Delay from node to consumer, p50 µs", "latency_p50_us"),
        ("Delay from node to consumer, p99 µs", "latency_p99_us"),
    ],
    "slow": [("Most events ahead of the consumer", "ahead")],
    "paced": [
        ("Seconds until all have ended (2 is ideal)", "wall_s"),
        ("CPU µs per event", "cpu_us"),
        ("Delay, p50 µs", "latency_p50_us"),
        ("Delay, p99 µs", "latency_p99_us"),
        ("KiB of memory per run", "kib_per_run"),
    ],
    "crowd": [
        ("KiB of memory per thread, half-way", "kib_per_thread"),
        ("Tokens that the slowest is behind the fastest, half-way", "behind_at_half"),
        ("Longest gap between two tokens of one thread, s (0.2 is ideal)", "longest_gap_s"),
    ],
    "pause": [("Run to the question, ms", "pause_ms"), ("Answer and finish, ms", "resume_ms")],
    "cold": [("Process start to result, ms", "wall_ms")],
    "import": [
        ("Wall ms", "import_ms"), ("CPU ms", "import_cpu_ms"), ("Memory, MiB", "import_mib"), ("Modules", "modules"),
    ],
    "install": [("Distributions", "distributions"), ("MB", "megabytes")],
    "model_client": [
        ("CPU µs per chunk of text", "text_us"), ("CPU µs per chunk of reasoning", "reasoning_us"),
        ("CPU µs per chunk of a tool call", "tool_us"), ("CPU µs per event of the Responses API", "responses_us"),
        ("CPU µs per event of the Messages API", "messages_us"), ("CPU µs per chunk of the Gemini API", "gemini_us"),
    ],
}  # fmt: skip


def tables(group: str, results: Results) -> str:
    """Every table of a group that has figures."""
    chosen = {name: entry for name, entry in results.items() if entry["group"] == group}
    parts = []
    for title, key in TABLES[group]:
        known = {
            name: entry
            for name, entry in chosen.items()
            if any(Figure(name, system, key).value(results) is not None for system in entry["systems"])
        }
        if known:
            parts.append(
                f"**{title}**\n\n{_by_system(known, lambda name, system, k=key: Figure(name, system, k).value(results))}"
            )
    return "\n".join(parts)


def _by_system(chosen: Results, value_of: Callable[[str, str], float | None]) -> str:
    """One row a workload, one column a system; in brackets how many times graphflow's figure it is."""
    systems = list(dict.fromkeys(system for entry in chosen.values() for system in entry["systems"]))
    systems = [system for system in systems if any(value_of(name, system) is not None for name in chosen)]
    rows = []
    for name, entry in chosen.items():
        base, row = value_of(name, "graphflow"), [name]
        for system in systems:
            value = value_of(name, system)
            if value is None:
                note = entry["systems"].get(system, {}).get("note", "–")
                row.append("failed" if note != "–" else "–")
            else:
                row.append(number(value) + (f" ({short(value / base)}×)" if base and system != "graphflow" else ""))
        rows.append(row)
    return table(["workload", *map(name_of, systems)], rows)


def everything(results: Results) -> str:
    """The tables of all groups."""
    groups = {entry["group"] for entry in results.values()}
    return "\n".join(f"### {title}\n\n{tables(group, results)}" for group, title in TITLES.items() if group in groups)
