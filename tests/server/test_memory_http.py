"""The long-term store over HTTP: the caller's own user's items and no others (spec 5.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.server.conftest import serving
from tests.server.test_users import ANN, BOB, OPS, with_tokens


async def test_items_are_kept_found_replaced_and_deleted(client: httpx.AsyncClient) -> None:
    for key, value in (("tea", {"likes": "Green"}), ("a/b c?%", [1, None]), ("漢字", "text")):
        kept = (await client.put(f"/api/memory/{quote(key, safe='/')}", json={"value": value})).json()["data"]
        assert (kept["key"], kept["value"], kept["namespace"], kept["expiresAt"]) == (key, value, "", None)
        assert (await client.get(f"/api/memory/{quote(key, safe='')}")).json()["data"] == kept
    await client.put("/api/memory/tea?namespace=notes/deep", json={"value": None, "ttlS": 60})
    listed = (await client.get("/api/memory")).json()["data"]
    assert {(item["namespace"], item["key"]) for item in listed} == {
        ("", "tea"),
        ("", "a/b c?%"),
        ("", "漢字"),
        ("notes/deep", "tea"),
    }
    assert [item["key"] for item in (await client.get("/api/memory?q=green")).json()["data"]] == ["tea"]
    below = (await client.get("/api/memory?namespace=notes")).json()["data"]
    assert [(item["value"], item["expiresAt"] is None) for item in below] == [(None, False)]
    first = (await client.get("/api/memory?limit=3")).json()
    second = (await client.get(f"/api/memory?limit=3&cursor={first['cursor']}")).json()
    assert first["data"] + second["data"] == listed and "cursor" not in second
    assert (await client.put("/api/memory/tea", json={"value": 2})).json()["data"]["value"] == 2
    assert (await client.delete("/api/memory/tea")).json()["data"] == {"key": "tea", "deleted": True}
    for answer in (await client.get("/api/memory/tea"), await client.delete("/api/memory/tea")):
        assert (answer.status_code, answer.json()["data"]["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("PUT", "/api/memory/tea", {}), ("PUT", "/api/memory/tea", {"value": "x" * 70_000}),
        ("PUT", "/api/memory/tea", {"value": 1, "ttlS": 0}), ("PUT", "/api/memory/tea", {"value": 1, "more": 2}),
        ("PUT", "/api/memory/" + "k" * 513, {"value": 1}),
        ("PUT", "/api/memory/a%0Ab", {"value": 1}), ("GET", "/api/memory/a%0A", None), ("DELETE", "/api/memory/%0Aa", None),
        ("PUT", "/api/memory/a%FF", {"value": 1}), ("GET", "/api/memory/%C3%28", None), ("PUT", "/api/memory/a%ED%A0%80", {"value": 1}),
        ("PUT", "/api/memory/a?namespace=%FF", {"value": 1}), ("GET", "/api/memory?q=%FF", None), ("GET", "/api/memory?%FF=1", None),
        ("PUT", "/api/memory/a%1Fb", {"value": 1}), ("GET", "/api/memory/a?namespace=x//y", None),
        ("GET", "/api/memory?namespace=a%1Fb", None), ("GET", "/api/memory?cursor=x", None),
        ("GET", "/api/memory?cursor=-1", None), ("GET", "/api/memory?cursor=99999999999999999999", None),
        ("GET", "/api/memory?limit=0", None), ("GET", "/api/memory?user=bob", None),
    ],
)  # fmt: skip
async def test_what_does_not_fit_is_refused_and_not_kept(
    client: httpx.AsyncClient, method: str, url: str, body: Any
) -> None:
    answer = await client.request(method, url, json=body)
    assert (answer.status_code, answer.json()["data"]["error"]["code"]) == (400, "invalid_input")
    assert (await client.get("/api/memory")).json()["data"] == []


async def test_no_name_leads_to_another_users_items(folder: Path) -> None:
    async with serving(
        with_tokens(folder, "ann@ann:*:ann-secret,bob@bob:*:bob-secret,ops:*:ops-secret,eve@ann:read:eve-secret")
    ) as (client, _):
        await client.put("/api/memory/tea", json={"value": "hers"}, headers=ANN)
        await client.put("/api/memory/tea?namespace=n", json={"value": "deep"}, headers=ANN)
        for who in (BOB, OPS):
            assert (await client.get("/api/memory", headers=who)).json()["data"] == []
            assert (await client.get("/api/memory?q=hers", headers=who)).json()["data"] == []
            for namespace in ("", "?namespace=users/ann", "?namespace=ann", "?namespace=../ann", "?namespace=n"):
                hers = await client.get(f"/api/memory/tea{namespace}", headers=who)
                none = await client.get(f"/api/memory/none{namespace}", headers=who)
                assert hers.status_code == none.status_code == 404
                assert hers.json()["msg"] == none.json()["msg"].replace("none", "tea")
                assert (await client.delete(f"/api/memory/tea{namespace}", headers=who)).status_code == 404
        eve = {"Authorization": "Bearer eve-secret"}
        assert (await client.get("/api/memory/tea", headers=eve)).json()["data"]["value"] == "hers"
        assert (await client.put("/api/memory/tea", json={"value": 1}, headers=eve)).status_code == 403
        assert (await client.delete("/api/memory/tea", headers=eve)).status_code == 403
        assert (await client.get("/api/memory/tea", headers={})).status_code == 401
