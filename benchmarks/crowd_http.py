"""Five hundred SSE clients at once: what the server adds to each delta, and whether its memory stays flat.

    python benchmarks/crowd_http.py                        # 500 clients, about four minutes
    python benchmarks/crowd_http.py --clients 50 --tokens 20 --json results/crowd_http.json

An upstream in a process of its own streams OpenAI chunks, each with the moment at which it was written; clients in this
process tell how old each delta is when it arrives. Three ways are measured in one run: `direct` from the upstream, through
a bare Starlette app that passes each chunk on as an event (`passthrough`), and through `graphflow serve` with an agent,
a store and all events (`graphflow`). *Paced*: every client asks again and again, a delta of its stream comes every `--pause` seconds;
*added* is what a way's delay is above that of `direct`. *At full speed*: the upstream writes as fast as it is read.
Memory is the server's RSS when a tenth of all streams has ended, and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
AGENT = {"mode": "PLAIN", "providerKey": "auto", "plain": {"systemPrompt": "Answer."}}
STAMP = re.compile(rb"@(\d{16})")
"""Microseconds of the clock that all processes of a machine share."""
LONGER = 5
"""How much longer streams are at full speed, where beginning them would weigh too much."""


def now() -> int:
    return time.monotonic_ns() // 1000


# --- the upstream: `crowd_http.py upstream` -------------------------------------------------------


async def upstream() -> None:
    """Streams as many tokens as the last message asks for (`TOKENS PAUSE`); prints its port."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        data = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}  # fmt: skip
        return framed(json.dumps(data, separators=(",", ":")).encode())

    def framed(data: bytes) -> bytes:
        line = b"data: " + data + b"\n\n"
        return b"%x\r\n%b\r\n" % (len(line), line)

    head, tail = chunk({"content": "@0"}).split(b"@0")
    size = len(head.partition(b"\r\n")[2] + tail[:-2]) + 17

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = (await reader.readuntil(b"\r\n\r\n")).lower()
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = int(request.split(b"content-length:")[1].split(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(length))["messages"][-1]["content"].split()
            tokens, pause = int(asked[0]), float(asked[1])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(tokens):
                await asyncio.sleep(pause)
                line = b"%x\r\n%b" % (size, head.partition(b"\r\n")[2])
                writer.write(b"%b@%016d%b" % (line, now(), tail))
                if not pause:
                    await writer.drain()
            writer.write(chunk({}, "stop") + framed(b"[DONE]") + b"0\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the bare pass-through: `crowd_http.py passthrough URL` ---------------------------------------


def passthrough(url: str) -> None:
    """A Starlette app that hands each event of the upstream on."""
    import httpx
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request  # noqa: TC002 - an annotation that nobody resolves
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    client = httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None))

    async def query(request: Request) -> StreamingResponse:
        message = {"role": "user", "content": (await request.json())["message"]}

        async def events() -> AsyncIterator[str]:
            body = {"model": "m", "stream": True, "messages": [message]}
            async with client.stream("POST", f"{url}/chat/completions", json=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        yield f"event: message\n{line}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("http://127.0.0.1:%d" % self.servers[0].sockets[0].getsockname()[1], flush=True)  # noqa: UP031

    app = Starlette(routes=[Route("/api/query", query, methods=["POST"])])
    Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, backlog=2048)).run()


# --- the clients ----------------------------------------------------------------------------------


class Stream(asyncio.Protocol):
    """One request and its stream, read with as little work as can be."""

    def __init__(self, request: bytes, end: bytes, delays: list[int]) -> None:
        self._request, self._end, self._delays = request, end, delays
        self.tokens = 0
        self.tail = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        at = now()
        for sent in STAMP.findall(data):
            self._delays.append(at - int(sent))
            self.tokens += 1
        self.tail = (self.tail + data)[-600:]
        if self._end in self.tail and not self.over.done():
            self.over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


