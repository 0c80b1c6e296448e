"""Five thousand threads at once, each streaming a hundred tokens, in one process: memory of each, and whether any starves.

    python benchmarks/crowd.py                       # 5,000 threads × 100 tokens, SQLite in a temporary folder
    python benchmarks/crowd.py --threads 500 --store memory --json results/crowd.json

Every thread has a detached run (as a server has them) and a reader that takes each event. A token is 4 characters, and
comes every `--pause` seconds, so all runs are under way together. *Memory* is what the process holds more than before the
first run, at the moment when every run has streamed half its tokens, by thread. *Starvation* is told by how far the
slowest thread is behind the fastest at that moment, and by the longest gap between two tokens of one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from graphflow import Context, Graph, MemoryCheckpointer, SqliteCheckpointer  # noqa: E402
from graphflow.runtime.launch import launch  # noqa: E402
from graphflow.runtime.run_request import RunRequest  # noqa: E402
from graphflow.runtime.runs.live_runs import LiveRun  # noqa: E402


def resident() -> int:
    """Bytes of this process that are in memory."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Crowd:
    def __init__(self, threads: int, tokens: int, pause_s: float) -> None:
        self.threads, self.tokens, self.pause_s = threads, tokens, pause_s
        self.sent = [0] * threads
        self.read = [0] * threads
        self.last = [0.0] * threads
        self.gaps = [0.0] * threads
        self.held = 0
        self.spread = (0, 0)
        self.before = 0
        self._half = 0
        """Threads that have streamed half of their tokens."""
        self._inside = 0
        self._go = asyncio.Event()
        self._all_inside = asyncio.Event()

    def graph(self) -> Graph:
        graph = Graph(
            {"type": "object", "properties": {"messages": {"type": "array", "default": [], "x-reducer": "messages"}}}
        )

        @graph.node
        async def talk(state: Any, ctx: Context) -> dict[str, Any]:
            number = ctx.input["number"]
            self._inside += 1
            if self._inside == self.threads:
                self._all_inside.set()
            await self._go.wait()
            for _ in range(self.tokens):
                await ctx.content("tok ")
                self.sent[number] += 1
                await asyncio.sleep(self.pause_s)
            return {"messages": [{"role": "assistant", "content": "tok " * self.tokens}]}

        return graph

    async def follow(self, number: int, run: LiveRun) -> None:
        assert run.log is not None
        async for event in run.log.follow(0):
            if event.type != "content.delta":
                continue
            now = time.perf_counter()
            if self.read[number]:
                self.gaps[number] = max(self.gaps[number], now - self.last[number])
            self.last[number] = now
            self.read[number] += 1
            self._half += self.read[number] == self.tokens // 2
            if self._half == self.threads:
                self._half = 0
                self.spread = (min(self.read), max(self.read))
                self.held = resident()
                self.at_half()

    def at_half(self) -> None:
        """A place to look closer from."""

    async def run(self, store: Any) -> dict[str, Any]:
        app = self.graph().compile(checkpointer=store)
        self._go.set()
        warm = await launch(app.host, RunRequest(input={"query": "hello", "number": 0}, thread_id="warm"))
        await warm.over.wait()
        self._go.clear()
        self._inside = self.sent[0] = 0
        gc.collect()
        self.before = resident()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as readers:
            runs = []
            for number in range(self.threads):
                run = await launch(
                    app.host, RunRequest(input={"query": "hello", "number": number}, thread_id=f"thread-{number}")
                )
                readers.create_task(self.follow(number, run))
                runs.append(run)
            await self._all_inside.wait()
            launched = time.perf_counter()
            waiting = resident()
            self._go.set()
            await asyncio.gather(*(run.over.wait() for run in runs))
            took = time.perf_counter() - launched
        gc.collect()
        after = resident()
        gaps = sorted(self.gaps)
        return {
            "threads": self.threads,
            "tokens": self.tokens,
            "pause_s": self.pause_s,
            "store": type(store).__name__,
            "seconds": round(took, 2),
            "seconds_to_launch": round(launched - began, 2),
            "events_per_second": round(self.threads * self.tokens / took),
            "kib_per_thread_before_the_first_token": round((waiting - self.before) / self.threads / 1024, 2),
            "kib_per_thread": round((self.held - self.before) / self.threads / 1024, 2),
            "kib_per_thread_after": round((after - self.before) / self.threads / 1024, 2),
            "complete": sum(count == self.tokens for count in self.read),
            "slowest_at_half": self.spread[0],
            "fastest_at_half": self.spread[1],
            "longest_gap_s": round(gaps[-1], 3),
            "median_longest_gap_s": round(statistics.median(gaps), 3),
        }


async def main(options: argparse.Namespace) -> dict[str, Any]:
    crowd = Crowd(options.threads, options.tokens, options.pause)
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryCheckpointer() if options.store == "memory" else SqliteCheckpointer(Path(folder) / "threads.db")
        await store.setup()
        result = await crowd.run(store)
        await store.close()
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=5_000)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument("--json")
    given = parser.parse_args()
    text = json.dumps(asyncio.run(main(given)), indent=1)
    print(text)
    if given.json is not None:
        Path(given.json).write_text(text + "\n", encoding="utf-8")
