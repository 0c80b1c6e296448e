"""Messages over HTTP: ids in events and history, pages, answering anew, other words in their place (spec 3.2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import ask, serving, take
from tests.server.test_travel import MAILER, Post
from tests.server.test_users import ANN, BOB, with_tokens
from tests.service.conftest import make_application


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
async def client(folder: Path, post: Post) -> AsyncIterator[httpx.AsyncClient]:
    (folder / "graphs" / "mailer.json").write_text(json.dumps(MAILER), encoding="utf-8")
    async with serving(make_application(folder, tools=post.tools())) as (made, _):
        yield made


async def messages(client: httpx.AsyncClient, chat_id: str = "t") -> list[Any]:
    found: list[Any] = (await client.get(f"/api/threads/{chat_id}/messages")).json()["data"]
    return found[::-1]


async def test_ids_of_messages_are_the_same_live_in_history_and_in_the_list(client: httpx.AsyncClient) -> None:
    live = await ask(client, agentKey="plain", chatId="t")
    asked = next(event["messageId"] for event in live.events if event["type"] == "request.query")
    block = next(event["contentId"] for event in live.events if event["type"] == "content.start")
    history = (await client.get("/api/chat?chatId=t")).json()["data"]["events"]
    assert [event["messageId"] for event in history if event["type"] == "request.query"] == [asked]
    assert [event["contentId"] for event in history if event["type"] == "content.snapshot"] == [block]
    assert [(m["messageId"], m["role"]) for m in await messages(client)] == [(asked, "user"), (block, "assistant")]


async def test_an_answer_is_made_anew_as_a_stream_and_as_one_body(client: httpx.AsyncClient) -> None:
    await ask(client, agentKey="plain", chatId="t")
    asked, answer = await messages(client)
    head = (await client.get("/api/threads/t")).json()["data"]["checkpointId"]
    again = await take(client, "POST", f"/api/threads/t/messages/{answer['messageId']}/regenerate")
    assert [again.events[0]["type"], again.events[-1]["type"]] == ["run.start", "run.complete"]
    after = await messages(client)
    assert after[0] == asked and after[1]["messageId"] != answer["messageId"]
    body = await client.post(f"/api/threads/t/messages/{asked['messageId']}/regenerate", json={"stream": False})
    assert body.json()["data"]["status"] == "completed"
    assert len((await client.get("/api/runs?threadId=t")).json()["data"]) == 3
    tree = (await client.get("/api/threads/t/checkpoints")).json()["data"]
    assert head in [checkpoint["id"] for checkpoint in tree]
    assert (await client.get(f"/api/threads/t/state?checkpointId={head}")).status_code == 200


async def test_a_message_is_edited_and_keeps_what_the_edit_does_not_name(client: httpx.AsyncClient) -> None:
    await ask(client, agentKey="plain", chatId="t", message="one", params={"tone": "dry"}, scene={"page": 1})
    await ask(client, agentKey="plain", chatId="t", message="two")
    first = (await messages(client))[0]["messageId"]
    edited = await take(client, "POST", f"/api/threads/t/messages/{first}/edit", json={"message": "eins"})
    query = next(event for event in edited.events if event["type"] == "request.query")
    assert (query["message"], query["params"], query["scene"]) == ("eins", {"tone": "dry"}, {"page": 1})
    assert [message["content"] for message in await messages(client) if message["role"] == "user"] == ["eins"]
    history = (await client.get("/api/chat?chatId=t")).json()["data"]["events"]
    assert [event["type"] for event in history].count("chat.start") == 1
    assert len((await client.get("/api/runs?threadId=t")).json()["data"]) == 3
    newer = query["messageId"]
    body = {"message": "uno", "params": {}, "stream": False}
    assert (await client.post(f"/api/threads/t/messages/{newer}/edit", json=body)).status_code == 200
    assert [message["content"] for message in await messages(client) if message["role"] == "user"] == ["uno"]


async def test_writes_that_came_after_a_message_need_a_choice(client: httpx.AsyncClient, post: Post) -> None:
    await ask(client, agentKey="mailer", chatId="t", message="go")
    asked = (await messages(client))[0]["messageId"]
    for route, body in (("regenerate", {}), ("edit", {"message": "stop"})):
        refused = await client.post(f"/api/threads/t/messages/{asked}/{route}", json=body)
        error = refused.json()["data"]["error"]
        assert (refused.status_code, error["code"]) == (409, "effects_need_choice")
        assert len(error["detail"]["effects"]) == len(post.sent)
    sent = list(post.sent)
    url = f"/api/threads/t/messages/{asked}/regenerate"
    assert (await client.post(url, json={"effects": "reuse", "stream": False})).status_code == 200
    assert post.sent == sent
    assert (await client.post(url, json={"effects": "undo", "stream": False})).status_code == 200
    assert len(post.recalled) == len(sent) and len(post.sent) == 2 * len(sent)


async def test_messages_come_in_pages_and_bad_requests_are_refused(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await ask(client, agentKey="plain", chatId="t", message=f"q{number}")
    whole, cursor, pages = await messages(client), "", []
    while True:
        page = (await client.get(f"/api/threads/t/messages?limit=4{cursor}")).json()
        pages += page["data"]
        if "cursor" not in page:
            break
        cursor = f"&cursor={page['cursor']}"
    assert pages[::-1] == whole and len(whole) == 6
    assert (await client.get("/api/threads/t/messages?cursor=x")).status_code == 400
    assert (await client.get("/api/threads/t/messages?limit=501")).status_code == 400
    bodies: tuple[dict[str, Any], ...] = ({}, {"message": " "}, {"message": "x", "text": "y"})
    for body in bodies:
        assert (
            await client.post(f"/api/threads/t/messages/{whole[0]['messageId']}/edit", json=body)
        ).status_code == 400
    edit = await client.post(f"/api/threads/t/messages/{whole[1]['messageId']}/edit", json={"message": "x"})
    assert (edit.status_code, whole[0]["messageId"] in edit.json()["msg"]) == (400, True)
    for route in ("edit", "regenerate"):
        unknown = await client.post(
            f"/api/threads/t/messages/nobody/{route}", json={"message": "x"} if route == "edit" else {}
        )
        assert (unknown.status_code, unknown.json()["data"]["error"]["code"]) == (404, "message_not_found")
    assert await messages(client) == whole


async def test_messages_of_another_user_are_as_if_they_did_not_exist(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        body = {"message": "hi", "agentKey": "plain", "chatId": "hers", "stream": False}
        run = (await client.post("/api/query", json=body, headers=ANN)).json()["data"]["runId"]
        for method, url, given in (
            ("GET", "/api/threads/{id}/messages", None),
            ("POST", f"/api/threads/{{id}}/messages/{run}/regenerate", {}),
            ("POST", f"/api/threads/{{id}}/messages/{run}/edit", {"message": "x"}),
        ):
            hers = await client.request(method, url.format(id="hers"), json=given, headers=BOB)
            none = await client.request(method, url.format(id="none"), json=given, headers=BOB)
            assert hers.status_code == none.status_code == 404, (method, url, hers.text)
            assert hers.json()["msg"] == none.json()["msg"].replace("none", "hers")
        assert len((await client.get("/api/threads/hers/messages", headers=ANN)).json()["data"]) == 2
