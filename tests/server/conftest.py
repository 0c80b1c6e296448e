"""A real server over a real socket, in this process or as a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script
from graphflow.models.scripted.server import DeltaGate, ScriptedServer, serve_scripted
from graphflow.server.run import Server, make_server
from graphflow.service.application import Application
from tests.forked import ForkedProcess, python
from tests.patience import PATIENCE_S
from tests.server.contract import check_answer, check_event
from tests.service.clients import Client, check_grammar
from tests.service.conftest import Gate, make_application, write_agents

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def serving(application: Application, **options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Server]]:
    """The application behind a socket, and a client of it."""
    server = make_server(application, **{"port": 0, **options})
    task = asyncio.ensure_future(server.serve())  # noqa: TID251 - awaited below
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.005)
    try:
        hooks = {"response": [check_answer]}
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, event_hooks=hooks) as client:
            yield client, server
    finally:
        server.should_exit = True
        await task


Serve = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_agents(tmp_path)
    return tmp_path


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def client(folder: Path, gate: Gate) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server whose models play the story, gated."""
    async with serving(make_application(folder, gate=gate)) as (made, _):
        yield made


async def frames(response: httpx.Response) -> AsyncIterator[tuple[str | None, dict[str, Any]]]:
    """The frames of an SSE response as they come: `(id, event)`."""
    assert response.status_code == 200, await response.aread()
    assert response.headers["content-type"].startswith("text/event-stream")
    sse_id, data = None, None
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            sse_id = line[4:]
        elif line.startswith("data: "):
            data = json.loads(line[6:])
            check_event(data)
        elif line.startswith("event: "):
            assert line == "event: message"
        elif not line and data is not None:
            yield sse_id, data
            sse_id, data = None, None


async def take(client: httpx.AsyncClient, method: str, url: str, into: Client | None = None, **request: Any) -> Client:
    """All events of a streamed response."""
    seen = into or Client()
    async with client.stream(method, url, **request) as response:
        async for sse_id, event in frames(response):
            seen.take(sse_id, event)
    check_grammar(seen.events)
    return seen


async def ask(client: httpx.AsyncClient, message: str = "Tell me a story", **fields: Any) -> Client:
    """The events of a query."""
    return await take(client, "POST", "/api/query", json={"message": message, **fields})


# --- a process that can be killed ----------------------------------------------------------------

_MAIN = """
import sys
from graphflow.server.run import serve
from graphflow.settings import load_settings
serve(load_settings("."), port=0, on_start=lambda url: print(url, flush=True))
"""


class Process:
    """A server process over a folder."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.folder = folder
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("GRAPHFLOW")},
            "PYTHONPATH": str(ROOT),
            "LLM_BASE_URL": upstream,
            "OPENAI_API_KEY": "key-of-nobody",
            "LLM_MODEL_ID": "scripted",
            "GRAPHFLOW_LOG_LEVEL": "error",
            "GRAPHFLOW_SERVER_SHUTDOWN_GRACE_S": "0",
            "GRAPHFLOW_SERVER_TAKE_OVER": "false",  # what is tested is how clients go on
        }
        self.process: ForkedProcess | None = None
        self.client: httpx.AsyncClient | None = None

    async def start(self) -> httpx.AsyncClient:
        self.process = python("-c", _MAIN, cwd=self.folder, env=self.env)
        assert self.process.stdout is not None
        url = (await asyncio.to_thread(self.process.stdout.readline)).strip()
        assert re.match(r"http://127\.0\.0\.1:\d+$", url), url
        self.client = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S)
        return self.client

    async def kill(self, how: int = signal.SIGKILL) -> None:
        if self.client is not None:
            await self.client.aclose()
            self.client = None
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(how)
            await asyncio.to_thread(self.process.communicate)
            self.process = None


class Upstream:
    """The scripted model behind HTTP, gated."""

    def __init__(self, server: ScriptedServer, gate: DeltaGate) -> None:
        self.server, self.gate, self.url = server, gate, server.url


@asynccontextmanager
async def upstream(script: Any) -> AsyncIterator[Upstream]:
    gate = DeltaGate()
    async with serve_scripted(ScriptedModel(msgspec.convert(script, Script)), gate=gate) as server:
        yield Upstream(server, gate)


@pytest.fixture
async def processes(folder: Path) -> AsyncIterator[Callable[[str], Process]]:
    """Makes server processes over the folder; kills what is left at the end."""
    made: list[Process] = []

    def make(url: str) -> Process:
        made.append(Process(folder, url))
        return made[-1]

    yield make
    for process in made:
        await process.kill()
