"""What graphflow adds to a call of an MCP server's tool: a read over warm stdio, on a memory store.

    python benchmarks/mcp_call.py                # milliseconds of one call, and the ratio
    python benchmarks/mcp_call.py --json results/mcp_call.json

`mcp-server-time`, the same process and connection for both: the SDK's own call, and a call of a `tools` node, which checks, records and sends it. Both
are taken in turns of 20 calls, and the best turn of each counts: whatever else the machine does only adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from graphflow import MemoryCheckpointer  # noqa: E402
from graphflow.service.application import Application  # noqa: E402
from graphflow.settings import load_settings  # noqa: E402

ASKED = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
CALLS, TURNS = 20, 12


def document() -> dict[str, Any]:
    calls = [{"id": f"c{n}", "name": "time.convert_time", "arguments": ASKED} for n in range(CALLS)]
    node = {"use": "tools", "with": {"calls": calls, "parallel": False}, "next": "end"}
    return {"graphflow": "1", "state": {"type": "object", "properties": {}}, "tools": ["mcp:time"], "start": "calls",
            "nodes": {"calls": node}}  # fmt: skip


async def measure(folder: Path) -> dict[str, float]:
    (folder / "graphs").mkdir()
    (folder / "graphs" / "caller.json").write_text(json.dumps(document()), encoding="utf-8")
    toml = f'[mcp.time]\ncommand = {json.dumps(sys.executable)}\nargs = ["-m", "mcp_server_time"]\neffects = "read"\n'
    (folder / "graphflow.toml").write_text(toml + "connectTimeoutMs = 60000\n", encoding="utf-8")
    async with Application(load_settings(folder), checkpointer=MemoryCheckpointer()) as app:
        graph = await app.ready_graph("caller")
        assert app.mcp is not None
        server = app.mcp.by_name["time"]

        async def bare(client: Any) -> None:
            for _ in range(CALLS):
                await client.session.call_tool("convert_time", ASKED)

        best = {"bare": float("inf"), "graphflow": float("inf")}
        for turn in range(TURNS):
            begun = time.perf_counter()
            await server.use(bare, repeatable=True)
            between = time.perf_counter()
            done = await graph.run({"query": "go"}, f"t{turn}")
            ended = time.perf_counter()
            assert done.status == "completed"
            best = {
                "bare": min(best["bare"], between - begun),
                "graphflow": min(best["graphflow"], ended - between),
            }
    figures = {f"{name}_ms": round(seconds / CALLS * 1000, 3) for name, seconds in best.items()}
    return {**figures, "ratio": round(best["graphflow"] / best["bare"], 2)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder)))
    for name, value in figures.items():
        print(f"{name:<14} {value}")
    if given.json is not None:
        given.json.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
