"""`GET /api/chats?q=` over a real socket (spec 3.1, 5.2)."""

from __future__ import annotations

from typing import Any

import httpx

from tests.server.conftest import ask


async def test_chats_are_searched_and_paged_over_http(client: httpx.AsyncClient) -> None:
    for chat_id, message in (("tea", "Green tea, please"), ("coffee", "Black coffee"), ("cake", "Green cake")):
        await ask(client, message, chatId=chat_id, agentKey="plain")
    first = (await client.get("/api/chats", params={"q": "green", "limit": 1})).json()
    assert [line["chatId"] for line in first["data"]] == ["cake"]
    second = (await client.get("/api/chats", params={"q": "green", "limit": 1, "cursor": first["cursor"]})).json()
    assert [line["chatName"] for line in second["data"]] == ["Green tea,"]
    nobody = (await client.get("/api/chats", params={"q": "green", "agentKey": "react"})).json()
    assert nobody["data"] == []


async def test_a_cursor_that_is_none_and_a_query_that_is_too_long_are_refused(client: httpx.AsyncClient) -> None:
    for params in ({"q": "green", "cursor": "no such"}, {"q": "x" * 501}):
        refused = await client.get("/api/chats", params=params)
        assert (refused.status_code, refused.json()["code"]) == (400, 400)


async def test_the_history_of_a_chat_comes_in_pages_the_newest_first(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        await ask(client, agentKey="story", chatId="c")
    whole = (await client.get("/api/chat?chatId=c")).json()
    assert "cursor" not in whole
    pages: list[list[dict[str, Any]]] = []
    cursor = ""
    while True:
        page = (await client.get(f"/api/chat?chatId=c&limit=4{cursor}")).json()
        pages.insert(0, page["data"]["events"])
        if "cursor" not in page:
            break
        cursor = f"&cursor={page['cursor']}"
    assert [event for events in pages for event in events] == whole["data"]["events"]
    assert {len(events) for events in pages[1:]} == {4} and len(pages) > 2
    for wrong in ("cursor=none", "cursor=none:1", "cursor=:", "limit=0", "limit=501"):
        assert (await client.get(f"/api/chat?chatId=c&{wrong}")).status_code == 400
