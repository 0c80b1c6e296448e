"""CPU per upstream chunk: graphflow's client beside the openai SDK and bare httpx, in one interleaved run.

    python benchmarks/model_client.py [--sdk-python PATH] [--chunks 4000] [--rounds 7] [--block 64]

A loopback server in a process of its own streams the same OpenAI chunks to each client; every client runs
in a process of its own, is opened once (as in a server) and counts its own CPU (`time.process_time`) per
stream, request included. The rounds of the clients are interleaved; the table shows medians and the ratio
to the SDK (of Messages events: `anthropic` with `messages.stream`, which puts the message together as graphflow does).
`--sdk-python` is the interpreter of an environment that has `openai`, `anthropic` for the Messages events and `google-genai` for Gemini; without it
that row is left out. `--block N` is how many chunks the server writes at a time: 64 for the cost of decoding, 1 for the cost of a real, slow stream.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("text", "reasoning", "tool", "responses", "messages", "gemini")
SDKS = {"messages": "anthropic", "gemini": "google.genai"}
"""Kinds whose SDK is not `openai`."""
WORDS = "the quick brown fox jumps over the lazy dog and then it rests".split()


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    data = {
        "id": "chatcmpl-9f2c1b7e5a",
        "object": "chat.completion.chunk",
        "created": 1763650000,
        "model": "gpt-4.1-mini",
        "system_fingerprint": "fp_51db84afab",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def event(kind: str, **fields: object) -> bytes:
    """One event of the Responses API."""
    data = {"type": kind, "sequence_number": 7, **fields}
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def response_body(chunks: int) -> list[bytes]:
    at = {"content_index": 0, "item_id": "msg_68af0f9b1c7081", "output_index": 0, "logprobs": []}
    return [
        event("response.output_text.delta", delta=f" {WORDS[i % 13]}", obfuscation="xT9hFq2", **at)
        for i in range(chunks)
    ]


def message_body(chunks: int) -> list[bytes]:
    """Events of the Messages API of Anthropic."""

    def event(kind: str, **fields: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n".encode()

    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
    head = event("message_start", message={**message, "stop_sequence": None, "usage": usage})
    head += event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    pieces = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": f" {WORDS[i % 13]}"})
        for i in range(chunks)
    ]
    tail = event("content_block_stop", index=0)
    tail += event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage)
    return [head + pieces[0], *pieces[1:-1], pieces[-1] + tail + event("message_stop")]


def gemini_chunk(text: str, finish: str | None = None) -> bytes:
    """One chunk of `streamGenerateContent`."""
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    data = {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "usageMetadata": usage}
    said = {**data, "modelVersion": "gemini-3.8-flash", "responseId": "9f2c1b7e5a"}
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\r\n\r\n"


def end(kind: str) -> bytes:
    """What follows the deltas."""
    if kind == "messages":
        return b": end\n\n"
    if kind == "gemini":
        return gemini_chunk("", "STOP")
    if kind == "responses":
        usage = {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        }
        response = {"id": "r", "object": "response", "status": "completed", "output": [], "usage": usage}
        return event("response.completed", response=response)
    return chunk({}, "tool_calls" if kind == "tool" else "stop") + b"data: [DONE]\n\n"


def body(kind: str, chunks: int) -> list[bytes]:
    if kind == "responses":
        return response_body(chunks)
    if kind == "messages":
        return message_body(chunks)
    if kind == "gemini":
        return [gemini_chunk(f" {WORDS[i % 13]}") for i in range(chunks)]
    if kind == "tool":
        out = [
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
                    ]
                }
            )
        ]
        out += [
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a' if i == 0 else "abc"}}]})
            for i in range(chunks - 2)
        ]
        return [*out, chunk({"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]})]
    if kind == "reasoning":
        return [chunk({"content": None, "reasoning_content": f" {WORDS[i % 13]}"}) for i in range(chunks)]
    return [chunk({"content": f" {WORDS[i % 13]}"}) for i in range(chunks)]


# --- the server ----------------------------------------------------------------------------------


async def serve() -> None:
    """Answers `/{kind}/{chunks}/{block}/…`; prints its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            except asyncio.IncompleteReadError:
                break
            _, kind, chunks, block, *_ = head.split(" ")[1].split("/")
            length = next(line for line in head.split("\r\n") if line.startswith("content-length"))
            await reader.readexactly(int(length.split(":")[1]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            events = body(kind, int(chunks))
            for start in range(0, len(events), int(block)):
                data = b"".join(events[start : start + int(block)])
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await writer.drain()
                if block == "1":
                    await asyncio.sleep(0)
            tail = end(kind)
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(tail), tail))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


