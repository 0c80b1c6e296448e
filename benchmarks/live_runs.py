"""What a step costs when few and when many runs are live in one process, and how much of that is garbage collection.

    python benchmarks/live_runs.py                    # 500 and 2,000 runs over SQLite
    python benchmarks/live_runs.py 100 5000

Each count is measured in a process of its own, with Python's collector as it is and after `relax_collector`. All runs begin,
then each does its steps in turn with the others. CPU time a step, and that of the collector within it, in µs.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from graphflow import Graph, SqliteCheckpointer, relax_collector  # noqa: E402

STEPS = 30
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}


async def measure(runs: int, relaxed: bool, folder: Path) -> tuple[float, float]:
    """CPU time a step, and the collector's part of it, in µs."""
    live, all_live, collected = 0, asyncio.Event(), 0.0

    async def step(state: Any) -> dict[str, int]:
        nonlocal live
        if state["n"] == 0:
            live += 1
            if live == runs:
                all_live.set()
            await all_live.wait()
        await asyncio.sleep(0)
        return {"n": state["n"] + 1}

    def watch(phase: str, _: Any) -> None:
        nonlocal collected
        collected += time.thread_time() if phase == "stop" else -time.thread_time()

    graph = Graph(SCHEMA, budget={"maxSteps": 2 * STEPS})
    graph.node(step, next=[{"if": f"state.n < {STEPS}", "to": "step"}, {"to": "end"}])
    store = SqliteCheckpointer(folder / "threads.db")
    app = graph.compile(checkpointer=store)
    if relaxed:
        relax_collector(store)
    async with asyncio.TaskGroup() as group:
        for number in range(runs):
            group.create_task(app.run({}, f"t{number}"))
        await all_live.wait()
        gc.callbacks.append(watch)
        began = time.process_time()
    took = time.process_time() - began
    await store.close()
    return took / runs / STEPS * 1e6, collected / runs / STEPS * 1e6


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        with tempfile.TemporaryDirectory(prefix="live-runs-") as folder:
            took, collected = asyncio.run(measure(int(sys.argv[2]), sys.argv[3] == "relaxed", Path(folder)))
        print(took, collected)
        return
    counts = [int(text) for text in sys.argv[1:]] or [500, 2000]
    print(f"{'collector':10} {'runs':>6} {'µs a step':>10} {'collecting':>10}")
    for policy in ("as it is", "relaxed"):
        for runs in counts:
            command = [sys.executable, __file__, "--one", str(runs), policy]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            print(f"{policy:10} {runs:6} {float(told[0]):10.1f} {float(told[1]):10.1f}", flush=True)


if __name__ == "__main__":
    main()
