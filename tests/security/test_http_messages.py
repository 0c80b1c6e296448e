"""HTTP messages: where one ends, what each says of itself, which methods there are, where a secret may stand."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest

from graphflow.service.application import Application
from graphflow.settings import load_settings
from graphflow.testing import app_client
from tests.patience import PATIENCE_S
from tests.service.conftest import make_application, write_agents

TOKEN = "open-sesame"


@pytest.fixture
async def client(tmp_path):
    write_agents(tmp_path)
    async with app_client(make_application(tmp_path), timeout=PATIENCE_S) as made:
        yield made


async def exchanged(client: httpx.AsyncClient, data: bytes) -> bytes:
    """All that the server answers to these bytes."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    finally:
        writer.close()


BROKEN = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "a signed length": b"Content-Length: +5\r\n\r\nabcde",
    "a length that is no number": b"Content-Length: 5,6\r\n\r\nabcde",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"Content-Length : 5\r\n\r\nabcde",
    "a chunk without a length": b"Transfer-Encoding: chunked\r\n\r\nx\r\nabcde\r\n0\r\n\r\n",
    "a line break in a value": b"X-Name: a\rb\r\n\r\n",
    "NUL in a value": b"X-Name: a\x00b\r\n\r\n",
    "a length beside chunks": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks beside a length": b"transfer-encoding: Chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
    "the same length twice": b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of one length": b"Content-Length: 0, 0\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a length without digits": b"Content-Length:\r\n\r\n",
    "a hexadecimal length": b"Content-Length: 0x5\r\n\r\nabcde",
    "a length of many digits": b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
    "two codings": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding without a name": b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "a negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk of many digits": b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
    "a chunk with a prefix": b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "a chunk that is longer than its length": b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "a folded line": b"X-Name: a\r\n b\r\n\r\n",
    "a folded coding": b"Transfer-Encoding:\r\n\tchunked\r\n\r\n0\r\n\r\n",
    "a folded first line": b" X-Name: a\r\n\r\n",
    "lines without a carriage return": b"X-Name: a\nContent-Length: 0\r\n\r\n",
    "an end without a carriage return": b"X-Name: a\r\n\n",
    "no name": b": a\r\n\r\n",
    "a second host": b"Host: other\r\n\r\n",
}


VERSIONS = {
    b"1.0": b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"2.0": b"\r\n",
    b"1.2": b"\r\n",
    b"0.9": b"\r\n",
}
GOOD = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_a_message_whose_end_is_not_clear_is_refused_and_its_connection_closed(client: httpx.AsyncClient):
    """RFC 9112, sections 2.2, 5.2, 6.1 and 6.3: no proxy may find another request where this server finds none."""
    requests = {kind: b"POST /api/query HTTP/1.1\r\nHost: localhost\r\n" + rest for kind, rest in BROKEN.items()}
    for version, rest in VERSIONS.items():
        requests[version.decode()] = b"GET /api/health HTTP/%b\r\nHost: localhost\r\n%b" % (version, rest)
    for kind, request in requests.items():
        answer = await exchanged(client, request + GOOD)
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400"], kind
        assert b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower(), kind


async def test_an_ambiguous_request_behind_a_good_one_is_refused_too(client: httpx.AsyncClient):
    bad = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\n" + BROKEN["a length beside chunks"]
    answer = await exchanged(client, GOOD + bad + GOOD)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"400"]


async def test_chunks_and_one_length_are_each_read_as_they_are(client: httpx.AsyncClient):
    for framed in (
        b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nX-Trailer: a\r\n\r\n",
        b"Content-Length: 2\r\n\r\n{}",
    ):
        answer = await exchanged(client, b"POST /api/query HTTP/1.1\r\nHost: localhost\r\n" + framed + GOOD)
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400", b"200"]
        assert b'"code":"invalid_input"' in answer  # the body lacks the message, and its end is known


KINDS = {
    "/api/agents": "application/json",
    "/api/health": "application/json",
    "/openapi.json": "application/json",
    "/": "text/html; charset=utf-8",
    "/docs": "text/html; charset=utf-8",
    "/metrics": "text/plain; version=0.0.4; charset=utf-8",
    "/nothing": "application/json",
    "/api/threads/unknown": "application/json",
}


@pytest.mark.parametrize("path", KINDS)
async def test_every_answer_says_what_it_is_and_is_kept_by_no_cache(client: httpx.AsyncClient, path: str):
    response = await client.get(path)
    assert response.headers["content-type"] == KINDS[path]
    assert response.headers["x-content-type-options"] == "nosniff"
    # The pages of the server hold nothing of anybody and may be asked for again.
    assert response.headers["cache-control"] == ("no-cache" if path in ("/", "/docs") else "no-store")
    assert "server" not in response.headers


async def test_a_stream_is_kept_by_no_cache_either(client: httpx.AsyncClient):
    response = await client.post("/api/query", json={"message": "hi", "agentKey": "plain"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store, no-transform"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/api/agents", "/api/query", "/api/threads/x", "/", "/metrics"])
@pytest.mark.parametrize("method", ["TRACE", "TRACK", "CONNECT", "PUT", "PROPFIND", "X" * 40])
async def test_a_method_that_a_route_does_not_have_is_refused(client: httpx.AsyncClient, method: str, path: str):
    response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"]


async def test_a_parameter_that_comes_twice_or_that_nobody_knows_is_refused(client: httpx.AsyncClient):
    for query in ("limit=1&limit=2", "limit=1&limit=1", "nobody=1"):
        response = await client.get(f"/api/threads?{query}")
        assert (response.status_code, response.json()["data"]["error"]["code"]) == (400, "invalid_input")


@pytest.mark.parametrize("query", ["token", "access_token", "authorization", "key", "api_key", "bearer"])
async def test_a_secret_in_an_address_lets_nobody_in(tmp_path, query: str):
    """An address is written to logs and histories; only the header counts."""
    application = Application(load_settings(tmp_path, environ={"GRAPHFLOW_TOKENS": TOKEN}))
    async with app_client(application, timeout=PATIENCE_S) as client:
        for cookies in ({}, {"token": TOKEN, "session": TOKEN}):
            client.cookies = httpx.Cookies(cookies)
            response = await client.get(f"/api/agents?{query}={TOKEN}")
            assert response.status_code in (400, 401)  # the parameter is one that nobody knows
            assert TOKEN not in response.text
        assert (await client.get("/api/agents", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200


async def test_a_header_of_a_proxy_lets_nobody_in_and_names_nobody(tmp_path):
    """Whoever can set `X-Forwarded-For` or the like is a stranger to this server."""
    application = Application(load_settings(tmp_path, environ={"GRAPHFLOW_TOKENS": f"a@ann:read:{TOKEN}"}))
    async with app_client(application, timeout=PATIENCE_S) as client:
        for name in ("X-Forwarded-For", "X-Real-IP", "X-User-ID", "X-Forwarded-User", "Forwarded", "X-Original-URL"):
            headers = {name: "127.0.0.1", "X-Forwarded-Proto": "https"}
            assert (await client.get("/api/agents", headers=headers)).status_code == 401
