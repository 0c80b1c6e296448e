"""Renaming threads, their metadata, and finding threads by them over HTTP (spec 3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.server.conftest import ask, serving
from tests.server.test_users import ANN, BOB, with_tokens


async def test_a_thread_is_renamed_and_found_by_its_metadata(client: httpx.AsyncClient) -> None:
    for name in ("a", "b"):
        await ask(client, agentKey="story", chatId=name)
    body = {"title": "Kyoto trip", "metadata": {"project": "spring", "n": 3, "gone": 1}}
    line = (await client.patch("/api/threads/a", json=body)).json()["data"]
    assert (line["title"], line["metadata"]) == ("Kyoto trip", body["metadata"])
    await client.patch("/api/threads/a", json={"metadata": {"gone": None}})
    summary = (await client.get("/api/threads/a")).json()["data"]
    assert (summary["title"], summary["metadata"]) == ("Kyoto trip", {"project": "spring", "n": 3})
    for url in ("/api/threads?metadata.project=spring&metadata.n=3", "/api/threads?metadata.n=3&status=idle"):
        assert [found["threadId"] for found in (await client.get(url)).json()["data"]] == ["a"]
    assert (await client.get("/api/threads?metadata.project=autumn")).json()["data"] == []
    chats = (await client.get("/api/chats?metadata.project=spring")).json()["data"]
    assert [(chat["chatName"], chat["metadata"]["n"]) for chat in chats] == [("Kyoto trip", 3)]
    assert (await client.get("/api/chat?chatId=a")).json()["data"]["chatName"] == "Kyoto trip"
    await ask(client, agentKey="story", chatId="a")
    assert (await client.get("/api/threads/a")).json()["data"]["title"] == "Kyoto trip"
    for query in ("kyoto", "kyoto&metadata.project=spring"):
        assert [found["chatId"] for found in (await client.get(f"/api/chats?q={query}")).json()["data"]] == ["a"]
    assert (await client.get("/api/chats?q=kyoto&metadata.project=autumn")).json()["data"] == []
    assert (await client.patch("/api/threads/a", json={"title": None})).json()["data"]["title"] != "Kyoto trip"


async def test_pages_of_threads_follow_each_other_and_bad_requests_are_refused(client: httpx.AsyncClient) -> None:
    for name in "abc":
        await ask(client, agentKey="story", chatId=name)
        await client.patch(f"/api/threads/{name}", json={"metadata": {"m": name != "b"}})
    first = (await client.get("/api/threads?limit=1&metadata.m=true")).json()
    second = (await client.get(f"/api/threads?limit=1&metadata.m=true&cursor={first['cursor']}")).json()
    assert [page["data"][0]["threadId"] for page in (first, second)] == ["c", "a"]
    for url in (
        "/api/threads?cursor=nobody",
        "/api/threads?metadata=x",
        "/api/threads?status=odd",
        "/api/agents?metadata.m=x",
    ):
        assert (await client.get(url)).status_code == 400
    bodies: tuple[dict[str, Any], ...] = (
        {},
        {"title": 5},
        {"title": ""},
        {"metadata": []},
        {"name": "x"},
        {"metadata": {"k": "x" * 9000}},
    )
    for body in bodies:
        answer = await client.patch("/api/threads/a", json=body)
        assert (answer.status_code, answer.json()["data"]["error"]["code"]) == (400, "invalid_input"), body
    assert (await client.patch("/api/threads/nobody", json={"title": "x"})).status_code == 404


async def test_another_users_thread_is_neither_listed_nor_renamed(folder: Path) -> None:
    async with serving(with_tokens(folder)) as (client, _):
        body = {"message": "hi", "agentKey": "story", "chatId": "hers", "stream": False}
        await client.post("/api/query", json=body, headers=ANN)
        await client.patch("/api/threads/hers", json={"metadata": {"k": "v"}}, headers=ANN)
        answers = [
            await client.patch(f"/api/threads/{name}", json={"title": "x"}, headers=BOB) for name in ("hers", "none")
        ]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].json()["msg"] == answers[1].json()["msg"].replace("none", "hers")
        assert (await client.get("/api/threads?metadata.k=v", headers=BOB)).json()["data"] == []
        assert (await client.get("/api/threads?cursor=hers", headers=BOB)).status_code == 400
        assert len((await client.get("/api/threads?metadata.k=v", headers=ANN)).json()["data"]) == 1
