"""What a system costs before it does anything: import time and memory in fresh interpreters, interleaved, and its installation."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "graphflow"

STATEMENTS = {
    "graphflow": "from graphflow import Graph, SqliteCheckpointer, load_graph, CompiledGraph",
    "langgraph": "from langgraph.graph import StateGraph; from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver",
    "pydantic_graph": "from pydantic_graph import GraphBuilder, BaseNode, GraphRunContext, End",
    "burr": "import burr.core; from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister",
    "floor": "import asyncio, sqlite3, msgspec",
}
"""The graph API together with the SQLite store of each; pydantic-graph has no store."""

REQUIRED = {
    "langgraph": "langgraph langgraph-checkpoint-sqlite",
    "burr": "burr aiosqlite",
    "pydantic_graph": "pydantic-graph",
}
"""What one asks pip for to get the peers."""

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


CLOSURE = """
import importlib.metadata as md, json, re, sys
try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement
wanted, seen, size = [], set(), 0
for text in sys.argv[1:]:
    need = Requirement(text)
    if need.marker is None or need.marker.evaluate({'extra': ''}):
        wanted.append((need.name, frozenset(need.extras)))
while wanted:
    name, extras = wanted.pop()
    key = re.sub(r'[-_.]+', '-', name).lower()
    if (key, extras) in seen:
        continue
    seen.add((key, extras))
    for text in md.distribution(name).requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({'extra': extra}) for extra in (*extras, '')):
            wanted.append((need.name, frozenset(need.extras)))
names = sorted({key for key, _ in seen})
for name in names:
    for file in md.distribution(name).files or ():
        path = file.locate()
        if path.is_file() and path.suffix != '.pyc':
            size += path.stat().st_size
print(json.dumps([len(names), size]))
"""
"""How many distributions some requirements bring, and their bytes: read from what is installed, without `.pyc` files."""

Figures = dict[str, dict[str, float]]


def imports(pythons: Mapping[str, str], rounds: int) -> Figures:
    """Medians of each system, without the bare interpreter; the first round, which writes `.pyc` files, is left out."""
    seen: dict[str, list[list[float]]] = {system: [] for system in pythons}
    for turn in range(rounds + 1):
        for system, python in pythons.items():
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            *figures, loaded = json.loads(_said([python, "-c", PROBE, STATEMENTS[system]], environment))
            if system == "graphflow" and loaded:
                raise RuntimeError(f"importing graphflow loads {', '.join(loaded)}")
            if turn:
                seen[system].append(figures)
    names = ("import_ms", "import_cpu_ms", "import_mib", "modules")
    return {
        system: dict(zip(names, (statistics.median(column) for column in zip(*rows, strict=True)), strict=True))
        for system, rows in seen.items()
    }


def installations(pythons: Mapping[str, str]) -> Figures:
    """Distributions and megabytes of each system in its environment."""
    out: Figures = {}
    for system, python in pythons.items():
        required = REQUIRED[system].split() if system in REQUIRED else _dependencies()
        count, size = json.loads(_said([python, "-c", CLOSURE, *required]))
        if system not in REQUIRED:  # in a checkout it is no distribution, or one without files
            count += 1
            size += sum(path.stat().st_size for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
        out[system] = {"distributions": count, "megabytes": size / 1e6}
    return out


def _dependencies() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["project"]["dependencies"])


def _said(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} … {command[-1]} failed: {done.stderr[-500:]}")
    return done.stdout