class Way:
    """One way of the deltas to the clients."""

    def __init__(self, name: str, url: str, pid: int | None) -> None:
        self.name, self.pid = name, pid
        self._place = urlsplit(url)
        self._direct = name == "direct"
        self.end = b'"run.complete"' if name == "graphflow" else b"[DONE]"

    def request(self, tokens: int, pause: float) -> bytes:
        message = f"{tokens} {pause}"
        path, body = "/api/query", {"message": message, "agentKey": "plain"}
        if self._direct:
            path, body = f"{self._place.path}/chat/completions", {"messages": [{"role": "user", "content": message}]}  # type: ignore[dict-item]
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        return head.encode() + data

    async def stream(self, tokens: int, pause: float, delays: list[int]) -> bool:
        """Whether all of it came, in its order, with its end."""
        loop = asyncio.get_running_loop()
        transport, stream = await loop.create_connection(
            lambda: Stream(self.request(tokens, pause), self.end, delays), self._place.hostname, self._place.port
        )
        await stream.over
        transport.close()
        return stream.tokens == tokens and self.end in stream.tail

    def resident(self) -> int:
        if self.pid is None:
            return 0
        with Path(f"/proc/{self.pid}/statm").open(encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        if self.pid is None:
            return 0.0
        with Path(f"/proc/{self.pid}/stat").open(encoding="ascii") as file:
            fields = file.read().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def measure(self, clients: int, rounds: int, tokens: int, pause: float) -> dict[str, Any]:
        """All clients at once, each so many streams one after the other."""
        gc.collect()
        delays: list[int] = []
        complete = 0
        tenth, at_tenth = max(1, clients * rounds // 10), 0
        began, cpu = time.perf_counter(), self.cpu()

        async def client(number: int) -> None:
            nonlocal complete, at_tenth
            if pause:
                # somewhere within the length of a stream, so that as many begin at each moment as end
                await asyncio.sleep(random.Random(number).random() * tokens * pause)
            for _ in range(rounds):
                whole = await self.stream(tokens, pause, delays)
                complete += whole
                if complete == tenth and not at_tenth:
                    at_tenth = self.resident()

        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(number))
        took = time.perf_counter() - began
        delays.sort()
        if not delays:
            raise SystemExit(f"{self.name}: not one delta came")
        return {
            "streams": clients * rounds,
            "complete": complete,
            "events_per_second": round(len(delays) / took),
            "cpu_us_per_delta": round((self.cpu() - cpu) / max(1, len(delays)) * 1e6, 1),
            "delay_p50_ms": delays[len(delays) // 2] / 1000,
            "delay_p99_ms": delays[len(delays) * 99 // 100] / 1000,
            "rss_tenth_mib": round(at_tenth / 2**20, 1),
            "rss_end_mib": round(self.resident() / 2**20, 1),
        }


# --- the run --------------------------------------------------------------------------------------


@asynccontextmanager
async def process(*command: str, folder: Path, **more: str) -> AsyncIterator[tuple[str, int]]:
    """A program's first line, and its process id."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    made = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )  # fmt: skip
    assert made.stdout is not None
    try:
        yield (await asyncio.wait_for(made.stdout.readline(), 60)).decode().strip(), made.pid
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def main(options: argparse.Namespace) -> dict[str, Any]:
    me = str(ROOT / "benchmarks" / "crowd_http.py")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "graphs").mkdir()
        (folder / "graphs" / "plain.json").write_text(json.dumps(AGENT), encoding="utf-8")
        async with process(sys.executable, me, "upstream", folder=folder) as (port, _):
            url = f"http://127.0.0.1:{port}/v1"
            serve = (sys.executable, "-m", "graphflow", "serve", "--port", "0")
            settings = {
                "LLM_BASE_URL": url,
                "OPENAI_API_KEY": "none",
                "LLM_MODEL_ID": "m",
                "GRAPHFLOW_LOG_LEVEL": "warning",
            }
            async with (
                process(*serve, folder=folder, **settings) as (ours, our_pid),
                process(sys.executable, me, "passthrough", url, folder=folder) as (bare, bare_pid),
            ):
                ways = (Way("direct", url, None), Way("passthrough", bare, bare_pid), Way("graphflow", ours, our_pid))
                return await measured(ways, options)


async def measured(ways: tuple[Way, ...], options: argparse.Namespace) -> dict[str, Any]:
    out: dict[str, Any] = {
        "clients": options.clients,
        "tokens": options.tokens,
        "pause_s": options.pause,
        "paced": {},
        "full_speed": {},
    }
    for way in ways:
        await way.measure(min(20, options.clients), 1, 5, 0)  # warm
        rounds = 1 if way.name == "direct" else options.rounds
        out["paced"][way.name] = await way.measure(options.clients, rounds, options.tokens, options.pause)
    for way in ways[1:]:
        out["full_speed"][way.name] = await way.measure(options.clients, 1, options.tokens * LONGER, 0)
    direct, ours = out["paced"]["direct"], out["paced"]["graphflow"]
    out["added_p50_ms"] = round(ours["delay_p50_ms"] - direct["delay_p50_ms"], 3)
    out["added_p99_ms"] = round(ours["delay_p99_ms"] - direct["delay_p99_ms"], 3)
    out["rss_growth"] = round(ours["rss_end_mib"] / max(1, ours["rss_tenth_mib"]), 3)
    speed = out["full_speed"]
    out["speed_of_passthrough"] = round(
        speed["graphflow"]["events_per_second"] / speed["passthrough"]["events_per_second"], 2
    )
    return out


if __name__ == "__main__":
    if sys.argv[1:2] == ["upstream"]:
        asyncio.run(upstream())
    elif sys.argv[1:2] == ["passthrough"]:
        passthrough(sys.argv[2])
    else:
        parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
        parser.add_argument("--clients", type=int, default=500)
        parser.add_argument("--rounds", type=int, default=2, help="streams of each client, one after the other")
        parser.add_argument("--tokens", type=int, default=25)
        parser.add_argument("--pause", type=float, default=1.0, help="seconds between two deltas of a stream")
        parser.add_argument("--json")
        given = parser.parse_args()
        text = json.dumps(asyncio.run(main(given)), indent=1)
        print(text)
        if given.json is not None:
            Path(given.json).write_text(text + "\n", encoding="utf-8")
