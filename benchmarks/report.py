"""Figures as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workloads import Workload

Figures = Mapping[str, Any]
Result = tuple[Workload, Mapping[str, Figures]]


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def by_system(results: Sequence[Result], figure: Callable[[Workload, Figures], float | None]) -> str:
    """One row a workload, one column a system; in brackets how many times graphflow's figure it is."""
    systems = list(dict.fromkeys(system for workload, _ in results for system in workload.systems))
    systems = [system for system in systems if any(system in figures for _, figures in results)]
    rows = []
    for workload, figures in results:
        own = figures.get("graphflow", {})
        base = figure(workload, own) if "wall" in own else None
        row = [workload.name]
        for system in systems:
            if "wall" not in figures.get(system, {}):
                row.append("–" if system not in figures or figures[system].get("note") == "–" else "failed")
                continue
            value = figure(workload, figures[system])
            if value is None:
                row.append("–")
            else:
                row.append(number(value) + (f" ({value / base:.2g}×)" if base and system != "graphflow" else ""))
        rows.append(row)
    return table(["workload", *systems], rows)


def wall_us(workload: Workload, figures: Figures) -> float | None:
    return float(figures["wall"]) / workload.steps * 1e6


def cpu_us(workload: Workload, figures: Figures) -> float | None:
    return float(figures["cpu"]) / workload.steps * 1e6


def own(key: str, scale: float = 1.0) -> Callable[[Workload, Figures], float | None]:
    """A figure that the case found itself; None where it has none."""
    return lambda workload, figures: float(figures[key]) * scale if key in figures else None


TABLES: dict[str, list[tuple[str, Callable[[Workload, Figures], float | None]]]] = {
    "engine": [("CPU µs per node run", cpu_us)],
    "store": [
        ("Wall µs per node run", wall_us),
        ("CPU µs per node run, all threads", cpu_us),
        ("Bytes stored per KiB of message content", own("bytes_per_kib")),
    ],
    "growth": [
        ("Bytes stored per message of 1 KiB", own("bytes_per_message")),
        ("First turn, hot, ms", own("first_turn_hot_ms")),
        ("Last turn, hot, ms", own("last_turn_hot_ms")),
        ("First turn, cold, ms", own("first_turn_cold_ms")),
        ("Last turn, cold, ms", own("last_turn_cold_ms")),
        ("Load the newest state, ms", own("load_ms")),
        ("List the last 100 checkpoints, ms", own("history_100_ms")),
        ("Fork from the middle, ms", own("fork_ms")),
    ],
    "stream": [
        ("CPU µs per event", cpu_us),
        ("Delay from node to consumer, p50 µs", own("latency_p50_us")),
        ("Delay from node to consumer, p99 µs", own("latency_p99_us")),
    ],
    "pause": [("Run to the question, ms", own("pause_ms")), ("Answer and finish, ms", own("resume_ms"))],
    "cold": [("Process start to result, ms", own("wall", 1e3)), ("CPU of the answer alone, ms", own("cpu", 1e3))],
}


def tables(group: str, results: Sequence[Result]) -> str:
    """Every table of a group that has figures."""
    parts = []
    for title, figure in TABLES[group]:
        known = [(w, f) for w, f in results if any("wall" in x and figure(w, x) is not None for x in f.values())]
        if known:
            parts.append(f"**{title}**\n\n{by_system(known, figure)}")
    return "\n".join(parts)


def imports(figures: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        [
            system,
            *(number(f[key]) for key in ("wall_ms", "cpu_ms", "rss_mib")),
            f"{f['modules']:.0f}",
            " ".join(f["loads"]) or "none",
        ]
        for system, f in figures.items()
    ]
    return table(
        ["system", "wall ms", "CPU ms", "RSS MiB", "modules", "of pydantic, networkx, httpx, FastAPI, CEL, structlog"],
        rows,
    )