# --- the clients ---------------------------------------------------------------------------------


Stream = Callable[[str], Awaitable[int]]
"""Streams one URL and counts the deltas."""


@asynccontextmanager
async def graphflow_client() -> AsyncIterator[Stream]:
    from graphflow.messages import HumanMessage
    from graphflow.models.anthropic.model import AnthropicModel
    from graphflow.models.gemini.model import GeminiModel
    from graphflow.models.openai.model import OpenAICompatibleModel
    from graphflow.models.profiles import Profile
    from graphflow.models.provider import Provider
    from graphflow.models.remote.transport import HttpxTransport
    from graphflow.models.responses.model import ResponsesModel

    transport = HttpxTransport()
    protocols: dict[str, Any] = {"responses": ResponsesModel, "messages": AnthropicModel, "gemini": GeminiModel}

    async def stream(url: str) -> int:
        protocol = protocols.get(_kind(url), OpenAICompatibleModel)
        model = protocol(Provider(key="bench", profile=Profile(), base_url=url), "m", transport=transport)
        count = 0
        async for _ in model.stream([HumanMessage(content="go")]):
            count += 1
        return count - 1  # Finish

    yield stream
    await transport.aclose()


@asynccontextmanager
async def openai_client() -> AsyncIterator[Stream]:
    import openai  # type: ignore[import-not-found]  # in an environment of its own

    async with openai.AsyncOpenAI(base_url="http://127.0.0.1", api_key="none", max_retries=0) as client:

        async def stream(url: str) -> int:
            client.base_url = url
            count = 0
            if _kind(url) == "messages":
                return await by_anthropic(url)
            if _kind(url) == "gemini":
                return await by_google(url)
            if _kind(url) == "responses":
                async for part in await client.responses.create(model="m", input="go", stream=True):
                    count += part.type == "response.output_text.delta"
                return count
            messages = [{"role": "user", "content": "go"}]
            chunks = await client.chat.completions.create(model="m", messages=messages, stream=True)
            async for part in chunks:
                delta = part.choices[0].delta
                if delta.content or delta.tool_calls or getattr(delta, "reasoning_content", None):
                    count += 1
            return count

        yield stream


async def by_anthropic(url: str) -> int:
    """The Messages API has an SDK of its own."""
    client = _anthropic()
    client.base_url = url
    count = 0
    asked = [{"role": "user", "content": "go"}]
    async with client.messages.stream(model="m", max_tokens=8, messages=asked) as events:
        async for event in events:
            count += event.type == "content_block_delta"
    return count


async def by_google(url: str) -> int:
    """So has the Gemini API."""
    count = 0
    async for part in await _google(url).aio.models.generate_content_stream(model="m", contents="go"):
        count += bool(part.text)
    return count


@functools.cache
def _google(url: str) -> Any:
    from google import genai  # type: ignore[import-not-found,attr-defined,unused-ignore]  # in an environment of its own
    from google.genai import types  # type: ignore[import-not-found,unused-ignore]

    options = types.HttpOptions(base_url=url, api_version="v1beta")
    return genai.Client(api_key="none", vertexai=False, http_options=options)


@functools.cache
def _anthropic() -> Any:
    import anthropic  # type: ignore[import-not-found,unused-ignore]  # in an environment of its own

    return anthropic.AsyncAnthropic(base_url="http://127.0.0.1", api_key="none", max_retries=0)


