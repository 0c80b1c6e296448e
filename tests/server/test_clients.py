"""Streams as clients of other makes read them: the standard library's, httpx, `curl -N` (spec 3.3)."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.needs import need
from tests.patience import PATIENCE_S
from tests.server.conftest import serving
from tests.service.conftest import Gate, make_application

BODY = json.dumps({"message": "Tell me a story", "agentKey": "story"})


def types_of(text: str) -> list[str]:
    return [json.loads(line[6:])["type"] for line in text.splitlines() if line.startswith("data: ")]


async def test_curl_shows_each_delta_when_it_comes(folder: Path, gate: Gate) -> None:
    need(shutil.which("curl"), "curl")
    gate.close()
    async with asyncio.timeout(PATIENCE_S), serving(make_application(folder, gate=gate)) as (_, server):
        process = await asyncio.create_subprocess_exec(
            "curl", "-sN", "-d", BODY, f"{server.url}/api/query", stdout=asyncio.subprocess.PIPE
        )  # fmt: skip
        assert process.stdout is not None
        for pieces in range(1, 4):
            gate.open(1)
            while b'"type":"reasoning.delta"' not in await process.stdout.readline():
                pass
            assert gate.left == 0, f"piece {pieces} was shown before the next was made"
        gate.open()
        rest, _ = await process.communicate()
        assert process.returncode == 0 and types_of(rest.decode())[-1] == "run.complete"


async def test_the_standard_librarys_client_reads_a_chunked_stream_to_its_end(folder: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), serving(make_application(folder)) as (_, server):

        def ask() -> tuple[str | None, str]:
            with closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE_S)) as connection:
                connection.request("POST", "/api/query", BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.getheader("Content-Type"), answer.read().decode()

        kind, text = await asyncio.to_thread(ask)
    assert kind is not None and kind.startswith("text/event-stream")
    assert types_of(text)[0] == "request.query" and types_of(text)[-1] == "run.complete"


async def test_bytes_may_be_cut_anywhere(client: httpx.AsyncClient) -> None:
    """A reader that takes single bytes, as `fetch` may hand them out, sees the frames that all others see."""
    async with client.stream("POST", "/api/query", content=BODY) as response:
        text, frames = b"", []
        async for piece in response.aiter_bytes(1):
            text += piece
            if text.endswith(b"\n\n"):
                frames.append(text)
                text = b""
    assert text == b"" and all(frame.startswith(b"id: ") and frame.count(b"\n") == 4 for frame in frames)
    numbers: list[Any] = [json.loads(frame.split(b"data: ")[1])["seq"] for frame in frames]
    assert numbers == list(range(1, len(frames) + 1))
