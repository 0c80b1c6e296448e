"""`GET /api/chats?q=` over a real socket (spec 3.1, 5.2)."""

from __future__ import annotations

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
