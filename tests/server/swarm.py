"""Several server processes over one store, and agents whose nodes the tests hold by files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.forked import ForkedProcess, python
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
MESSAGES = {"type": "array", "default": [], "x-reducer": "messages"}
LOG = {"type": "array", "items": {"type": "string"}, "default": [], "x-reducer": "append"}
STATE = {"type": "object", "properties": {"messages": MESSAGES, "log": LOG}}
AGENTS: dict[str, dict[str, Any]] = {
    "quick": {
        "graphflow": "1", "state": STATE, "start": "note",
        "nodes": {"note": {"use": "node:note", "next": "end"}},
    },
    "held": {
        "graphflow": "1", "state": STATE, "start": "note",
        "nodes": {
            "note": {"use": "node:note", "next": "hold"},
            "hold": {"use": "node:hold", "next": "write"},
            "write": {"use": "node:write", "next": "end"},
        },
    },
    "review": {
        "graphflow": "1", "state": STATE, "start": "both",
        "nodes": {
            "both": {"parallel": {"ask": "who", "work": "hold"}, "next": "write"},
            "who": {"ask": {"message": "Who?", "schema": {"type": "string"}}, "set": {"log": "[answer]"}, "next": "end"},
            "hold": {"use": "node:hold", "next": "end"},
            "write": {"use": "node:write", "next": "end"},
        },
    },
    "deadly": {
        "graphflow": "1", "state": STATE, "start": "note",
        "nodes": {
            "note": {"use": "node:note", "next": "die"},
            "die": {"use": "node:die", "next": "write"},
            "write": {"use": "node:write", "next": "end"},
        },
    },
    "wait": {
        "graphflow": "1", "state": STATE, "start": "rest",
        "nodes": {
            "rest": {"use": "wait", "with": {"signal": "go"}, "set": {"log": "[out.payload]"}, "next": "end"},
        },
    },
    "ask": {
        "graphflow": "1", "state": STATE, "start": "who",
        "nodes": {
            "who": {"ask": {"message": "Who?", "schema": {"type": "string"}}, "set": {"log": "[answer]"}, "next": "end"},
        },
    },
}  # fmt: skip
_MAIN = """
import asyncio, os, sys
from pathlib import Path
from graphflow.server.run import make_server
from graphflow.service.application import Application
from graphflow.settings import load_settings

async def note(state, ctx):
    await asyncio.sleep(0)
    return {"log": [state["messages"][-1].content]}

async def hold(state, ctx):
    while Path("held").exists():
        await ctx.content("still ")
        await asyncio.sleep(0.02)

async def die(state, ctx):
    with open("deaths.log", "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\\n")
    os._exit(1)

async def write(state, ctx):
    def act():
        with open("effects.log", "a", encoding="utf-8") as file:
            file.write(f"{ctx.run_id} {os.getpid()}\\n")
        return True
    await ctx.step("act", act)

def store():
    if len(sys.argv) < 2:
        return None
    from graphflow.checkpoints.postgres.checkpointer import PostgresCheckpointer
    return PostgresCheckpointer(sys.argv[1])

async def main():
    app = Application(load_settings("."), checkpointer=store())
    for function in (note, hold, write, die):
        app.kinds.node(function.__name__, function)
    await make_server(app, port=0, on_start=lambda url: print(url, flush=True)).serve()

asyncio.run(main())
"""


class Server:
    """One server process, and a client of it."""

    def __init__(self, process: ForkedProcess, client: httpx.AsyncClient) -> None:
        self.process, self.client = process, client

    def send(self, how: int) -> None:
        self.process.send_signal(how)

    async def end(self, how: int = signal.SIGKILL) -> None:
        await self.client.aclose()
        with suppress(ProcessLookupError):
            self.process.send_signal(how)
        await asyncio.to_thread(self.process.communicate)


class Swarm:
    """A folder with agents, and the servers over it."""

    def __init__(self, folder: Path, store: Sequence[str] = (), **settings: Any) -> None:
        self.folder, self._store = folder, store
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GRAPHFLOW")},
            "PYTHONPATH": str(ROOT),
            "GRAPHFLOW_LOG_LEVEL": "error",
            "GRAPHFLOW_SERVER_SHUTDOWN_GRACE_S": "0",
            **{f"GRAPHFLOW_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.servers: list[Server] = []
        (folder / "graphs").mkdir(parents=True, exist_ok=True)
        for key, data in AGENTS.items():
            (folder / "graphs" / f"{key}.json").write_text(json.dumps(data), encoding="utf-8")

    def hold(self) -> None:
        """Nodes `hold` begin to wait."""
        (self.folder / "held").touch()

    def let_go(self) -> None:
        (self.folder / "held").unlink(missing_ok=True)

    def effects(self) -> list[list[str]]:
        """`[run, process]` of each effect that was done."""
        path = self.folder / "effects.log"
        return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    async def start(self, count: int = 1) -> list[Server]:
        """More servers, ready to serve."""
        made = await asyncio.gather(*(self._start() for _ in range(count)))
        self.servers += made
        return list(made)

    async def _start(self) -> Server:
        process = python("-c", _MAIN, *self._store, cwd=self.folder, env=self._env)
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        limits = httpx.Limits(max_connections=300, max_keepalive_connections=0)  # none that its server closes just now
        return Server(process, httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=limits))


@asynccontextmanager
async def swarm(folder: Path, store: Sequence[str] = (), **settings: Any) -> AsyncIterator[Swarm]:
    made = Swarm(folder, store, **settings)
    try:
        yield made
    finally:
        for server in made.servers:
            await server.end()
