"""What a system costs before it does anything: import time, CPU, memory and modules, in fresh interpreters, interleaved."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

STATEMENTS = {
    "graphflow": "from graphflow import Graph, SqliteCheckpointer, load_graph, CompiledGraph",
    "langgraph": "from langgraph.graph import StateGraph; from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver",
    "burr": "import burr.core; from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister",
    "floor": "import asyncio, sqlite3, msgspec",
}
"""The graph API together with the SQLite store of each."""

PROBE = """
import json, sys, time
def kib():
    try:
        with open('/proc/self/status') as status:
            return next(int(line.split()[1]) for line in status if line.startswith('VmRSS'))
    except OSError:
        return 0
modules, memory, wall, cpu = len(sys.modules), kib(), time.perf_counter(), time.process_time()
exec(sys.argv[1])
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
unwanted = [m for m in ('pydantic', 'networkx', 'httpx', 'fastapi', 'cel_expr_python', 'structlog') if m in sys.modules]
print(json.dumps([wall * 1e3, cpu * 1e3, (kib() - memory) / 1024, len(sys.modules) - modules, unwanted]))
"""


def measure(pythons: Mapping[str, str], rounds: int = 11) -> dict[str, dict[str, float | list[str]]]:
    """Medians of each system, without the bare interpreter; the first round, which writes `.pyc` files, is left out."""
    seen: dict[str, list[list[float]]] = {system: [] for system in pythons}
    loaded: dict[str, list[str]] = {}
    for number in range(rounds + 1):
        for system, python in pythons.items():
            command = [python, "-c", PROBE, STATEMENTS[system]]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            out = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
            *figures, loaded[system] = json.loads(out)
            if number:
                seen[system].append(figures)
    names = ("wall_ms", "cpu_ms", "rss_mib", "modules")
    return {
        system: {
            **dict(zip(names, (statistics.median(column) for column in zip(*rows, strict=True)), strict=True)),
            "loads": loaded[system],
        }
        for system, rows in seen.items()
    }