@asynccontextmanager
async def httpx_client() -> AsyncIterator[Stream]:
    """httpx and the standard JSON decoder over lines: what a hand-written client does, untyped."""
    import httpx

    async with httpx.AsyncClient() as client:

        async def stream(url: str) -> int:
            count = 0
            async with client.stream("POST", f"{url}/chat/completions", json={}) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        data = json.loads(line[6:])
                        if data.get("type") == "message_delta":
                            continue  # the end of a message, no piece of it
                        if "candidates" in data:
                            count += bool(data["candidates"][0]["content"]["parts"][0]["text"])
                            continue
                        count += bool(data.get("delta") if "type" in data else data["choices"][0]["delta"])
            return count

        yield stream


@asynccontextmanager
async def raw_client() -> AsyncIterator[Stream]:
    """httpx alone: the bytes are read and thrown away; the floor under any client on httpx."""
    import httpx

    async with httpx.AsyncClient() as client:

        async def stream(url: str) -> int:
            async with client.stream("POST", f"{url}/chat/completions", json={}) as response:
                async for _ in response.aiter_raw():
                    pass
            return _chunks(url)

        yield stream


CLIENTS: dict[str, Callable[[], AbstractAsyncContextManager[Stream]]] = {
    "graphflow": graphflow_client,
    "openai": openai_client,
    "httpx-json": httpx_client,
    "httpx-raw": raw_client,
}


def _kind(url: str) -> str:
    return url.rsplit("/", 3)[1]


def _chunks(url: str) -> int:
    return int(url.rsplit("/", 2)[1])


async def work(name: str) -> None:
    """A client's process: for each URL on stdin, prints the CPU seconds of one stream."""
    sys.path.insert(0, str(ROOT))
    async with CLIENTS[name]() as stream:
        while url := (await asyncio.to_thread(sys.stdin.readline)).strip():
            start = time.process_time()
            got = await stream(url)
            spent = time.process_time() - start
            if got != _chunks(url):
                raise SystemExit(f"{name} counted {got} deltas of {_chunks(url)}")
            print(spent, flush=True)


# --- the run -------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians by client."""
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    pythons = dict.fromkeys(CLIENTS, sys.executable)
    if options.sdk_python:
        pythons["openai"] = options.sdk_python
    else:
        del pythons["openai"]
    workers = {
        name: subprocess.Popen(
            [python, __file__, "--work", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name, python in pythons.items()
    }

    def once(name: str, kind: str) -> float:
        worker = workers[name]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"http://127.0.0.1:{port}/{kind}/{options.chunks}/{options.block}\n")
        worker.stdin.flush()
        chunks: int = options.chunks
        return float(worker.stdout.readline()) / chunks * 1e6

    try:
        figures: dict[str, dict[str, float]] = {name: {} for name in workers}
        for kind in KINDS:
            measured = [
                name for name in workers if kind not in SDKS or name != "openai" or _has(pythons[name], SDKS[kind])
            ]
            for name in measured:
                once(name, kind)  # imports, first connection
            got: dict[str, list[float]] = {name: [] for name in measured}
            for _ in range(options.rounds):
                for name in measured:
                    got[name].append(once(name, kind))
            for name, values in got.items():
                figures[name][f"{kind}_us"] = statistics.median(values)
    finally:
        for process in (*workers.values(), server):
            process.terminate()
            process.wait()
    return figures


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def show(figures: dict[str, dict[str, float]], options: argparse.Namespace) -> None:
    print(f"CPU us per chunk, {options.chunks} chunks, {options.block} per block, median of {options.rounds} rounds")
    for kind in KINDS:
        sdk = figures.get("openai", {}).get(f"{kind}_us")
        for name, by_kind in figures.items():
            if (value := by_kind.get(f"{kind}_us")) is None:
                continue
            print(f"  {kind:10s} {name:12s} {value:8.2f}  {f'{value / sdk:6.3f}x the SDK' if sdk else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdk-python", help="interpreter of an environment that has `openai` and `anthropic`")
    parser.add_argument("--chunks", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    elif options.work:
        asyncio.run(work(options.work))
    else:
        figures = measure(options)
        if options.json:
            print(json.dumps(figures))
        else:
            show(figures, options)


if __name__ == "__main__":
    main()
