"""Tokens of users: each sees their own threads alone, and what a token did is recorded under its name (spec 3.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from graphflow.errors import DefinitionError
from graphflow.server.auth import parse_tokens
from graphflow.service.application import Application
from tests.server.conftest import serving, take
from tests.service.conftest import make_application

TOKENS = "ann@ann:*:ann-secret,bob@bob:*:bob-secret,ops:*:ops-secret"
ANN, BOB, OPS = ({"Authorization": f"Bearer {name}-secret"} for name in ("ann", "bob", "ops"))


def with_tokens(folder: Path, tokens: str = TOKENS, **more: Any) -> Application:
    lines = [
        f"GRAPHFLOW_TOKENS={tokens}",
        *(f"GRAPHFLOW_SERVER_{name.upper()}={value}" for name, value in more.items()),
    ]
    (folder / ".env").write_text("\n".join(lines), encoding="utf-8")
    return make_application(folder)


async def waiting_chat(client: httpx.AsyncClient, chat_id: str, headers: dict[str, str]) -> Any:
    body = {"message": "hi", "agentKey": "react", "chatId": chat_id, "stream": False}
    response = await client.post("/api/query", json={**body, "agentKey": "ask"}, headers=headers)
    assert response.json()["data"]["status"] == "waiting", response.text
    return response.json()["data"]


async def test_another_users_thread_is_as_if_it_did_not_exist(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        waits = await waiting_chat(client, "hers", ANN)
        run, interrupt = waits["runId"], waits["interrupts"][0]["interruptId"]
        head = (await client.get("/api/threads/hers", headers=ANN)).json()["data"]["checkpointId"]
        for method, url, body in (
            ("GET", "/api/threads/{id}", None),
            ("GET", "/api/threads/{id}/checkpoints", None),
            ("GET", "/api/threads/{id}/state", None),
            ("GET", f"/api/threads/{{id}}/diff?from={head}&to={head}", None),
            ("GET", "/api/threads/{id}/blame?key=state.name", None),
            ("GET", "/api/threads/{id}/why", None),
            ("GET", "/api/threads/{id}/cost", None),
            ("GET", "/api/threads/{id}/queue", None),
            ("PATCH", "/api/threads/{id}", {"title": "x"}),
            ("PATCH", "/api/threads/{id}/state", {"values": {"name": "x"}}),
            ("POST", "/api/threads/{id}/rewind", {"checkpointId": head}),
            ("POST", "/api/threads/{id}/fork", {}),
            ("POST", "/api/threads/{id}/resume", {"answers": {interrupt: "x"}}),
            ("POST", "/api/threads/{id}/cancel", None),
            ("POST", "/api/threads/{id}/signal", {"name": "x"}),
            ("DELETE", "/api/threads/{id}", None),
            ("GET", "/api/chat?chatId={id}", None),
        ):
            hers = await client.request(method, url.format(id="hers"), json=body, headers=BOB)
            none = await client.request(method, url.format(id="none"), json=body, headers=BOB)
            assert hers.status_code == none.status_code == 404, (method, url, hers.text)
            assert hers.json()["msg"] == none.json()["msg"].replace("none", "hers"), (method, url)
        assert (await client.get(f"/api/runs/{run}/events", headers=BOB)).status_code == 404
        answer = {"runId": run, "toolId": interrupt, "payload": "Bob"}
        refused = (await client.post("/api/submit", json={"chatId": "hers", **answer}, headers=BOB)).json()["data"]
        assert (refused["accepted"], refused["status"]) == (False, "unmatched")
        query = await client.post("/api/query", json={"message": "x", "chatId": "hers"}, headers=BOB)
        assert query.status_code == 404
        assert (await client.get("/api/chats", headers=BOB)).json()["data"] == []
        assert (await client.get("/api/inbox", headers=BOB)).json()["data"] == []
        for headers in (ANN, OPS):
            assert [c["chatId"] for c in (await client.get("/api/chats", headers=headers)).json()["data"]] == ["hers"]
            assert [w["threadId"] for w in (await client.get("/api/inbox", headers=headers)).json()["data"]] == ["hers"]
        state = (await client.get("/api/threads/hers/state", headers=ANN)).json()["data"]
        assert state["checkpointId"] == head and state["values"]["name"] == "", "nothing of it has changed"
        whole = await take(client, "GET", f"/api/runs/{run}/events", headers=ANN)
        assert whole.events[-1]["type"] == "run.waiting"


async def test_a_fork_belongs_to_whose_thread_it_was_and_a_deleted_id_is_free(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        await waiting_chat(client, "hers", ANN)
        forked = await client.post("/api/threads/hers/fork", json={"threadId": "fork"}, headers=OPS)
        assert forked.status_code == 200
        assert (await client.get("/api/threads/fork", headers=ANN)).status_code == 200
        assert (await client.get("/api/threads/fork", headers=BOB)).status_code == 404
        await waiting_chat(client, "nobodys", OPS)
        assert (await client.get("/api/threads/nobodys", headers=ANN)).status_code == 404
        assert (await client.delete("/api/threads/hers", headers=ANN)).status_code == 200
        await waiting_chat(client, "hers", BOB)
        assert (await client.get("/api/threads/hers", headers=BOB)).status_code == 200
        assert (await client.get("/api/threads/hers", headers=ANN)).status_code == 404


async def test_what_concerns_everybody_is_not_for_a_token_of_one_user(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        rule = {"tool": "bash", "decision": "deny"}
        for method, url, body in (
            ("GET", "/metrics", None),
            ("GET", "/api/usage", None),
            ("GET", "/api/rules", None),
            ("POST", "/api/rules", rule),
            ("DELETE", "/api/rules/x", None),
        ):
            assert (await client.request(method, url, json=body, headers=ANN)).status_code == 403, url
            assert (await client.request(method, url, json=body, headers=OPS)).status_code in (200, 404), url


async def test_a_cursor_tells_nothing_of_another_users_chat(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        await waiting_chat(client, "hers", ANN)
        await waiting_chat(client, "his", BOB)
        hers, none = [await client.get(f"/api/chats?cursor={cursor}", headers=BOB) for cursor in ("hers", "none")]
        assert hers.status_code == none.status_code == 400
        assert hers.json()["msg"] == none.json()["msg"].replace("'none'", "'hers'")
        assert (await client.get("/api/chats?cursor=his", headers=BOB)).json()["data"] == []


async def test_who_answered_and_edited_is_recorded(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        for chat, headers in (("a", ANN), ("b", OPS)):
            waits = await waiting_chat(client, chat, headers)
            answer = {"chatId": chat, "runId": waits["runId"], "toolId": waits["interrupts"][0]["interruptId"]}
            await client.post("/api/submit", json={**answer, "payload": "Zoe"}, headers=OPS)
            await take(client, "GET", f"/api/runs/{waits['runId']}/events", headers=OPS)
        await client.patch("/api/threads/a/state", json={"values": {"name": "Eve"}}, headers=ANN)
        assert (await blame(client, "a", "state.name", ANN)) == ("edit", "ann")
        assert (await blame(client, "b", "state.name", OPS)) == ("answer", "ops")


async def test_without_tokens_it_was_local(client: httpx.AsyncClient) -> None:
    waits = await waiting_chat(client, "c", {})
    (interrupt,) = waits["interrupts"]
    resumed = {"answers": {interrupt["interruptId"]: "Zoe"}, "stream": False}
    await client.post("/api/threads/c/resume", json=resumed)
    assert (await blame(client, "c", "state.name", {})) == ("answer", "local")


async def blame(client: httpx.AsyncClient, thread: str, key: str, headers: dict[str, str]) -> tuple[str, str]:
    found = (await client.get(f"/api/threads/{thread}/blame?key={key}", headers=headers)).json()["data"]
    return found["source"], found["by"]


def test_a_token_keeps_no_secret_and_two_do_not_share_one() -> None:
    named, user, bare = parse_tokens(["one:read:hidden", "two@ann@example.org:run+answer:other", "third"])
    assert (named.name, named.user, sorted(named.scopes)) == ("one", None, ["read"])
    assert (user.name, user.user, sorted(user.scopes)) == ("two", "ann@example.org", ["answer", "run"])
    assert bare.scopes == {"read", "run", "answer", "admin"}
    assert not [word for word in ("hidden", "other", "third") if word in repr((named, user, bare))]
    with pytest.raises(DefinitionError, match="'a' and 'b' have the same secret") as refused:
        parse_tokens(["a:read:hidden", "b:run:hidden"])
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("secret", ["ünïcode-geheim", "with:colons:in-it"])
async def test_a_secret_may_hold_any_character(folder: Path, secret: str) -> None:
    async with serving(with_tokens(folder, f"a:read:{secret}")) as (client, _):
        right = await client.get("/api/agents", headers={b"Authorization": f"Bearer {secret}".encode()})
        wrong = await client.get("/api/agents", headers={b"Authorization": f"Bearer {secret}x".encode()})
        assert (right.status_code, wrong.status_code) == (200, 401)


async def test_where_in_the_code_a_node_failed_is_for_admins(folder: Path) -> None:
    """The trace names files and functions of the server; a token without the scope `admin` gets the error alone."""

    async def fails(state: Any) -> None:
        raise ValueError("no number")

    app = with_tokens(folder, "plain:run+read:plain-secret,ops:*:ops-secret")
    app.kinds.node("work", fails)
    async with serving(app) as (client, _):
        plain = {"Authorization": "Bearer plain-secret"}
        body = {"message": "hi", "agentKey": "story", "chatId": "t", "stream": False}
        await client.post("/api/query", json=body, headers=plain)
        hidden = (await client.get("/api/threads/t/why", headers=plain)).json()["data"]
        shown = (await client.get("/api/threads/t/why", headers=OPS)).json()["data"]
        assert "trace" not in hidden
        assert shown["trace"][-1] == "ValueError: no number"
        assert shown["trace"][0].startswith("tests/server/test_users.py:")
        summaries = [(await client.get("/api/threads/t", headers=who)).json()["data"] for who in (plain, OPS)]
        assert ("trace" in summaries[0], summaries[1]["trace"]) == (False, shown["trace"])
