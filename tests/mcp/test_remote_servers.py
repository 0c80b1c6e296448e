"""Servers at an address: streamable HTTP, and the older form over SSE."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from graphflow.messages import ToolMessage
from graphflow.service.application import Application
from graphflow.settings import load_settings
from tests.mcp.folders import PATIENCE, SERVERS, called, mcp_folder, react
from tests.patience import PATIENCE_S

SECRET = "secret-word"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(transport: str, port: int) -> Iterator[None]:
    command = [sys.executable, str(SERVERS / "remote.py"), transport, str(port), SECRET]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                httpx.get(f"http://127.0.0.1:{port}/up")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


async def added(app: Application, thread: str) -> ToolMessage:
    graph = await app.ready_graph("adder")
    done = await graph.run(called("remote__add", a=2, b=3), thread)
    assert done.status == "completed"
    return next(m for m in reversed(done.state["messages"]) if isinstance(m, ToolMessage))


@pytest.mark.parametrize(("transport", "path"), [("http", "/mcp"), ("sse", "/sse")])
async def test_a_remote_server_is_used_and_found_again_after_it_was_started_anew(
    tmp_path: Path, transport: str, path: str
) -> None:
    port = free_port()
    header = 'headers = {Authorization = "Bearer ${TOKEN}"}\n'
    toml = f'[mcp.remote]\ntransport = "{transport}"\nurl = "http://127.0.0.1:{port}{path}"\n{PATIENCE}{header}'
    mcp_folder(tmp_path, toml + 'effects = "read"\n', adder=react("mcp:remote"))
    settings = load_settings(tmp_path, environ={"LLM_PROVIDER": "scripted", "TOKEN": SECRET})
    async with Application(settings) as app:
        with served(transport, port):
            first = await added(app, "t1")
        with served(transport, port):
            second = await added(app, "t2")
        assert app.mcp is not None
        shown = str(app.mcp.status())
    assert (first.error, second.error) == (False, False), second.text
    assert "5" in first.text and "5" in second.text
    assert SECRET not in shown
