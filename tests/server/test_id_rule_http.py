"""The rule for ids over HTTP: in bodies, paths and queries, for all callers, and for threads of earlier versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from graphflow.runtime.runs import start
from graphflow.service.runs import query
from tests.server.conftest import serving
from tests.server.test_users import ANN, BOB, with_tokens
from tests.service.conftest import make_application

ODD = ["a b", "a/b", "a@b", "a..b", "é", "a%2Fb", "x" * 3000]


def routes(thread: str) -> list[tuple[str, str, Any]]:
    """Every way to name a thread or a run."""
    path = quote(thread, safe="")
    reads = [
        "",
        "/checkpoints",
        "/state",
        "/diff?from=a&to=b",
        "/blame?key=state.n",
        "/why",
        "/cost",
        "/queue",
        "/decisions",
    ]
    return [
        *(("GET", f"/api/threads/{path}{rest}", None) for rest in reads),
        ("PATCH", f"/api/threads/{path}/state", {"values": {}}),
        ("POST", f"/api/threads/{path}/rewind", {"checkpointId": "x"}),
        ("POST", f"/api/threads/{path}/fork", {}),
        ("POST", f"/api/threads/{path}/resume", {}),
        ("POST", f"/api/threads/{path}/cancel", None),
        ("POST", f"/api/threads/{path}/signal", {"name": "x"}),
        ("DELETE", f"/api/threads/{path}/queue/x", None),
        ("DELETE", f"/api/threads/{path}", None),
        ("GET", f"/api/runs/{path}/events", None),
        ("GET", f"/api/runs/{path}", None),
        ("GET", f"/api/runs?threadId={path}", None),
        ("GET", f"/api/chat?chatId={path}", None),
        ("GET", f"/api/inbox?threadId={path}", None),
        ("GET", f"/api/tool/result?chatId={path}&toolId=x", None),
        ("POST", "/api/submit", {"chatId": thread, "runId": "r", "toolId": "x", "payload": 1}),
        ("POST", "/api/query", {"message": "x", "agentKey": "plain", "chatId": thread}),
        ("POST", "/api/threads/known/fork", {"threadId": thread}),
    ]  # fmt: skip


@pytest.mark.parametrize("thread", ODD, ids=lambda given: f"{given:.8}")
@pytest.mark.parametrize("token", [None, BOB], ids=["all users", "one user"])
async def test_every_route_refuses_it_with_one_error(folder: Path, thread: str, token: Any) -> None:
    async with serving(with_tokens(folder) if token else make_application(folder)) as (client, _):
        known = {"message": "x", "agentKey": "plain", "chatId": "known", "stream": False}
        assert (await client.post("/api/query", json=known, headers=token)).status_code == 200
        for method, url, body in routes(thread):
            response = await client.request(method, url, json=body, headers=token)
            error = response.json()["data"].get("error", {})
            assert (response.status_code, error.get("code")) == (400, "invalid_input"), (method, url, response.text)
            assert "is not a valid id: 1 to 128 characters of A-Z a-z 0-9 . _ : - without '..'" in error["message"], url
        upload: dict[str, Any] = {"files": {"file": ("a.txt", b"x")}, "data": {"chatId": thread}}
        assert (await client.post("/api/upload", headers=token, **upload)).status_code == 400
        assert not (folder / "checkpoints" / "uploads").exists() or not any(
            (folder / "checkpoints" / "uploads").iterdir()
        )
        assert [c["chatId"] for c in (await client.get("/api/chats", headers=token)).json()["data"]] == ["known"]


@pytest.mark.parametrize("thread", ["a b", "a/b", "a@b", "é"])
async def test_a_thread_of_an_earlier_version_is_read_continued_and_deleted(
    client: httpx.AsyncClient, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(start, "is_id", lambda _: True)
        earlier.setattr(query, "check_id", lambda *_: None)
        asked = await ask_name(client, thread)
    path = f"/api/threads/{quote(thread, safe='')}"
    assert (await client.get(path)).json()["data"]["threadId"] == thread
    line = (await client.get("/api/inbox", params={"threadId": thread})).json()["data"][0]
    assert line["threadId"] == thread
    answer = {"chatId": thread, "runId": asked["runId"], "toolId": line["interruptId"], "payload": "Ann"}
    assert (await client.post("/api/submit", json=answer)).json()["data"]["accepted"]
    events = await client.get(f"/api/runs/{asked['runId']}/events")
    assert '"run.complete"' in events.text
    assert (await client.get("/api/chat", params={"chatId": thread})).json()["data"]["chatId"] == thread
    assert (await ask_name(client, thread))["status"] == "waiting"
    assert (await client.delete(path)).json()["data"]["deleted"]
    assert (await client.get(path)).status_code == 400


async def ask_name(client: httpx.AsyncClient, thread: str) -> dict[str, Any]:
    body = {"message": "x", "agentKey": "ask", "chatId": thread, "stream": False}
    response = await client.post("/api/query", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["data"]
    return found


async def test_another_users_thread_under_such_an_id_looks_like_one_that_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        with monkeypatch.context() as earlier:
            earlier.setattr(start, "is_id", lambda _: True)
            earlier.setattr(query, "check_id", lambda *_: None)
            client.headers.update(ANN)
            await ask_name(client, "a b")
        client.headers.update(BOB)
        for (method, url, body), (_, other, nobodys) in zip(routes("a b"), routes("a c"), strict=True):
            theirs, absent = (
                await client.request(method, url, json=body),
                await client.request(method, other, json=nobodys),
            )
            assert theirs.text == absent.text.replace("a c", "a b"), url
