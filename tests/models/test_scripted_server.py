"""The scripted model behind HTTP: the OpenAI protocol as other clients see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from graphflow.models.scripted.model import ScriptedModel
from graphflow.models.scripted.script import Script, ScriptedCall, ScriptedError, ScriptTurn
from graphflow.models.scripted.server import DeltaGate, ScriptedServer, serve_scripted
from tests.patience import PATIENCE_S

TURN = ScriptTurn(reasoning="hm", text="hi", tool_calls=(ScriptedCall(name="f", arguments={"x": 1}, id="a"),), piece=10)
ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serve_scripted(ScriptedModel(Script(turns=(TURN,)))) as running:
        yield running


@pytest.fixture
async def http(server: ScriptedServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


def events(text: str) -> list[Any]:
    lines = [line for line in text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_a_stream_has_the_form_that_the_strictest_client_expects(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/chat/completions", json={**ASK, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks = events(answer.text)
    assert len({c["id"] for c in chunks}) == 1
    assert {(c["object"], c["model"]) for c in chunks} == {("chat.completion.chunk", "m")}
    assert [c["choices"][0]["delta"] for c in chunks[:-1]] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "hi"},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":1}'}}]},
        {},
    ]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * 5 + ["tool_calls"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] > 0


async def test_usage_is_streamed_only_when_asked_for(http: httpx.AsyncClient) -> None:
    answer = await http.post("/chat/completions", json={**ASK, "stream": True})
    assert not any("usage" in chunk for chunk in events(answer.text))


async def test_without_stream_the_turn_is_one_body(http: httpx.AsyncClient) -> None:
    answer = (await http.post("/chat/completions", json=ASK)).json()
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("hi", "hm")
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["object"] == "chat.completion"


async def test_models_are_listed(http: httpx.AsyncClient) -> None:
    assert [m["id"] for m in (await http.get("/models")).json()["data"]] == ["scripted"]


@pytest.mark.parametrize(
    "content",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": ["hi"]}',
        b'{"messages": [{"role": "wizard"}]}',
        b'{"messages": [{"role": "user", "content": 5}]}',
        b'{"messages": [{"role": "user", "content": [5]}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": 5}]}',
        b'{"messages": [{"role": "assistant", "toolCalls": [5]}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": [{"function": 5}]}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": 5}',
        b'{"messages": [{"role": "user", "content": "x"}], "stop": 5}',
        b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": 9}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f"}]}',
    ],
)
async def test_a_request_that_breaks_the_protocol_is_refused_with_400(http: httpx.AsyncClient, content: bytes) -> None:
    answer = await http.post("/chat/completions", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/chat/completions", 405), ("GET", "/nothing", 404), ("POST", "/models", 404)],
)
async def test_other_paths_and_methods_are_refused(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_connection_serves_several_requests_and_all_are_recorded(
    server: ScriptedServer, http: httpx.AsyncClient
) -> None:
    for _ in range(3):
        await http.post("/chat/completions", json={**ASK, "stream": True}, headers={"Authorization": "Bearer k"})
    assert [(r.method, r.path, r.json["model"]) for r in server.requests] == [("POST", "/v1/chat/completions", "m")] * 3
    assert server.requests[0].headers["authorization"] == "Bearer k"


async def test_a_request_body_in_chunks_is_read(http: httpx.AsyncClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        whole = json.dumps(ASK).encode()
        yield whole[:10]
        yield whole[10:]

    assert (await http.post("/chat/completions", content=parts())).status_code == 200


async def test_a_fault_may_be_put_before_the_next_requests(server: ScriptedServer, http: httpx.AsyncClient) -> None:
    server.fail_next(ScriptedError(status=429, message="slow down", headers={"Retry-After": "7"}), times=2)
    answers = [await http.post("/chat/completions", json=ASK) for _ in range(3)]
    assert [a.status_code for a in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "7"
    assert answers[0].json()["error"]["message"] == "slow down"


async def test_the_gate_holds_each_delta_until_it_is_released() -> None:
    gate = DeltaGate()
    model = ScriptedModel(Script(turns=(ScriptTurn(text="abc", piece=1),)))
    async with asyncio.timeout(PATIENCE_S), serve_scripted(model, gate=gate) as server, httpx.AsyncClient() as client:
        request = client.stream("POST", f"{server.url}/chat/completions", json={**ASK, "stream": True})
        async with request as answer:
            blocks = answer.aiter_raw()
            assert b'"role":"assistant"' in await anext(blocks)
            for letter in b"abc":
                gate.release()
                assert b'"content":"%c"' % letter in await anext(blocks)
            assert b"[DONE]" in b"".join([block async for block in blocks])


async def test_closing_the_server_ends_streams_that_hang() -> None:
    model = ScriptedModel(Script(turns=(ScriptTurn(text="a", hang=True),)))
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as client:
        async with serve_scripted(model) as server:
            answer = await client.send(
                client.build_request("POST", f"{server.url}/chat/completions", json={**ASK, "stream": True}),
                stream=True,
            )
            blocks = answer.aiter_raw()
            await anext(blocks)
        with pytest.raises(httpx.RemoteProtocolError):
            [block async for block in blocks]
        await answer.aclose()


async def test_a_client_that_leaves_frees_its_stream() -> None:
    model = ScriptedModel(Script(turns=(ScriptTurn(text="a", hang=True),)))
    async with asyncio.timeout(PATIENCE_S), serve_scripted(model) as server:
        async with httpx.AsyncClient() as client:
            request = client.stream("POST", f"{server.url}/chat/completions", json={**ASK, "stream": True})
            async with request as answer:
                await anext(answer.aiter_raw())
                assert server.open_connections == 1
        while server.open_connections:
            await asyncio.sleep(0)


async def test_bytes_that_are_no_http_are_refused_and_the_server_goes_on(
    server: ScriptedServer, http: httpx.AsyncClient
) -> None:
    host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    assert (await http.post("/chat/completions", json=ASK)).status_code == 200


async def test_a_taken_port_is_an_error_at_the_start(server: ScriptedServer) -> None:
    port = int(server.url.removesuffix("/v1").rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        await ScriptedServer(ScriptedModel()).start(port=port)
