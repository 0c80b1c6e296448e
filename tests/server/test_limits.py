"""What is let in: requests of a token, runs, queues, bodies and pages of other origins (spec 3.5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.errors import GraphflowError
from graphflow.server.app import create_app
from graphflow.server.rate_limits import RateLimit
from tests.server.conftest import serving
from tests.server.test_users import ANN, BOB, OPS, with_tokens
from tests.service.conftest import Gate, make_application


def test_a_bucket_fills_evenly_and_says_when_to_come_back() -> None:
    now = 100.0
    rate = RateLimit(30, lambda: now)
    for _ in range(30):
        rate.take("a")
    with pytest.raises(GraphflowError) as refused:
        rate.take("a")
    assert (refused.value.code, refused.value.detail["retryAfterMs"]) == ("too_many_requests", 2000)
    rate.take("b")  # each token has its own
    now += 2
    rate.take("a")
    with pytest.raises(GraphflowError):
        rate.take("a")
    now += 3600  # an idle hour fills no more than one bucket
    for _ in range(30):
        rate.take("a")
    with pytest.raises(GraphflowError):
        rate.take("a")


async def test_a_token_that_asks_too_often_gets_429_with_retry_after(folder: Path) -> None:
    async with serving(with_tokens(folder, max_requests_per_minute=2)) as (client, _):
        answers = [await client.get("/api/agents", headers=ANN) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        body = answers[-1].json()
        assert body["code"] == 429 and body["data"]["error"]["code"] == "too_many_requests"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 30
        assert (await client.get("/api/agents", headers=BOB)).status_code == 200
        assert (await client.get("/api/health")).status_code == 200, "probes need no token and are not counted"


async def test_no_more_runs_begin_than_the_server_takes(folder: Path, gate: Gate) -> None:
    (folder / ".env").write_text("GRAPHFLOW_SERVER_MAX_RUNS=2", encoding="utf-8")
    gate.close()
    async with serving(make_application(folder, gate=gate)) as (client, _):
        body = {"message": "x", "agentKey": "plain", "stream": False}
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(client.post("/api/query", json=body)) for _ in range(6)]
            refused = await first(4, asked)
            assert {answer.json()["data"]["error"]["code"] for answer in refused} == {"overloaded"}
            assert {answer.headers["retry-after"] for answer in refused} == {"1"}
            gate.open()
        assert sorted(task.result().status_code for task in asked) == [200] * 2 + [503] * 4
        assert (await client.post("/api/query", json=body)).status_code == 200
        assert len((await client.get("/api/chats")).json()["data"]) == 3, "what was refused leaves no chat"


async def first(count: int, asked: Iterable[asyncio.Task[httpx.Response]]) -> list[httpx.Response]:
    """The answers that come first."""
    done: set[asyncio.Task[httpx.Response]] = set()
    waiting = set(asked)
    while len(done) < count:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    return [task.result() for task in done]


async def test_no_more_inputs_wait_than_a_thread_takes(folder: Path, gate: Gate) -> None:
    (folder / ".env").write_text("GRAPHFLOW_SERVER_MAX_QUEUED=2", encoding="utf-8")
    gate.close()
    async with serving(make_application(folder, gate=gate)) as (client, _):
        body = {"message": "x", "agentKey": "plain", "chatId": "q", "stream": False, "onBusy": "enqueue"}
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(client.post("/api/query", json=body)) for _ in range(8)]
            refused = await first(5, asked)
            assert {answer.json()["data"]["error"]["code"] for answer in refused} == {"overloaded"}
            gate.open()
        statuses = sorted(task.result().status_code for task in asked)
        assert statuses == [200] * 3 + [503] * 5


async def test_pages_of_other_origins_are_kept_out_until_they_are_listed(folder: Path) -> None:
    evil = {"Origin": "https://evil.example"}
    preflight = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    async with serving(make_application(folder)) as (client, _):
        read = await client.get("/api/agents", headers=evil)
        assert read.status_code == 200 and not [h for h in read.headers if h.startswith("access-control")]
        asked = await client.options("/api/query", headers={**evil, **preflight})
        assert asked.status_code == 405 and not [h for h in asked.headers if h.startswith("access-control")]
        body = {"message": "x", "agentKey": "plain", "stream": False}
        changed = await client.post("/api/query", json=body, headers=evil)
        assert changed.status_code == 403 and "evil.example" in changed.json()["msg"]
        for origin in ("http://localhost:5173", "http://127.0.0.1:3000"):
            assert (await client.post("/api/query", json=body, headers={"Origin": origin})).status_code == 200
        for odd in ("null", "http://[", "https://127.0.0.1.evil.example"):
            assert (await client.post("/api/query", json=body, headers={"Origin": odd})).status_code == 403


async def test_a_listed_origin_may_ask_first_call_and_read(folder: Path) -> None:
    good = {"Origin": "https://app.example"}
    preflight = {
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "authorization,last-event-id",
    }
    async with serving(with_tokens(folder, cors_origins="https://app.example,https://two.example")) as (client, _):
        asked = await client.options("/api/threads/x/state", headers={**good, **preflight})
        assert asked.status_code == 200, "a preflight carries no token"
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "PATCH" in asked.headers["access-control-allow-methods"]
        allowed = asked.headers["access-control-allow-headers"].lower()
        assert "authorization" in allowed and "last-event-id" in allowed
        assert "access-control-allow-credentials" not in asked.headers
        refused = await client.get("/api/agents", headers=good)
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "https://app.example"
        read = await client.get("/api/agents", headers={**good, **OPS})
        assert read.status_code == 200 and "X-Request-Id" in read.headers["access-control-expose-headers"]
        other = await client.options("/api/query", headers={"Origin": "https://evil.example", **preflight})
        assert other.status_code == 400 and "access-control-allow-origin" not in other.headers
        assert other.json()["data"]["error"]["code"] == "invalid_input"


async def test_without_a_token_a_body_is_not_even_read(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        refused = await client.post("/api/query", content=b"{" * 100)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=ANN)).status_code == 403


@pytest.mark.parametrize(
    ("path", "kind"), [("/api/query", b"application/json"), ("/api/upload", b"multipart/form-data; boundary=b")]
)
async def test_a_client_that_leaves_in_mid_body_is_one_line_of_the_access_log(
    folder: Path, path: str, kind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"--b\r\n" if b"boundary" in kind else b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return came.pop(0)

    async def send(message: Any) -> None:
        pass

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", kind), (b"content-length", b"500")],
    }  # fmt: skip
    with caplog.at_level(logging.INFO, "graphflow.access"):
        await create_app(make_application(folder))(scope, receive, send)
    assert [record.__dict__["facts"]["status"] for record in caplog.records] == [499]
